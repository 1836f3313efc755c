//! The checks of a trial.

mod batch;
mod direction;
mod expansion;
mod forward_values;
mod fused;
mod gradient;
mod kernels;
mod text;
mod value;

pub(crate) use text::round_trip;

use crate::asynchronous::AsynchronousEngine;
use crate::noise::Noisy;
use crate::subnormal::has_small_numbers;
use crate::trial::Trial;
use gradient::Projection;
use kiln_fusion::{Fusion, Mode};
use kiln_ir::{Engine, Instruction, expanding};
use kiln_suite::check::Subnormals;
use kiln_suite::engines::{cpu, router};
use std::cell::RefCell;
use std::fmt;
use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

/// The scope of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    All,
    /// Checks that depend on the engine of another device: its ops, its regions, and gradients over both, compared with
    /// the reference. Layers and texts are the same on every engine. Its threads add in no fixed order.
    Engine,
    /// Checks of an engine over several others: as for another device, and batches and gradients too. Which of them runs an op
    /// changes from run to run, so that bits may differ.
    Routed,
    /// Checks only that the kernels of an engine for another device compile. Nothing runs there, and every read returns
    /// 0.
    Kernels,
}

impl Scope {
    /// Whether two runs may differ in their bits.
    fn varies(self) -> bool {
        match self {
            Scope::All | Scope::Kernels => false,
            Scope::Engine | Scope::Routed => true,
        }
    }

    fn has(self, check: Check) -> bool {
        match self {
            Scope::All => check != Check::Kernels,
            Scope::Engine => matches!(check, Check::Value | Check::Fused),
            Scope::Routed => {
                matches!(check, Check::Value | Check::Fused | Check::Batch | Check::Gradient)
            }
            Scope::Kernels => check == Check::Kernels,
        }
    }
}

/// Compiles the engine's kernels for trials ahead.
pub type Precompile = Arc<dyn Fn(&[Trial]) + Send + Sync>;

/// The engines under test.
#[derive(Clone)]
pub struct Subjects {
    /// The engine that is compared with the reference.
    pub one: Arc<dyn Engine>,
    /// The same engine with more threads, which must return the same bits, except for NaN.
    pub many: Arc<dyn Engine>,
    /// The engine behind fusion.
    pub fused: Fusion,
    /// The scope of the checks.
    pub scope: Scope,
    /// Compiles kernels ahead, if that is faster.
    pub ahead: Option<Precompile>,
    /// Whether the engine flushes subnormal numbers to zero.
    pub subnormals: Subnormals,
}

impl Subjects {
    /// Returns the CPU engine with one thread and with three.
    pub fn cpu() -> Subjects {
        Subjects::of(Arc::new(cpu(1)), Arc::new(cpu(3)))
    }

    /// Routers over the CPU engine alone and behind fusion, on the caller's thread and on three. Operands are spread over both
    /// members, and every op on the way between them must keep its values.
    pub fn router() -> Subjects {
        let [one, many] = [1, 3].map(|threads| Arc::new(router(threads)) as Arc<dyn Engine>);
        Subjects { scope: Scope::Routed, ..Subjects::of(one, many) }
    }

    /// Returns these engines, and the first one behind fusion. Unsupported ops are expanded, as on every stack.
    pub fn of(one: Arc<dyn Engine>, many: Arc<dyn Engine>) -> Subjects {
        let (one, many) = (expanding(one), expanding(many));
        let fused = Fusion::with_mode(Arc::new(AsynchronousEngine::new(one.clone())), Mode::On);
        Subjects { subnormals: Subnormals::of(&*one), one, many, fused, scope: Scope::All, ahead: None }
    }

    /// Returns an engine of another device, alone and behind fusion.
    pub fn device(engine: Arc<dyn Engine>) -> Subjects {
        Subjects { scope: Scope::Engine, ..Subjects::of(engine.clone(), engine) }
    }
}

