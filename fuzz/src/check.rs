//! The checks of every trial.

mod batch;
mod direction;
mod expansion;
mod fused;
mod gradient;
mod kernels;
mod passed;
mod text;
mod value;

pub(crate) use text::round_trip;

use crate::meanwhile::Meanwhile;
use crate::noise::Noisy;
use crate::trial::Trial;
use gradient::Projection;
use kiln_fusion::{Fusion, Mode};
use kiln_ir::{Engine, expanding};
use kiln_suite::engines::{cpu, router};
use std::cell::RefCell;
use std::fmt;
use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

/// How much is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    All,
    /// Checks that depend on the engine of another device: its ops, its regions, and gradients over both, compared with
    /// the reference. Layers and texts are the same on every engine. The order in which its threads add is not fixed.
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
pub type Ahead = Arc<dyn Fn(&[Trial]) + Send + Sync>;

/// The engines under test.
#[derive(Clone)]
pub struct Subjects {
    /// The engine that is compared with the reference.
    pub one: Arc<dyn Engine>,
    /// The same engine with more threads: it must give the same bits, those of NaN aside.
    pub many: Arc<dyn Engine>,
    /// The engine behind the layer that fuses.
    pub fused: Fusion,
    /// How much is checked of them.
    pub scope: Scope,
    /// Compiles kernels ahead, where that pays off.
    pub ahead: Option<Ahead>,
}

impl Subjects {
    /// The CPU engine on the caller's thread, and on three.
    pub fn cpu() -> Subjects {
        Subjects::of(Arc::new(cpu(1)), Arc::new(cpu(3)))
    }

    /// Routers over the CPU engine alone and behind fusion, on the caller's thread and on three. Operands are spread over both
    /// members, and every op on the way between them must keep its values.
    pub fn router() -> Subjects {
        let [one, many] = [1, 3].map(|threads| Arc::new(router(threads)) as Arc<dyn Engine>);
        Subjects { scope: Scope::Routed, ..Subjects::of(one, many) }
    }

    /// These engines, and the first one behind fusion. Ops that they leave out are expanded, as on every stack.
    pub fn of(one: Arc<dyn Engine>, many: Arc<dyn Engine>) -> Subjects {
        let (one, many) = (expanding(one), expanding(many));
        let fused = Fusion::with_mode(Arc::new(Meanwhile::new(one.clone())), Mode::On);
        Subjects { one, many, fused, scope: Scope::All, ahead: None }
    }

    /// An engine of another device, alone and behind fusion.
    pub fn device(engine: Arc<dyn Engine>) -> Subjects {
        Subjects { scope: Scope::Engine, ..Subjects::of(engine.clone(), engine) }
    }
}

/// One more run that is wrong as much as engines may be. The reference computes in `f64`: where sums leave the range of a
/// narrower float, the CPU engine gives the overflowed result.
fn run_with_noise(subjects: &Subjects, number: u64) -> Arc<dyn Engine> {
    match (subjects.scope, number) {
        (Scope::Engine | Scope::Kernels | Scope::Routed, 0) => Arc::new(cpu(1)),
        (Scope::Engine | Scope::Kernels, _) => Arc::new(Noisy::of_device(number)),
        (Scope::All | Scope::Routed, _) => Arc::new(Noisy::new(number)),
    }
}

/// A check of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// The program is valid, and its text reads back as it was.
    Text,
    /// All that an engine compiles for the program compiles.
    Kernels,
    /// Each op agrees with the reference on the same operands.
    Value,
    /// Nothing is overwritten that is still in use, and holding all values changes no result.
    Ownership,
    /// More threads give the same bits, those of NaN aside.
    Threads,
    /// [`Program::run`](kiln_ir::Program::run) returns the values of the ops run one by one.
    Whole,
    /// The reference, run by itself, returns the same results where no float is rounded on the way.
    Exact,
    /// A recording layer of automatic differentiation changes no value.
    Autodiff,
    /// A recorded program agrees with its ops run one by one.
    Fused,
    /// Automatic differentiation agrees with automatic differentiation over the reference.
    EagerGradient,
    /// Automatic differentiation over fusion agrees with that without.
    FusedGradient,
    /// Each op's expansion agrees with the op.
    Expansion,
    /// Each op on a batch of two examples agrees with the op on each.
    Batch,
    /// Gradients agree with finite differences.
    Gradient,
    /// Forward mode agrees with reverse mode.
    Forward,
    /// The program of the gradients agrees with reverse mode.
    GradientProgram,
    /// The parser of programs survives damaged texts.
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
            Check::Whole => "whole program",
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

/// A check that did not hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Which check.
    pub check: Check,
    /// The op at which it failed; nothing where it is the whole program.
    pub op: Option<String>,
    /// The instruction of that op, by its number.
    pub instruction: Option<usize>,
    /// The error message.
    pub message: String,
}

impl Failure {
    pub(crate) fn whole(check: Check, message: impl Into<String>) -> Failure {
        Failure { check, op: None, instruction: None, message: message.into() }
    }

    /// Whether both are of the same kind: a smaller trial must still fail for the same reason.
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

/// How much was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ops that ran on the engine under test and on the reference.
    pub ops: u64,
    /// Comparisons of a tensor with the expected one.
    pub comparisons: u64,
    /// Ops that failed on both engines, as an index out of range must.
    pub poisoned: u64,
    /// Fused regions that ran.
    pub regions: u64,
    /// Ops that ran as part of a region.
    pub fused: u64,
    /// Steps that began to run before all of their plan was recorded.
    pub early: u64,
    /// Gradients over fusion that were compared with those without.
    pub fused_gradients: u64,
    /// Expansions that were compared.
    pub expansions: u64,
    /// Examples of ops on batches that were compared.
    pub batches: u64,
    /// Derivatives by forward mode and by programs that were compared with reverse mode.
    pub directions: u64,
    /// Elements of gradients that were compared with finite differences.
    pub gradients: u64,
    /// Elements of gradients where differences tell nothing: at a kink or a jump, or too steep.
    pub gradients_skipped: u64,
    /// Damaged texts that were parsed.
    pub texts: u64,
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
    }
}

/// The result of checking a trial.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The first check that did not hold.
    pub failure: Option<Failure>,
    /// How much was checked.
    pub counts: Counts,
}

/// A check of a trial.
type Body<'a> = &'a dyn Fn(&mut Counts) -> Result<(), Failure>;

/// Checks everything of a trial, up to the first failure. A panic is a failure of the check it happened in.
pub fn check(trial: &Trial, subjects: &Subjects) -> Found {
    let mut found = Found::default();
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
            Ok(Err(failure)) => failure,
            Err(message) => Failure::whole(check, message),
        };
        found.failure = Some(failure);
        break;
    }
    found
}

/// A failure at the instruction that made a slot.
fn at_slot(trial: &Trial, slot: usize, check: Check, message: String) -> Failure {
    let mut first = trial.program.inputs.len();
    for (number, instruction) in trial.program.instructions.iter().enumerate() {
        first += instruction.results.len();
        if slot < first && slot >= trial.program.inputs.len() {
            let op = Some(instruction.op.name().into());
            return Failure { check, op, instruction: Some(number), message };
        }
    }
    Failure::whole(check, message)
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs code under test; a panic becomes its message and place, and is not printed.
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
