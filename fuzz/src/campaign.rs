//! Fuzzing campaigns: many trials, on several threads.

use crate::check::{Check, Counts, Failure, Subjects, check, guarded};
use crate::generate::{NOT_GENERATED, trial};
use crate::narrow::narrowed;
use crate::random::Random;
use crate::shrink::shrink;
use crate::trial::Trial;
use crate::{generate, parser};
use kiln_ir::{DType, Op, OpKind, Program};
use kiln_suite::coverage::{variant, variants};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A campaign of this many programs must have generated every op.
pub const FOR_EVERY_KIND: u64 = 2_000;

/// A campaign of this many programs must have generated every op variant.
pub const FOR_EVERY_VARIANT: u64 = 10_000;

/// Options of a campaign.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of programs.
    pub programs: u64,
    /// The number of the first program.
    pub first: u64,
    /// The seed. Seed and number determine each program.
    pub seed: u64,
    /// Number of threads.
    pub threads: usize,
    /// The first op of every program, if given.
    pub only: Option<OpKind>,
    /// Batch size of a thread where kernels are [compiled ahead](Subjects::ahead); 0 disables it.
    pub ahead: u64,
    /// Number of damaged texts parsed per program.
    pub texts: usize,
    /// Number of failures after which the campaign stops.
    pub most_failures: usize,
    /// Maximum number of attempted changes to shrink a failing program.
    pub shrinking: usize,
    /// Whether progress and new failures are written to standard error.
    pub progress: bool,
}

impl Default for Options {
    /// 2,000 programs of seed 1 on two threads, two damaged texts each, up to 10 failures, 3,000 changes to shrink each.
    fn default() -> Options {
        Options {
            programs: 2_000,
            first: 0,
            seed: 1,
            threads: 2,
            only: None,
            ahead: 32,
            texts: 2,
            most_failures: 10,
            shrinking: 3_000,
            progress: false,
        }
    }
}

/// A failure with its shrunk trial.
#[derive(Clone, Debug)]
pub struct Reported {
    /// The number of the program.
    pub number: u64,
    /// The failed check.
    pub failure: Failure,
    /// The shrunk trial as a filetest.
    pub filetest: String,
}

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program {}: {}\n{}", self.number, self.failure, self.filetest)
    }
}

/// The result of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Number of programs run.
    pub programs: u64,
    /// Number of checks by kind.
    pub counts: Counts,
    /// How often each op was generated.
    pub kinds: BTreeMap<OpKind, u64>,
    /// How often each variant of an op was generated.
    pub variants: BTreeMap<String, u64>,
    /// The dtypes of operands and results of each op.
    pub dtypes: BTreeMap<OpKind, BTreeSet<DType>>,
    /// Failures, ordered by number.
    pub failures: Vec<Reported>,
    /// The duration.
    pub time: Duration,
    /// Whether each program began with one given kind of op.
    pub is_partial: bool,
}

/// Maximum characters of a failure in the final list.
const SHOWN: usize = 160;

/// Runs the programs. The result depends only on the options, except which failures come before the limit.
pub fn run(options: &Options, subjects: impl Fn() -> Subjects + Sync) -> Report {
    generate::Cubed::register();
    let started = Instant::now();
    let next = AtomicU64::new(options.first);
    let end = options.first + options.programs;
    let at = Progress::new(options.threads.max(1));
    let total = Mutex::new(Report { is_partial: options.only.is_some(), ..Report::default() });
    std::thread::scope(|scope| {
        for thread in 0..options.threads.max(1) {
            let (next, total, at, subjects) = (&next, &total, &at, &subjects);
            scope.spawn(move || {
                let subjects = subjects();
                let mut report = Report::default();
                let at_once = if subjects.ahead.is_some() { options.ahead.max(1) } else { 1 };
                let mut taken = 0..0;
                loop {
                    if taken.is_empty() {
                        let first = next.fetch_add(at_once, Ordering::Relaxed);
                        taken = first.min(end)..(first + at_once).min(end);
                        report.failures.extend(prepare(options, taken.clone(), &subjects));
                    }
                    let Some(number) = taken.next() else { break };
                    at.numbers[thread].store(number, Ordering::Relaxed);
                    one(options, number, &subjects, &mut report);
                    if options.progress {
                        report.failures.iter().for_each(|reported| eprintln!("{reported}"));
                    }
                    let enough = !report.failures.is_empty() && {
                        let mut total = total.lock().unwrap_or_else(|error| error.into_inner());
                        total.failures.append(&mut report.failures);
                        total.failures.len() >= options.most_failures
                    };
                    if enough {
                        next.store(end, Ordering::Relaxed);
                        break;
                    }
                }
                total.lock().unwrap_or_else(|error| error.into_inner()).absorb(report);
                at.numbers[thread].store(u64::MAX, Ordering::Relaxed);
            });
        }
        if options.progress {
            scope.spawn(|| at.show(options, started));
        }
    });
    let mut report = total.into_inner().unwrap_or_else(|error| error.into_inner());
    report.failures.sort_by_key(|reported| reported.number);
    report.time = started.elapsed();
    report
}