/// An engine for one more run with rounding noise, see `noise.rs`. The reference computes in `f64`: where sums
/// overflow a narrower float, the CPU engine returns the overflowed result.
fn run_with_noise(subjects: &Subjects, number: u64) -> Arc<dyn Engine> {
    match (subjects.scope, number) {
        (Scope::Engine | Scope::Kernels | Scope::Routed, 0) => Arc::new(cpu(1)),
        (Scope::Engine | Scope::Kernels, _) => Arc::new(Noisy::of_device(number)),
        (Scope::All | Scope::Routed, _) => Arc::new(Noisy::new(number)),
    }
}

/// The kind of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// The program is valid, and its text round-trips.
    Text,
    /// All kernels of the program compile.
    Kernels,
    /// Each op agrees with the reference on the same operands.
    Value,
    /// No live value is overwritten, and holding all values changes no result.
    Ownership,
    /// More threads return the same bits, except for NaN.
    Threads,
    /// [`Program::run`](kiln_ir::Program::run) returns the values of the ops run one by one.
    Program,
    /// A separate run of the reference returns the same results where no intermediate is rounded.
    Exact,
    /// A recording layer of automatic differentiation changes no value.
    Autodiff,
    /// A fused program agrees with its ops run one by one.
    Fused,
    /// Automatic differentiation agrees with automatic differentiation over the reference.
    EagerGradient,
    /// Automatic differentiation over fusion agrees with automatic differentiation without fusion.
    FusedGradient,
    /// Each op's expansion agrees with the op.
    Expansion,
    /// Each op on a batch of two examples agrees with the op on each example.
    Batch,
    /// Gradients agree with finite differences.
    Gradient,
    /// Forward mode agrees with reverse mode.
    Forward,
    /// The gradient program agrees with reverse mode.
    GradientProgram,
    /// The program parser never panics on damaged texts.
    Parser,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Check::Text => "text",
            Check::Kernels => "kernels",
            Check::Value => "value",
            Check::Ownership => "ownership",
            Check::Threads => "threads",
            Check::Program => "whole program",
            Check::Exact => "exact end to end",
            Check::Autodiff => "values under autodiff",
            Check::Fused => "fusion",
            Check::EagerGradient => "gradient op by op",
            Check::FusedGradient => "gradient over fusion",
            Check::Expansion => "expansion",
            Check::Batch => "batch",
            Check::Gradient => "gradient",
            Check::Forward => "forward mode",
            Check::GradientProgram => "program of gradients",
            Check::Parser => "parser",
        })
    }
}

/// A failed check.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The failed check.
    pub check: Check,
    /// The op that failed; `None` if it is the whole program.
    pub op: Option<String>,
    /// The number of the failed instruction.
    pub instruction: Option<usize>,
    /// The error message.
    pub message: String,
}

impl Failure {
    pub(crate) fn of_program(check: Check, message: impl Into<String>) -> Failure {
        Failure { check, op: None, instruction: None, message: message.into() }
    }

    pub(crate) fn of_instruction(
        check: Check,
        number: usize,
        instruction: &Instruction,
        message: String,
    ) -> Failure {
        Failure { check, op: Some(instruction.op.name().into()), instruction: Some(number), message }
    }

    /// Returns whether both failures have the same cause: a smaller trial must fail for the same reason.
    pub fn is_like(&self, other: &Failure) -> bool {
        let panics = |failure: &Failure| failure.message.contains("panicked");
        (self.check, &self.op, panics(self)) == (other.check, &other.op, panics(other))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.check)?;
        if let (Some(op), Some(instruction)) = (&self.op, self.instruction) {
            write!(f, " of `{op}` (instruction {instruction})")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Number of checks by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ops that ran on the engine under test and on the reference.
    pub ops: u64,
    /// Comparisons of a tensor with the expected one.
    pub comparisons: u64,
    /// Ops that failed on both engines, as expected of an index out of range.
    pub poisoned: u64,
    /// Fused regions that ran.
    pub regions: u64,
    /// Ops that ran as part of a region.
    pub fused: u64,
    /// Steps that ran speculatively.
    pub early: u64,
    /// Gradients over fusion that were compared with gradients without fusion.
    pub fused_gradients: u64,
    /// Compared expansions.
    pub expansions: u64,
    /// Compared examples of batched ops.
    pub batches: u64,
    /// Derivatives by forward mode and by gradient programs that were compared with reverse mode.
    pub directions: u64,
    /// Elements of gradients that were compared with finite differences.
    pub gradients: u64,
    /// Elements of gradients without a comparison: at a kink or a jump, or too steep.
    pub gradients_skipped: u64,
    /// Parsed damaged texts.
    pub texts: u64,
    /// Programs with a dtype that the engine lacks, which did not run.
    pub skipped: u64,
    /// Programs with numbers near the subnormal ones, which differ on an engine that flushes those to zero.
    pub flushed: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.ops += other.ops;
        self.comparisons += other.comparisons;
        self.poisoned += other.poisoned;
        self.regions += other.regions;
        self.fused += other.fused;
        self.early += other.early;
        self.fused_gradients += other.fused_gradients;
        self.expansions += other.expansions;
        self.batches += other.batches;
        self.directions += other.directions;
        self.gradients += other.gradients;
        self.gradients_skipped += other.gradients_skipped;
        self.texts += other.texts;
        self.skipped += other.skipped;
        self.flushed += other.flushed;
    }
}

