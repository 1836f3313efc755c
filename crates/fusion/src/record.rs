//! The recording: pending ops and the sources of their operands.

use crate::lazy::{Cell, take};
use crate::plan::{Plan, Structure};
use crate::speculative_run::{Expected, PREFIX};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use kiln_ir::{FxHasher, Op, Scalar, TensorType, Value};
use smallvec::SmallVec;

/// Pending ops in program order.
#[derive(Default)]
pub(crate) struct Recording {
    /// All entries, except for the ones that match the expected plan.
    pub(crate) entries: Vec<Entry>,
    /// The results of all entries, in order.
    pub(crate) cells: Vec<Arc<Cell>>,
    pub(crate) externals: Vec<External>,
    pub(crate) numbers: Vec<Scalar>,
    /// The running hashes of the entries and of the types of externals.
    hashes: [u64; 2],
    /// The index of the first result among all results of the queue.
    pub(crate) first: u64,
    /// Addresses of externals, which deduplicate inputs.
    seen: BTreeMap<usize, u32>,
    /// The total size of externals in bytes.
    pub(crate) external_bytes: usize,
    /// The hash of the first entries, once there are enough entries to predict a plan.
    pub(crate) beginning: Option<u64>,
    pub(crate) expected: Expected,
}

/// A recorded op.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) op: Op,
    pub(crate) operands: SmallVec<[Source; 3]>,
    pub(crate) results: SmallVec<[TensorType; 1]>,
}

/// The source of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// A value from outside the recording.
    External(u32),
    /// A result of this recording, by its index among all results.
    Result(u32),
    /// A plain number that may change between recordings; only its position is part of the structure.
    Number(u32),
    /// A plain number that is part of the structure (a constant).
    Constant(Scalar),
}

/// A value from outside the recording: a value of the engine below, or a result of an earlier recording.
pub(crate) struct External {
    pub(crate) ty: TensorType,
    value: ExternalValue,
}

enum ExternalValue {
    Value(Value),
    Cell(Arc<Cell>),
}

impl External {
    /// Converts to the engine's value; without aliases if it has no other owner.
    pub(crate) fn into_value(self) -> Value {
        match self.value {
            ExternalValue::Value(value) => value,
            ExternalValue::Cell(cell) => take(cell),
        }
    }

    /// The engine's value, if it is computed.
    pub(crate) fn ready(&self) -> Option<Value> {
        match &self.value {
            ExternalValue::Value(value) => Some(value.clone()),
            ExternalValue::Cell(cell) => cell.ready.get().cloned(),
        }
    }

    /// Whether only the recording keeps the value alive.
    pub(crate) fn is_kept_here(&self) -> bool {
        match &self.value {
            ExternalValue::Value(value) => value.is_unique(),
            ExternalValue::Cell(cell) => Arc::strong_count(cell) == 1,
        }
    }
}

impl Recording {
    /// The number of pending ops.
    pub(crate) fn len(&self) -> usize {
        match &self.expected {
            Expected::Plan(run) => run.entries(),
            Expected::Anything | Expected::Other(_) => self.entries.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends an op with resolved operands; the caller appends the cells of its results.
    pub(crate) fn add(&mut self, op: &Op, operands: SmallVec<[Source; 3]>, results: &[TensorType]) {
        if let Expected::Plan(run) = &mut self.expected {
            if run.matches_next((op, &operands, results), &self.externals) {
                return;
            }
            self.write_out();
        }
        self.push(Entry { op: op.clone(), operands, results: results.into() });
        if self.entries.len() == PREFIX {
            self.beginning = Some(self.hash());
        }
    }

    /// Materializes the entries that match the expected plan and were not stored.
    fn write_out(&mut self) {
        let Expected::Plan(run) = &self.expected else { return };
        let (plan, entries) = (run.plan().clone(), run.entries());
        self.expected = Expected::Other(run.steps());
        for entry in &plan.structure.entries[self.entries.len()..entries] {
            self.push(entry.clone());
        }
    }

    fn push(&mut self, entry: Entry) {
        let mut hasher = FxHasher::new(self.hashes[0]);
        entry.hash(&mut hasher);
        self.hashes[0] = hasher.finish();
        self.entries.push(entry);
    }

    pub(crate) fn number(&mut self, scalar: Scalar) -> Source {
        self.numbers.push(scalar);
        Source::Number((self.numbers.len() - 1) as u32)
    }

    /// The source for a value of the engine below.
    pub(crate) fn value(&mut self, value: Value) -> Source {
        self.external(value.address(), *value.ty(), || ExternalValue::Value(value))
    }

    /// The source for a result of an earlier recording, computed or still running.
    pub(crate) fn ready(&mut self, cell: Arc<Cell>, ty: TensorType) -> Source {
        self.external(Arc::as_ptr(&cell).addr(), ty, || ExternalValue::Cell(cell))
    }

    fn external(&mut self, address: usize, ty: TensorType, value: impl FnOnce() -> ExternalValue) -> Source {
        let next = self.externals.len() as u32;
        let place = *self.seen.entry(address).or_insert(next);
        if place == next {
            let mut hasher = FxHasher::new(self.hashes[1]);
            ty.hash(&mut hasher);
            self.hashes[1] = hasher.finish();
            self.external_bytes = self.external_bytes.saturating_add(ty.num_bytes());
            self.externals.push(External { ty, value: value() });
        }
        Source::External(place)
    }

    /// The bytes of externals that only this recording keeps alive.
    pub(crate) fn kept_bytes(&self) -> usize {
        let kept = self.externals.iter().filter(|external| external.is_kept_here());
        kept.map(|external| external.ty.num_bytes()).sum()
    }

    /// The liveness of each result.
    pub(crate) fn alive(&self) -> Vec<bool> {
        self.cells.iter().map(|cell| Arc::strong_count(cell) > 1).collect()
    }

    fn hash(&self) -> u64 {
        let mut hasher = FxHasher::default();
        self.hashes.hash(&mut hasher);
        hasher.finish()
    }

    /// The expected plan, if it matches the whole recording.
    pub(crate) fn plan(&self, alive: &[bool]) -> Option<&Arc<Plan>> {
        let Expected::Plan(run) = &self.expected else { return None };
        let Structure { entries, externals, alive: planned } = &run.plan().structure;
        let is_complete = run.entries() == entries.len() && self.externals.len() == externals.len();
        (is_complete && alive == planned).then(|| run.plan())
    }

    /// Moves out the entries as a plan-cache structure, with its hash.
    pub(crate) fn structure(&mut self, alive: Vec<bool>) -> (u64, Structure) {
        self.write_out();
        let mut hasher = FxHasher::new(self.hash());
        alive.hash(&mut hasher);
        let externals = self.externals.iter().map(|external| external.ty).collect();
        let structure = Structure { entries: core::mem::take(&mut self.entries), externals, alive };
        (hasher.finish(), structure)
    }

    /// Moves out the recording; the next recording continues the numbering of results.
    pub(crate) fn take(&mut self) -> Recording {
        let first = self.first + self.cells.len() as u64;
        core::mem::replace(self, Recording { first, ..Recording::default() })
    }
}
