//! Bodies of loops: planned once, however many steps a loop has.

use crate::layer::{Fusion, Shared};
use crate::lazy::into_inner;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::sync::atomic::Ordering;
use kiln_ir::{
    BoxFuture, Caps, Engine, FxHasher, LoopOp, Op, Operand, OperandType, Operands, Program, Recorder, Result,
    TensorData, TensorType, Value, Values,
};

/// The maximum number of cached bodies. A full cache starts empty.
const MAX_BODIES: usize = 1024;

/// A body, and the body of fused regions that replaces it.
type Replacement = (Arc<Program>, Arc<Program>);

/// Bodies of loops by content.
#[derive(Default)]
pub(crate) struct Bodies {
    by_hash: BTreeMap<u64, Vec<Replacement>>,
    count: usize,
}

impl Bodies {
    fn find(&self, hash: u64, body: &Arc<Program>) -> Option<Arc<Program>> {
        let same = self.by_hash.get(&hash)?;
        same.iter().find(|(other, _)| other == body).map(|(_, fused)| fused.clone())
    }

    fn add(&mut self, hash: u64, body: Arc<Program>, fused: Arc<Program>) {
        if self.count >= MAX_BODIES {
            *self = Bodies::default();
        }
        self.count += 1;
        self.by_hash.entry(hash).or_default().push((body, fused));
    }
}

impl Shared {
    /// The loop with a fused body.
    pub(crate) fn with_fused_body(&self, looped: &LoopOp) -> LoopOp {
        let mut hasher = FxHasher::default();
        looped.body().hash(&mut hasher);
        let hash = hasher.finish();
        let known = self.bodies.lock().find(hash, looped.shared());
        let fused = known.unwrap_or_else(|| {
            self.counters.bodies_planned.fetch_add(1, Ordering::Relaxed);
            let fused = self.fused_body(looped.shared());
            self.bodies.lock().add(hash, looped.shared().clone(), fused.clone());
            fused
        });
        looped.with_body(fused).unwrap_or_else(|_| looped.clone())
    }

    /// Runs a body on a layer with the limits of this one, around a recorder: the recorded steps are those of its plan.
    fn fused_body(&self, body: &Arc<Program>) -> Arc<Program> {
        let recorder = Recorder::new(&body.inputs);
        let inputs = recorder.inputs();
        let planned = Arc::new(Planned { recorder, inner: self.inner.clone() });
        let layer = Fusion::planning(self, planned.clone());
        let results = body.run(&layer, inputs.into_iter().collect());
        let outputs: Vec<Operand> = results.into_iter().map(|value| into_inner(value).into()).collect();
        let is_poisoned = |output: &Operand| output.value().is_some_and(|value| value.error().is_some());
        match outputs.iter().any(is_poisoned) {
            true => body.clone(),
            false => Arc::new(planned.recorder.finish(&outputs)),
        }
    }
}

/// A recorder with the capabilities of the engine that will run the program.
struct Planned {
    recorder: Recorder,
    inner: Arc<dyn Engine>,
}

impl Engine for Planned {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        self.recorder.execute(op, inputs, results)
    }

    fn supports(&self, op: &Op, operands: &[OperandType<'_>]) -> bool {
        crate::layer::supports_natively(&self.inner, op, operands)
    }

    fn write(&self, data: TensorData) -> Value {
        self.recorder.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.recorder.read(value)
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
