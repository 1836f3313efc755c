//! The members of a router.

use crate::statistics::MemberStatistics;
use kiln_ir::{DType, DTypeSet, Engine, Expand, MINIMAL, Op, OpKind, OperandType};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An engine for a [`Router`](crate::Router): that of a device, with its layers.
pub struct Member {
    name: String,
    engine: Arc<dyn Engine>,
    /// Whether the device runs all minimal ops on all dtypes, so that every op with an expansion runs there.
    is_complete: bool,
    ops: AtomicU64,
}

impl Member {
    /// An engine that runs every op, if need be by [`Expand`]: the engine of a stack. The name is for messages.
    pub fn new(name: impl Into<String>, engine: Arc<dyn Engine>) -> Member {
        let caps = native(&*engine).caps();
        let minimal = MINIMAL.without(&[OpKind::Collective, OpKind::Custom, OpKind::Fused]);
        let is_complete = caps.dtypes == DTypeSet::ALL && caps.native.contains_all(minimal);
        Member { name: name.into(), engine, is_complete, ops: AtomicU64::new(0) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its engine.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Whether it runs an op itself, or by an expansion all of whose ops it runs.
    pub(crate) fn runs(&self, op: &Op, operands: &[OperandType<'_>]) -> bool {
        if self.is_complete && op.kind() != OpKind::Collective {
            return true;
        }
        native(&*self.engine).supports(op, operands)
    }

    /// Whether it may hold elements of a dtype.
    pub(crate) fn holds(&self, dtype: DType) -> bool {
        native(&*self.engine).caps().dtypes.contains(dtype)
    }

    pub(crate) fn count_op(&self) {
        self.ops.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn statistics(&self) -> MemberStatistics {
        MemberStatistics { name: self.name.clone(), ops: self.ops.load(Ordering::Relaxed) }
    }

    pub(crate) fn reset(&self) {
        self.ops.store(0, Ordering::Relaxed);
    }
}

/// The engine of the device, without the layer that claims to run every op.
pub(crate) fn native(engine: &dyn Engine) -> &dyn Engine {
    engine.find::<Expand>().map_or(engine, |layer| &**layer.inner())
}
