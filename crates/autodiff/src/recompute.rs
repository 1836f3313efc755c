//! Activation checkpointing: cheap values are recomputed in the backward pass instead of saved.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use kiln_ir::{CHEAP, Engine, Op, Operand, Operands, TensorType, Value};
use smallvec::SmallVec;

/// The maximum length of a chain of recomputed ops. Deeper values are saved, which bounds the work and the stack depth
/// of recomputation.
const MAX_DEPTH: u32 = 16;

/// An op that the backward pass runs again, on saved or recomputed inputs.
pub(crate) struct Recompute {
    op: Op,
    inputs: SmallVec<[RecomputeInput; 2]>,
    pub(crate) ty: TensorType,
    depth: u32,
    /// Bytes that are kept alive only for this recomputation.
    cost: usize,
}

/// An input of a [`Recompute`].
pub(crate) enum RecomputeInput {
    Operand(Operand),
    Recompute(Arc<Recompute>),
}

impl Recompute {
    /// The recomputation of the only result of an op. `extra`: bytes of inputs that would otherwise be freed. `None` if
    /// recomputation would not save memory, or is too expensive.
    pub(crate) fn new(
        op: &Op,
        inputs: SmallVec<[RecomputeInput; 2]>,
        extra: usize,
        ty: TensorType,
    ) -> Option<Arc<Recompute>> {
        let recomputes = || {
            inputs.iter().filter_map(|input| match input {
                RecomputeInput::Recompute(recompute) => Some(recompute),
                RecomputeInput::Operand(_) => None,
            })
        };
        let cost = recomputes().map(|recompute| recompute.cost).fold(extra, usize::saturating_add);
        let depth = recomputes().map(|recompute| recompute.depth + 1).max().unwrap_or(0);
        if cost >= ty.num_bytes() || depth > MAX_DEPTH {
            return None;
        }
        Some(Arc::new(Recompute { op: op.clone(), inputs, ty, depth, cost }))
    }
}

/// Values recomputed during one backward pass, each once for all its uses.
#[derive(Default)]
pub(crate) struct Recomputed {
    values: BTreeMap<usize, Entry>,
}

struct Entry {
    value: Value,
    /// The number of remaining uses; the value is freed after the last.
    uses: usize,
    /// Keeps the allocation alive, since its address is the key of the entry.
    _recompute: Arc<Recompute>,
}

impl Recomputed {
    pub(crate) fn get(&mut self, engine: &dyn Engine, recompute: &Arc<Recompute>) -> Value {
        let key = Arc::as_ptr(recompute).addr();
        if let Some(entry) = self.values.get_mut(&key) {
            entry.uses -= 1;
            let value = entry.value.clone();
            if entry.uses == 0 {
                self.values.remove(&key);
            }
            return value;
        }
        let operand = |input: &RecomputeInput| match input {
            RecomputeInput::Operand(operand) => operand.clone(),
            RecomputeInput::Recompute(recompute) => self.get(engine, recompute).into(),
        };
        let inputs: Operands = recompute.inputs.iter().map(operand).collect();
        let value = engine.execute(&recompute.op, inputs, &[recompute.ty]).remove(0);
        // Every owner except the caller is a possible later use.
        let uses = Arc::strong_count(recompute) - 1;
        if uses > 0 {
            self.values.insert(key, Entry { value: value.clone(), uses, _recompute: recompute.clone() });
        }
        value
    }
}

/// Whether an op is memory-bound, so that recomputing its result costs little more than reading it.
pub(crate) fn is_cheap(op: &Op) -> bool {
    if let Op::Custom(custom) = op { custom.is_cheap() } else { op.is(CHEAP) }
}
