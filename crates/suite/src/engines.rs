//! The engines under test, each with the list of cases that it does not pass yet.

use kiln_autodiff::{Autodiff, Checkpointing};
use kiln_cpu::Cpu;
use kiln_fusion::Fusion;
use kiln_ir::{
    BoxFuture, Caps, Engine, Expand, Op, Operand, Operands, TensorData, TensorType, Value, Values,
};
use kiln_reference::Reference;
use std::sync::Arc;

/// An engine under test.
#[derive(Clone, Copy)]
pub struct Subject {
    /// Its name in messages.
    pub name: &'static str,
    /// Opens it.
    pub open: fn() -> Arc<dyn Engine>,
    /// Cases that it does not pass yet.
    pub ignored: &'static [Ignored],
}

/// Cases that an engine does not pass yet. When one of them passes, the suite fails until the entry goes.
#[derive(Clone, Copy, Debug)]
pub struct Ignored {
    /// The mode.
    pub mode: Mode,
    /// Names of cases; `*` stands for any text.
    pub pattern: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// The check to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// [`check_value`](crate::check::check_value).
    Value,
    /// [`check_grad`](crate::check::check_grad).
    Grad,
    /// [`check_expand`](crate::check::check_expand).
    Expand,
}

/// The engine that defines the ops: compared with itself it shows that layouts, layers and expansions keep values.
pub const REFERENCE: Subject = Subject { name: "reference", open: || Arc::new(reference()), ignored: &[] };

/// The CPU engine on the caller's thread.
pub const CPU_ONE: Subject =
    Subject { name: "cpu, 1 thread", open: || Arc::new(cpu(1)), ignored: CPU_IGNORED };

/// The CPU engine on several threads.
pub const CPU_MANY: Subject =
    Subject { name: "cpu, 3 threads", open: || Arc::new(cpu(3)), ignored: CPU_IGNORED };

/// The CPU engine on the caller's thread behind fusion.
pub const FUSED_ONE: Subject =
    Subject { name: "fusion over cpu, 1 thread", open: || fused(1), ignored: CPU_IGNORED };

/// The CPU engine on several threads behind fusion, where each op stands between two others, so that it runs as part of a
/// region if it can.
pub const FUSED_MANY: Subject = Subject {
    name: "fusion over cpu, 3 threads, among neighbours",
    open: || Arc::new(Neighbours(fused(3))),
    ignored: CPU_IGNORED,
};

/// The engine over candle-core, on the processor.
#[cfg(feature = "candle")]
pub const CANDLE: Subject = Subject { name: "candle", open: candle, ignored: CANDLE_IGNORED };

#[cfg(feature = "candle")]
fn candle() -> Arc<dyn Engine> {
    let engine = kiln_candle::Candle::open(kiln_candle::CandleDevice::Cpu);
    kiln_ir::expanding(Arc::new(engine.expect("the processor is there")))
}

#[cfg(feature = "candle")]
const CANDLE_IGNORED: &[Ignored] = &[];

/// Every engine under test in a default build.
pub const SUBJECTS: [Subject; 5] = [REFERENCE, CPU_ONE, CPU_MANY, FUSED_ONE, FUSED_MANY];

/// The reference engine, running every op: those that it leaves out are expanded, as on every stack.
pub fn reference() -> Expand {
    Expand::new(Reference::new())
}

/// The CPU engine with that many threads, running every op: those that it leaves out are expanded, as on every stack.
pub fn cpu(threads: usize) -> Expand {
    Expand::new(Cpu::with_threads(threads))
}

fn fused(threads: usize) -> Arc<dyn Engine> {
    Arc::new(Fusion::with_mode(Arc::new(cpu(threads)), kiln_fusion::Mode::On))
}

const CPU_IGNORED: &[Ignored] = &[];

impl Subject {
    /// The entry under which a case is ignored.
    pub fn ignored(&self, mode: Mode, name: &str) -> Option<&'static Ignored> {
        self.ignored.iter().find(|entry| entry.mode == mode && matches(entry.pattern, name))
    }
}

/// Whether a name is of the form of a pattern, in which `*` stands for any text.
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// A layer of automatic differentiation whose data all require a gradient: every float op is recorded.
pub struct Tracked(Autodiff);

impl Tracked {
    /// The layer over an engine.
    pub fn new(engine: Arc<dyn Engine>) -> Tracked {
        Tracked(Autodiff::new(engine, Checkpointing::None))
    }
}

impl Engine for Tracked {
    fn caps(&self) -> &Caps {
        self.0.caps()
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        self.0.execute(op, inputs, results)
    }

    fn write(&self, data: TensorData) -> Value {
        let is_float = data.dtype().is_float();
        let value = self.0.write(data);
        if is_float { self.0.require_grad(value) } else { value }
    }

    fn read(&self, value: Value) -> BoxFuture<'_, kiln_ir::Result<TensorData>> {
        self.0.read(value)
    }

    fn saved_for_backward(&self, op: &Op, place: usize, value: &Value) -> Value {
        self.0.saved_for_backward(op, place, value)
    }

    fn mixes_precision(&self) -> bool {
        self.0.mixes_precision()
    }

    fn sync(&self) -> BoxFuture<'_, kiln_ir::Result<()>> {
        self.0.sync()
    }
}

/// A layer that copies every operand before each op and every result after it: nothing changes, but an engine that fuses
/// neighbours has some to fuse.
pub struct Neighbours(pub Arc<dyn Engine>);

impl Neighbours {
    fn copied(&self, value: Value) -> Value {
        let ty = *value.ty();
        self.0.execute(&Op::Copy, [Operand::Value(value)].into_iter().collect(), &[ty]).remove(0)
    }
}

impl Engine for Neighbours {
    fn caps(&self) -> &Caps {
        self.0.caps()
    }

    fn below(&self) -> Option<&dyn Engine> {
        Some(&*self.0)
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let copied = inputs.into_iter().map(|operand| match operand {
            Operand::Value(value) => Operand::Value(self.copied(value)),
            Operand::Scalar(scalar) => Operand::Scalar(scalar),
        });
        let values = self.0.execute(op, copied.collect(), results);
        values.into_iter().map(|value| self.copied(value)).collect()
    }

    fn write(&self, data: TensorData) -> Value {
        self.0.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, kiln_ir::Result<TensorData>> {
        self.0.read(value)
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        assert!(matches("exp/f32[2]", "exp/f32[2]"));
        assert!(matches("exp/*", "exp/f32[2]"));
        assert!(matches("*/f16*/corners", "exp/f16[2]/corners"));
        assert!(matches("*", ""));
        assert!(!matches("exp", "exp/f32"));
        assert!(!matches("*f16", "exp/f16[2]"));
    }
}