/// The current program of each thread.
struct Progress {
    /// `u64::MAX` if a thread is done.
    numbers: Vec<AtomicU64>,
}

impl Progress {
    /// The time between two lines.
    const PAUSE: Duration = Duration::from_secs(20);

    fn new(threads: usize) -> Progress {
        Progress { numbers: (0..threads).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Writes progress lines until all threads are done. They show the number of a program that hangs.
    fn show(&self, options: &Options, started: Instant) {
        let mut last = started;
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let numbers: Vec<u64> = self.numbers.iter().map(|n| n.load(Ordering::Relaxed)).collect();
            if numbers.iter().all(|&number| number == u64::MAX) {
                return;
            }
            if last.elapsed() >= Progress::PAUSE {
                last = Instant::now();
                let at: Vec<u64> = numbers.into_iter().filter(|&number| number != u64::MAX).collect();
                let end = options.first + options.programs;
                eprintln!("{:.0} s: at programs {at:?} of {end}", started.elapsed().as_secs_f64());
            }
        }
    }
}

/// Compiles the kernels of programs ahead.
fn prepare(options: &Options, numbers: Range<u64>, subjects: &Subjects) -> Option<Reported> {
    let ahead = subjects.ahead.as_ref().filter(|_| options.ahead > 0)?;
    let number = numbers.start;
    // A panic of the generator is reported when the program runs.
    let generated = |number| guarded(|| generated(options, number, subjects)).ok();
    let message = guarded(|| ahead(&numbers.filter_map(generated).collect::<Vec<_>>())).err()?;
    let message = format!("of this program and those after it, compiled ahead: {message}");
    let failure = Failure::of_program(Check::Kernels, message);
    Some(Reported { number, failure, filetest: String::new() })
}

/// A program of the dtypes that the engine has, if there is such a form of it.
fn generated(options: &Options, number: u64, subjects: &Subjects) -> Trial {
    narrowed(trial(options.seed, number, options.only), subjects.one.caps().dtypes)
}

/// Generates and checks one program.
fn one(options: &Options, number: u64, subjects: &Subjects, report: &mut Report) {
    report.programs += 1;
    let trial = match guarded(|| generated(options, number, subjects)) {
        Ok(trial) => trial,
        Err(message) => {
            let failure = Failure::of_program(Check::Text, format!("the generator: {message}"));
            report.failures.push(Reported { number, failure, filetest: String::new() });
            return;
        }
    };
    report.note(&trial.program);
    let found = check(&trial, subjects);
    report.counts += found.counts;
    if let Some(failure) = found.failure {
        report.failures.push(reported(options, number, &trial, failure, subjects));
        return;
    }
    let mut random = Random::new(options.seed ^ 0x5EED, number);
    if let Err(failure) = parser::check(&trial.program, &mut random, options.texts, &mut report.counts) {
        report.failures.push(Reported { number, failure, filetest: String::new() });
    }
}

fn reported(
    options: &Options,
    number: u64,
    trial: &Trial,
    failure: Failure,
    subjects: &Subjects,
) -> Reported {
    let small = shrink(trial, &failure, subjects, options.shrinking);
    let failure = check(&small, subjects).failure.unwrap_or(failure);
    let only = options.only.map(|kind| format!(" --only {kind:?}")).unwrap_or_default();
    let command = format!("cargo xtask fuzz --seed {} --first {number} --programs 1{only}", options.seed);
    let filetest = small.to_filetest(&[format!("{failure}"), format!("found by `{command}`")]);
    Reported { number, failure, filetest }
}

impl Report {
    fn note(&mut self, program: &Program) {
        let slots = program.slot_types();
        for instruction in &program.instructions {
            let kind = instruction.op.kind();
            *self.kinds.entry(kind).or_default() += 1;
            *self.variants.entry(variant(&instruction.op)).or_default() += 1;
            let dtypes = self.dtypes.entry(kind).or_default();
            dtypes.extend(instruction.results.iter().map(|ty| ty.dtype));
            for operand in &instruction.operands {
                if let kiln_ir::ProgramOperand::Slot(slot) = operand {
                    dtypes.insert(slots[*slot].dtype);
                }
            }
            if let Op::Fused(fused) = &instruction.op {
                self.note(fused.program());
            }
        }
    }

