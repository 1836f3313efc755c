//! Checkpointed blocks, whose intermediates are recomputed in the backward pass.

use crate::layer::Autodiff;
use crate::node::{Edge, Node, NodeKind, Parents};
use crate::tracked::{Parts, Tracked};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kiln_ir::{Error, Result, TensorType, Value};

/// The function of a block, on values of the layer.
pub type BlockFn = Arc<dyn Fn(Vec<Value>) -> Vec<Value> + Send + Sync>;

/// A recorded block, which can be run again.
#[derive(Clone)]
pub(crate) struct Block {
    run: BlockFn,
    /// The inner values of the inputs; the node's parents hold their edges.
    inputs: Vec<Value>,
    pub(crate) outputs: Vec<TensorType>,
}

impl Block {
    pub(crate) fn record(layer: &Autodiff, inputs: Vec<Value>, run: BlockFn) -> Vec<Value> {
        let results = run(inputs.clone());
        if !results.iter().any(|value| layer.is_tracked(value)) {
            return results;
        }
        let outputs = results.iter().map(|value| *value.ty()).collect();
        let (mut parents, mut kept) = (Parents::new(), Vec::with_capacity(inputs.len()));
        for value in inputs {
            match Tracked::open(value, layer.id()) {
                Ok(parts) => {
                    parents.push(Some(parts.edge));
                    kept.push(parts.inner);
                }
                Err(value) => {
                    parents.push(None);
                    kept.push(value);
                }
            }
        }
        let node = Node::new(parents, NodeKind::Block(Block { run, inputs: kept, outputs }));
        let wrap = |(output, value): (usize, Value)| match Tracked::open(value, layer.id()) {
            Ok(parts) => {
                let edge = Edge { node: node.clone(), output: output as u32 };
                Tracked::wrap(layer.id(), Parts { inner: parts.inner, edge, recompute: None }, false)
            }
            Err(value) => value,
        };
        results.into_iter().enumerate().map(wrap).collect()
    }

    /// Runs the block again, this time recording its ops.
    ///
    /// # Errors
    /// When it returns values of other types than the first time.
    pub(crate) fn rerun(self, layer: &Autodiff, parents: Parents) -> Result<Vec<Value>> {
        let wrap = |(inner, edge): (Value, Option<Edge>)| match edge {
            Some(edge) => Tracked::wrap(layer.id(), Parts { inner, edge, recompute: None }, true),
            None => inner,
        };
        let inputs = self.inputs.into_iter().zip(parents).map(wrap).collect();
        let results = layer.recording(|| (self.run)(inputs));
        let types: Vec<TensorType> = results.iter().map(|value| *value.ty()).collect();
        if types != self.outputs {
            let problem = format!("returned {types:?} when it ran again, {:?} the first time", self.outputs);
            return Err(Error::gradient("checkpoint", problem).hint(
                "the block must be deterministic: without mutable state, with random keys created outside",
            ));
        }
        Ok(results)
    }
}