/// The result of checking a trial.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The first failed check.
    pub failure: Option<Failure>,
    /// Number of checks by kind.
    pub counts: Counts,
}

/// The function of a check.
type Body<'a> = &'a dyn Fn(&mut Counts) -> Result<(), Failure>;

/// Runs all checks of a trial, up to the first failure. A panic is a failure of the running check.
pub fn check(trial: &Trial, subjects: &Subjects) -> Found {
    let mut found = Found::default();
    if lacks_dtype(trial, subjects) {
        found.counts.skipped = 1;
        return found;
    }
    let checks: [(Check, Body<'_>); 7] = [
        (Check::Text, &|_| text::check(trial)),
        (Check::Kernels, &|counts| kernels::check(trial, subjects, counts)),
        (Check::Value, &|counts| value::check(trial, subjects, counts)),
        (Check::Fused, &|counts| fused::check(trial, subjects, counts)),
        (Check::Expansion, &|counts| expansion::check(trial, counts)),
        (Check::Batch, &|counts| batch::check(trial, subjects, counts)),
        (Check::Gradient, &|counts| gradient::check(trial, subjects, counts)),
    ];
    for (check, body) in checks {
        if !subjects.scope.has(check) {
            continue;
        }
        let mut counts = Counts::default();
        let result = guarded(|| body(&mut counts));
        found.counts += counts;
        let failure = match result {
            Ok(Ok(())) => continue,
            Ok(Err(_)) if subjects.subnormals == Subnormals::Flushed && has_small_numbers(trial) => {
                found.counts.flushed = 1;
                return found;
            }
            Ok(Err(failure)) => failure,
            Err(message) => Failure::of_program(check, message),
        };
        found.failure = Some(failure);
        break;
    }
    found
}

/// Whether a value of the program has a dtype that the engine lacks.
fn lacks_dtype(trial: &Trial, subjects: &Subjects) -> bool {
    let dtypes = subjects.one.caps().dtypes;
    trial.program.slot_types().iter().any(|ty| !dtypes.contains(ty.dtype))
}

/// A failure at the instruction that defines a slot.
fn at_slot(trial: &Trial, slot: usize, check: Check, message: String) -> Failure {
    let mut first = trial.program.inputs.len();
    for (number, instruction) in trial.program.instructions.iter().enumerate() {
        first += instruction.results.len();
        if slot < first && slot >= trial.program.inputs.len() {
            return Failure::of_instruction(check, number, instruction, message);
        }
    }
    Failure::of_program(check, message)
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs code under test; a panic returns its message and location, without printing.
pub(crate) fn guarded<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let watched = PANIC.with(|slot| {
                let watched = slot.borrow().is_some();
                if watched {
                    *slot.borrow_mut() = Some(info.to_string().replace('\n', " "));
                }
                watched
            });
            if !watched {
                before(info);
            }
        }));
    });
    let outer = PANIC.with(|slot| slot.replace(Some(String::new())));
    let result = catch_unwind(AssertUnwindSafe(body));
    let message = PANIC.with(|slot| slot.replace(outer));
    result
        .map_err(|_| message.filter(|m| !m.is_empty()).unwrap_or_else(|| "panicked on another thread".into()))
}