    fn absorb(&mut self, other: Report) {
        self.programs += other.programs;
        self.counts += other.counts;
        for (kind, count) in other.kinds {
            *self.kinds.entry(kind).or_default() += count;
        }
        for (name, count) in other.variants {
            *self.variants.entry(name).or_default() += count;
        }
        for (kind, dtypes) in other.dtypes {
            self.dtypes.entry(kind).or_default().extend(dtypes);
        }
        self.failures.extend(other.failures);
    }

    /// Ops and variants that this many programs must generate but did not.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if self.is_partial || !self.failures.is_empty() {
            return missing;
        }
        for kind in OpKind::ALL.into_iter().filter(|kind| !NOT_GENERATED.contains(kind)) {
            if self.programs >= FOR_EVERY_KIND && !self.kinds.contains_key(&kind) {
                missing.push(format!("{kind:?}"));
            }
            if self.programs >= FOR_EVERY_VARIANT && kind != OpKind::Custom {
                missing.extend(variants(kind).into_iter().filter(|name| !self.variants.contains_key(name)));
            }
        }
        missing
    }

    /// Returns `N passed, M failed, K skipped`, in programs.
    pub fn totals(&self) -> String {
        let (failed, skipped) = (self.failures.len() as u64, self.counts.skipped + self.counts.flushed);
        let passed = self.programs.saturating_sub(failed + skipped);
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }

    /// Returns whether no check failed and no op or variant is missing.
    pub fn is_good(&self) -> bool {
        self.failures.is_empty() && self.missing().is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<16}{:>9}{:>10}  dtypes", "op", "times", "variants")?;
        for kind in OpKind::ALL {
            let times = self.kinds.get(&kind).copied().unwrap_or(0);
            let seen = variants(kind).iter().filter(|name| self.variants.contains_key(*name)).count();
            let dtypes: Vec<&str> = match self.dtypes.get(&kind) {
                Some(dtypes) => dtypes.iter().map(|dtype| dtype.name()).collect(),
                None => Vec::new(),
            };
            let all = variants(kind).len();
            let seen = if kind == OpKind::Custom { String::new() } else { format!("{seen}/{all}") };
            writeln!(f, "{:<16}{times:>9}{seen:>10}  {}", format!("{kind:?}"), dtypes.join(" "))?;
        }
        for reported in &self.failures {
            writeln!(f, "\n{reported}")?;
        }
        for name in self.missing() {
            writeln!(f, "never generated: {name}")?;
        }
        let Counts { ops, comparisons, poisoned, expansions, batches, .. } = self.counts;
        let Counts { regions, fused, early, fused_gradients, .. } = self.counts;
        let Counts { directions, gradients, gradients_skipped, texts, .. } = self.counts;
        writeln!(
            f,
            "{} programs: {ops} ops run, {comparisons} comparisons, {poisoned} ops failed on both engines as they \
             must, {fused} ops fused in {regions} regions, {early} steps before all was recorded, {fused_gradients} \
             gradients over fusion, {expansions} expansions and {batches} examples of batches compared, {gradients} gradient checks by \
             differences ({gradients_skipped} points skipped), {directions} by other modes, {texts} damaged texts \
             parsed",
            self.programs
        )?;
        if self.counts.skipped > 0 {
            writeln!(f, "{} programs skipped: the device lacks a dtype of theirs", self.counts.skipped)?;
        }
        if self.counts.flushed > 0 {
            let flushed = self.counts.flushed;
            writeln!(
                f,
                "{flushed} programs skipped: they differ, and the device flushes subnormal numbers to zero"
            )?;
        }
        write!(f, "{} mismatches, {:.1} s", self.failures.len(), self.time.as_secs_f64())?;
        // Again, so that the end of a log lists all failures.
        for Reported { number, failure, .. } in &self.failures {
            let said: String = failure.to_string().chars().take(SHOWN).collect();
            write!(f, "\n  program {number}: {said}")?;
        }
        Ok(())
    }
}
