//! The recording: ops and the sources of their operands.

use crate::head_start::{Expected, PREFIX};
use crate::lazy::{Cell, take};
use crate::plan::{Plan, Structure};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use kiln_ir::{FxHasher, Op, Scalar, TensorType, Value};
use smallvec::SmallVec;

/// Ops that wait to run.
#[derive(Default)]
pub(crate) struct Recording {
    /// All entries, except for the ones that match the expected plan.
    pub(crate) entries: Vec<Entry>,
    /// The results of all entries, in order.
    pub(crate) cells: Vec<Arc<Cell>>,
    pub(crate) externals: Vec<External>,
    pub(crate) numbers: Vec<Scalar>,
    /// The hashes of the entries above, and of the types of externals.
    hashes: [u64; 2],
    /// The number of the first result, counted from the queue's first.
    pub(crate) first: u64,
    /// Addresses of externals, so that one value is one input.
    seen: BTreeMap<usize, u32>,
    /// The bytes of externals.
    pub(crate) external_bytes: usize,
    /// The hash of the first entries, once there are enough of them to predict the plan.
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
    /// A value that was there before.
    External(u32),
    /// A result of an entry, numbered through all entries.
    Result(u32),
    /// A plain number that may be another one the next time: its place is part of the structure.
    Number(u32),
    /// A plain number that is part of the structure.
    Constant(Scalar),
}

/// A value that was there before: of the engine below, or computed by an earlier plan.
pub(crate) struct External {
    pub(crate) ty: TensorType,
    held: Held,
}

enum Held {
    Value(Value),
    Cell(Arc<Cell>),
}

impl External {
    /// The value; the only clone if it has no other owner.
    pub(crate) fn into_value(self) -> Value {
        match self.held {
            Held::Value(value) => value,
            Held::Cell(cell) => take(cell),
        }
    }

    /// The value, if it is computed.
    pub(crate) fn ready(&self) -> Option<Value> {
        match &self.held {
            Held::Value(value) => Some(value.clone()),
            Held::Cell(cell) => cell.ready.get().cloned(),
        }
    }

    /// Whether the recording alone keeps it alive.
    pub(crate) fn is_kept_here(&self) -> bool {
        match &self.held {
            Held::Value(value) => value.is_unique(),
            Held::Cell(cell) => Arc::strong_count(cell) == 1,
        }
    }
}

impl Recording {
    /// The number of pending ops.
    pub(crate) fn len(&self) -> usize {
        match &self.expected {
            Expected::Plan(start) => start.entries(),
            Expected::Anything | Expected::Other(_) => self.entries.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an op whose operands are known; the cells of its results come next.
    pub(crate) fn add(&mut self, op: &Op, operands: SmallVec<[Source; 3]>, results: &[TensorType]) {
        if let Expected::Plan(start) = &mut self.expected {
            if start.goes_on((op, &operands, results), &self.externals) {
                return;
            }
            self.write_out();
        }
        self.push(Entry { op: op.clone(), operands, results: results.into() });
        if self.entries.len() == PREFIX {
            self.beginning = Some(self.hash());
        }
    }

    /// Writes down the entries that only the expected plan has, of which the recording is not.
    fn write_out(&mut self) {
        let Expected::Plan(start) = &self.expected else { return };
        let (plan, entries) = (start.plan().clone(), start.entries());
        self.expected = Expected::Other(start.steps());
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

    /// A value of the engine below.
    pub(crate) fn value(&mut self, value: Value) -> Source {
        self.external(value.address(), *value.ty(), || Held::Value(value))
    }

    /// A value that an earlier plan computed, or will have computed.
    pub(crate) fn ready(&mut self, cell: Arc<Cell>, ty: TensorType) -> Source {
        self.external(Arc::as_ptr(&cell).addr(), ty, || Held::Cell(cell))
    }

    fn external(&mut self, address: usize, ty: TensorType, held: impl FnOnce() -> Held) -> Source {
        let next = self.externals.len() as u32;
        let place = *self.seen.entry(address).or_insert(next);
        if place == next {
            let mut hasher = FxHasher::new(self.hashes[1]);
            ty.hash(&mut hasher);
            self.hashes[1] = hasher.finish();
            self.external_bytes = self.external_bytes.saturating_add(ty.num_bytes());
            self.externals.push(External { ty, held: held() });
        }
        Source::External(place)
    }

    /// The bytes of externals that only this recording keeps alive.
    pub(crate) fn kept_bytes(&self) -> usize {
        let kept = self.externals.iter().filter(|external| external.is_kept_here());
        kept.map(|external| external.ty.num_bytes()).sum()
    }

    /// Which results are live.
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
        let Expected::Plan(start) = &self.expected else { return None };
        let Structure { entries, externals, alive: planned } = &start.plan().structure;
        let is_whole = start.entries() == entries.len() && self.externals.len() == externals.len();
        (is_whole && alive == planned).then(|| start.plan())
    }

    /// The structure, of which entries are taken out, with its hash.
    pub(crate) fn structure(&mut self, alive: Vec<bool>) -> (u64, Structure) {
        self.write_out();
        let mut hasher = FxHasher::new(self.hash());
        alive.hash(&mut hasher);
        let externals = self.externals.iter().map(|external| external.ty).collect();
        let structure = Structure { entries: core::mem::take(&mut self.entries), externals, alive };
        (hasher.finish(), structure)
    }

    /// Takes the recording out; the results of the next one continue its numbering.
    pub(crate) fn take(&mut self) -> Recording {
        let first = self.first + self.cells.len() as u64;
        core::mem::replace(self, Recording { first, ..Recording::default() })
    }
}
