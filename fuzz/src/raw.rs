//! Raw ops with huge and empty sizes, run as a server runs those of an untrusted client: whatever
//! [`infer`](mod@kiln_ir::infer) accepts must return a result or an error, soon, and within the memory that there is.
//!
//! Each campaign runs in child processes with a limit of memory, so that allocations fail; the parent ends a child that
//! takes too long for one program, and continues behind a program at which a child ended.

mod generate;
mod ops;
mod watch;

pub use watch::{Campaign, Totals, run_child};

use kiln_ir::{
    DType, Engine, Op, Operand, Operands, ResultTypes, Scalar, TensorData, TensorType, Value, block_on,
};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The largest tensor whose elements are read.
const MAX_READ: usize = 4 << 20;

/// A few ops, one after the other.
#[derive(Clone, Debug, Default)]
pub struct RawProgram {
    steps: Vec<Step>,
    /// How many more ops were generated that inference, or a quota, refuses.
    refused: u64,
}

#[derive(Clone, Debug)]
struct Step {
    op: Op,
    operands: Vec<Source>,
    results: ResultTypes,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Made(Made),
    Number(Scalar),
    /// A result, counted over all steps.
    Result(usize),
}

/// A tensor of equal elements.
#[derive(Clone, Copy, Debug)]
struct Made {
    ty: TensorType,
    /// Whether it is a view of one element.
    is_broadcast: bool,
    number: i64,
}

impl fmt::Display for RawProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            write!(f, "{:?}", step.op)?;
            for operand in &step.operands {
                match operand {
                    Source::Made(made) => write!(f, "\n    {} of {}", made.ty, made.number)?,
                    Source::Number(number) => write!(f, "\n    {number}")?,
                    Source::Result(result) => write!(f, "\n    result {result}")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Returns the program of a seed and a number.
pub fn program(seed: u64, number: u64) -> RawProgram {
    generate::program(seed, number)
}

/// The outcome of one program that returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcome {
    ops: u64,
    refused: u64,
    errors: u64,
}

/// Generates and runs a program on an engine.
///
/// # Errors
/// The message of a panic, or a result of another type than inferred.
fn run(engine: &dyn Engine, seed: u64, number: u64) -> Result<Outcome, String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| program(seed, number).run(engine)));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!(
            "panicked: {}",
            text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a text")
        ))
    })
}

impl RawProgram {
    fn run(&self, engine: &dyn Engine) -> Result<Outcome, String> {
        let mut outcome = Outcome { refused: self.refused, ..Outcome::default() };
        let mut values: Vec<Value> = Vec::new();
        for step in &self.steps {
            let operands: Operands =
                step.operands.iter().map(|source| source.operand(engine, &values)).collect();
            values.extend(engine.execute(&step.op, operands, &step.results));
            outcome.ops += 1;
        }
        let types = self.steps.iter().flat_map(|step| step.results.iter().map(move |ty| (step, ty)));
        for ((step, ty), value) in types.zip(values) {
            if ty.num_bytes() > MAX_READ {
                outcome.errors += u64::from(value.error().is_some());
                continue;
            }
            match block_on(engine.read(value)) {
                Ok(data) if data.ty() == *ty || matches!(step.op, Op::NonZero { .. }) => {}
                Ok(data) => {
                    return Err(format!("{:?} returned {}, inferred was {ty}", step.op, data.ty()));
                }
                Err(_) => outcome.errors += 1,
            }
        }
        Ok(outcome)
    }
}

impl Source {
    fn operand(&self, engine: &dyn Engine, results: &[Value]) -> Operand {
        match *self {
            Source::Number(number) => Operand::Scalar(number),
            Source::Result(result) => Operand::Value(results[result].clone()),
            Source::Made(made) => Operand::Value(made.value(engine)),
        }
    }
}

impl Made {
    fn value(&self, engine: &dyn Engine) -> Value {
        let one = TensorData::operand(Scalar::Int(self.number), Some(DType::I64)).convert(self.ty.dtype);
        let one = Operand::Value(engine.write(one));
        let run = |op: Op, operand: Operand| {
            engine.execute(&op, Operands::from_iter([operand]), &[self.ty]).remove(0)
        };
        let view = run(Op::Broadcast(self.ty.shape), one);
        if self.is_broadcast { view } else { run(Op::Copy, Operand::Value(view)) }
    }
}
