//! Dispatch of ops to the engine below [`Expand`], without a call of the layer.

use super::Expand;
use crate::{Engine, Op, OpSet, OperandType, Operands, TensorType, Values};
use alloc::sync::Arc;
use core::any::Any;

/// An engine, ready to be given ops one after the other: for stacks and layers, which hold it in place of the engine below them.
///
/// If that engine is an [`Expand`], the ops that it would pass on go straight to the engine in it, chosen by one bit of the
/// kind. The results are the same. A call of `Expand` moves the operands once more, a tenth of the time of a small op.
#[derive(Clone)]
pub struct Dispatch {
    engine: Arc<dyn Engine>,
    /// The engine that runs the direct ops.
    inside: Arc<dyn Engine>,
    direct: OpSet,
}

impl Dispatch {
    /// Dispatch to an engine.
    pub fn new(engine: Arc<dyn Engine>) -> Dispatch {
        let outermost: &dyn Any = &*engine;
        let (inside, direct) = match outermost.downcast_ref::<Expand>() {
            Some(expand) => (expand.inner().clone(), expand.always_direct()),
            None => (engine.clone(), OpSet::default()),
        };
        Dispatch { engine, inside, direct }
    }

    /// The engine that it was made of.
    #[inline]
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// As [`Engine::execute`] of that engine.
    #[inline]
    pub fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let is_direct = self.direct.contains(op.kind());
        debug_assert!(!is_direct || self.inside.supports(op, &OperandType::list(&inputs)), "see `Expand`");
        let engine = if is_direct { &self.inside } else { &self.engine };
        engine.execute(op, inputs, results)
    }
}
