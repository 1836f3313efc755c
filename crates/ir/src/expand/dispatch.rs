//! Dispatch of ops to the engine below [`Expand`], without a call of the layer.

use super::Expand;
use crate::{Engine, Op, OpSet, OperandType, Operands, TensorType, Values};
use alloc::sync::Arc;
use core::any::Any;

/// An engine prepared for dispatch: stacks and layers store it in place of the engine below them.
///
/// If that engine is an [`Expand`], ops that it would forward are passed directly to the engine inside, selected by one
/// bit of the kind. The results are the same. A call of `Expand` moves the operands once more, which takes a tenth of
/// the time of a small op.
#[derive(Clone)]
pub struct Dispatch {
    engine: Arc<dyn Engine>,
    /// The engine that runs the forwarded ops.
    inside: Arc<dyn Engine>,
    direct: OpSet,
}

impl Dispatch {
    /// Prepares an engine for dispatch.
    pub fn new(engine: Arc<dyn Engine>) -> Dispatch {
        let outermost: &dyn Any = &*engine;
        let (inside, direct) = match outermost.downcast_ref::<Expand>() {
            Some(expand) => (expand.inner().clone(), expand.always_direct()),
            None => (engine.clone(), OpSet::default()),
        };
        Dispatch { engine, inside, direct }
    }

    /// Returns the original engine.
    #[inline]
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Works like [`Engine::execute`] of that engine.
    #[inline]
    pub fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let is_direct = self.direct.contains(op.kind());
        debug_assert!(!is_direct || self.inside.supports(op, &OperandType::list(&inputs)), "see `Expand`");
        // `Expand` counts the op.
        #[cfg(feature = "std")]
        let is_direct = is_direct && !crate::profile::counts(op);
        let engine = if is_direct { &self.inside } else { &self.engine };
        engine.execute(op, inputs, results)
    }
}
