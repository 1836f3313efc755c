//! Every kernel that fusion makes of the suite's cases keeps its text, and so does its source for GPUs.
//!
//! The cases run behind fusion over an engine that lowers each region it is given. A kernel must be the same after it was
//! printed and read, byte for byte, and print the same CUDA, HIP and WGSL; WGSL must be valid.

use kiln_cpu::Cpu;
use kiln_fusion::{Fusion, Mode};
use kiln_ir::{
    BoxFuture, Caps, Engine, Expand, Layout, Op, Operand, Operands, Program, Result, TensorData, TensorType,
    Value, Values,
};
use kiln_kernel::print::{Dialect, Printed, Target, Unprintable, print};
use kiln_kernel::{GpuSchedule, Kernel, Launch, Lowered, Nest};
use kiln_suite::cases::Group;
use kiln_suite::engines::{Neighbours, Subject};
use kiln_suite::run::{Stack, finish, values};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The kernels found, by their text and that of their launch.
static FOUND: Mutex<BTreeMap<(String, String), Lowered>> = Mutex::new(BTreeMap::new());

const SUBJECT: Subject = Subject { name: "kernels of regions", open, ignored: &[] };

fn open() -> Arc<dyn Engine> {
    Arc::new(Neighbours(Arc::new(Fusion::with_mode(
        Arc::new(Expand::new(Collecting(Cpu::with_threads(1)))),
        Mode::On,
    ))))
}

/// The CPU engine, which notes the kernel of each region.
struct Collecting(Cpu);

impl Engine for Collecting {
    fn caps(&self) -> &Caps {
        self.0.caps()
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        if let Op::Fused(fused) = op
            && let Some(lowered) = lowered(fused.program(), &inputs)
        {
            let key = (lowered.kernel.to_string(), lowered.launch.to_string());
            FOUND.lock().unwrap_or_else(PoisonError::into_inner).insert(key, lowered);
        }
        self.0.execute(op, inputs, results)
    }

    fn write(&self, data: TensorData) -> Value {
        self.0.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.0.read(value)
    }

    fn below(&self) -> Option<&dyn Engine> {
        Some(&self.0)
    }
}

/// The kernel of a region whose operands are contiguous, if it is one.
fn lowered(program: &Program, inputs: &Operands) -> Option<Lowered> {
    let numbers: Vec<bool> = inputs.iter().map(|operand| matches!(operand, Operand::Scalar(_))).collect();
    let (nest, outputs) = Nest::of_program(program, &numbers).ok()?;
    let layout = |(ty, &number): (&TensorType, &bool)| {
        let strides = if number { Vec::new() } else { Layout::contiguous(ty.shape).strides().to_vec() };
        kiln_kernel::Layout(strides)
    };
    let layouts: Vec<_> = program.inputs.iter().zip(&numbers).map(layout).collect();
    nest.lower(&outputs, &layouts).ok()
}

/// The kernel as source code in all languages.
fn sources(lowered: &Lowered) -> [std::result::Result<Printed, Unprintable>; 3] {
    let schedule = GpuSchedule::choose(&lowered.kernel, &lowered.launch);
    let kernel = &lowered.kernel;
    [Dialect::Cuda, Dialect::Hip, Dialect::Wgsl]
        .map(|dialect| print(kernel, &schedule, &Target::new(dialect), &[]))
}

/// Checks a kernel; whether WGSL can express it.
fn check((text, launch): &(String, String), lowered: &Lowered) -> std::result::Result<bool, String> {
    let kernel: Kernel = text.parse().map_err(|error| format!("does not parse: {error}"))?;
    let again: Launch = launch.parse().map_err(|error| format!("its launch does not parse: {error}"))?;
    let again = Lowered { kernel, launch: again, checks: lowered.checks.clone() };
    if again != *lowered {
        return Err("reads back as another kernel".into());
    }
    if again.kernel.to_string() != *text || again.launch.to_string() != *launch {
        return Err("prints another text after it was read".into());
    }
    let printed = sources(lowered);
    if sources(&again) != printed {
        return Err("prints another source after it was read".into());
    }
    match &printed[2] {
        Ok(source) => valid(&source.text).map(|()| true),
        Err(_) => Ok(false),
    }
}

fn valid(source: &str) -> std::result::Result<(), String> {
    let module = naga::front::wgsl::parse_str(source)
        .map_err(|error| format!("is no WGSL: {}\n{source}", error.emit_to_string(source)))?;
    Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map(|_| ())
        .map_err(|error| format!("is no valid WGSL: {}\n{source}", error.emit_to_string(source)))
}

/// How many different kernels the suite makes, at least: fewer would mean that they are not collected.
const LEAST: usize = 1000;

/// Calls a function with each item, on all processors.
fn on_all_processors<T: Send, R: Send>(
    items: impl Iterator<Item = T> + Send,
    body: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let items = Mutex::new(items);
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let mut results = Vec::new();
        while let Some(item) = next() {
            results.push(body(item));
        }
        results
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        let results = workers.into_iter().map(|worker| worker.join());
        results.flat_map(|results| results.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

#[test]
fn kernels_round_trip_through_text() {
    on_all_processors(Group::ALL.into_iter(), |group| {
        finish(values(&[(SUBJECT, Stack::Plain), (SUBJECT, Stack::Autodiff)], group));
    });
    let found = std::mem::take(&mut *FOUND.lock().unwrap_or_else(PoisonError::into_inner));
    let outcomes = on_all_processors(found.iter(), |(key, lowered)| {
        check(key, lowered).map_err(|text| format!("{}\n{}\n{text}", key.0, key.1))
    });
    let wgsl = outcomes.iter().filter(|outcome| matches!(outcome, Ok(true))).count();
    println!("{} kernels, {wgsl} of them in WGSL too", found.len());
    let problems: Vec<String> = outcomes.into_iter().filter_map(std::result::Result::err).collect();
    assert!(problems.is_empty(), "{} kernels, the first:\n{}", problems.len(), problems[0]);
    assert!(found.len() >= LEAST, "only {} kernels", found.len());
}
