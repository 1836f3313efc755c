//! The cache of compiled regions, by program and operand layouts.

use super::fused::Plan;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kiln_ir::{FusedOp, Instruction, Program};
use smallvec::SmallVec;

/// The default size limit of plans in bytes. Beyond it, the least recently used half is dropped. A region of ten
/// instructions takes about 5 KiB for each set of shapes and layouts.
const MAX_BYTES: usize = 128 << 20;

/// The kind and layout of an operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OperandLayout {
    /// A plain number.
    Number,
    /// A contiguous row-major tensor.
    Contiguous,
    /// A tensor with these strides.
    Strided(SmallVec<[isize; 6]>),
}

/// The layouts of a region's operands.
pub(super) type OperandLayouts = SmallVec<[OperandLayout; 8]>;

struct Entry {
    /// Keeps the program alive, so that no other program gets its address.
    op: FusedOp,
    layouts: OperandLayouts,
    plan: Arc<Plan>,
    /// The size of program and plan in bytes.
    bytes: usize,
    used: u64,
}

/// The plan cache of an engine.
#[derive(Default)]
pub(crate) struct Cache(lock::Lock<Plans>);

struct Plans {
    by_program: BTreeMap<usize, Vec<Entry>>,
    bytes: usize,
    most: usize,
    clock: u64,
}

impl Default for Plans {
    /// With the limit of the environment.
    fn default() -> Plans {
        #[cfg(feature = "std")]
        let set: Option<usize> =
            kiln_ir::setting("KILN_PLAN_CACHE_BYTES", "a number of bytes", |text| text.parse().ok());
        #[cfg(not(feature = "std"))]
        let set = None;
        Plans { by_program: BTreeMap::new(), bytes: 0, most: set.unwrap_or(MAX_BYTES), clock: 0 }
    }
}

impl Cache {
    /// Returns the plan for a region and operands, made on a cache miss.
    pub(super) fn plan(
        &self,
        op: &FusedOp,
        layouts: OperandLayouts,
        make: impl FnOnce(&OperandLayouts) -> Plan,
    ) -> Arc<Plan> {
        let key = address(op);
        if let Some(plan) = self.0.with(|plans| plans.find(op, &layouts)).flatten() {
            return plan;
        }
        let plan = Arc::new(make(&layouts));
        let bytes = size_of::<Entry>() + program_bytes(op.program()) + plan.bytes();
        let entry = Entry { op: op.clone(), layouts, plan: plan.clone(), bytes, used: 0 };
        self.0.with(|plans| plans.add(key, entry));
        plan
    }

    /// Sets the size limit in bytes, and drops plans above it.
    pub(crate) fn set_limit(&self, bytes: usize) {
        self.0.with(|plans| {
            plans.most = bytes;
            plans.make_room(0);
        });
    }

    /// The size of the cached plans in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.with(|plans| plans.bytes).unwrap_or(0)
    }

    /// The number of cached plans that are compiled.
    pub(crate) fn compiled(&self) -> usize {
        let count = |plans: &mut Plans| {
            plans.by_program.values().flatten().filter(|entry| entry.plan.is_compiled()).count()
        };
        self.0.with(count).unwrap_or(0)
    }
}

impl Plans {
    fn find(&mut self, op: &FusedOp, layouts: &OperandLayouts) -> Option<Arc<Plan>> {
        self.clock += 1;
        let entries = self.by_program.get_mut(&address(op))?;
        let entry = entries.iter_mut().find(|entry| entry.is_for(op, layouts))?;
        entry.used = self.clock;
        Some(entry.plan.clone())
    }

    fn add(&mut self, key: usize, entry: Entry) {
        self.make_room(entry.bytes);
        debug_assert!(address(&entry.op) == key);
        let entries = self.by_program.entry(key).or_default();
        // Another thread may have inserted it meanwhile.
        if !entries.iter().any(|other| other.is_for(&entry.op, &entry.layouts)) {
            self.bytes += entry.bytes;
            entries.push(Entry { used: self.clock, ..entry });
        }
    }

    /// Drops plans until so many bytes more are within the limit. A plan beyond the whole limit is the only one.
    fn make_room(&mut self, bytes: usize) {
        while self.bytes.saturating_add(bytes) > self.most && !self.by_program.is_empty() {
            self.shrink();
        }
    }

    /// Drops the least recently used half, at least one plan.
    fn shrink(&mut self) {
        let mut used: Vec<u64> = self.by_program.values().flatten().map(|entry| entry.used).collect();
        used.sort_unstable();
        let Some(&middle) = used.get(used.len() / 2) else { return };
        self.by_program.retain(|_, entries| {
            entries.retain(|entry| entry.used > middle);
            !entries.is_empty()
        });
        self.bytes = self.by_program.values().flatten().map(|entry| entry.bytes).sum();
    }
}

impl Entry {
    /// Whether the entry is for this region and these operands; the program is the key.
    fn is_for(&self, op: &FusedOp, layouts: &OperandLayouts) -> bool {
        self.layouts == *layouts && self.op.pattern() == op.pattern()
    }
}

/// The address of the program, which regions share.
fn address(op: &FusedOp) -> usize {
    Arc::as_ptr(op.shared()).addr()
}

pub(super) fn program_bytes(program: &Program) -> usize {
    let instructions = program.instructions.iter().map(|instruction| {
        size_of::<Instruction>()
            + size_of_val(&instruction.operands[..])
            + size_of_val(&instruction.results[..])
    });
    size_of_val(&program.inputs[..]) + instructions.sum::<usize>()
}

#[cfg(feature = "std")]
mod lock {
    use std::sync::{Mutex, PoisonError};

    /// A mutex.
    #[derive(Default)]
    pub(crate) struct Lock<T>(Mutex<T>);

    impl<T> Lock<T> {
        /// Calls `body` with the value.
        pub(crate) fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
            Some(body(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
        }
    }
}

#[cfg(not(feature = "std"))]
mod lock {
    use core::cell::UnsafeCell;
    use core::sync::atomic::{AtomicBool, Ordering};

    /// A try-lock: a value for one thread at a time. It never blocks: a second thread gets `None`.
    #[derive(Default)]
    pub(crate) struct Lock<T> {
        taken: AtomicBool,
        value: UnsafeCell<T>,
    }

    // SAFETY: `with` gives access to one thread at a time.
    unsafe impl<T: Send> Sync for Lock<T> {}

    impl<T> Lock<T> {
        /// Calls `body` with the value; `None` if another thread is using it.
        pub(crate) fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
            if self.taken.swap(true, Ordering::Acquire) {
                return None;
            }
            // SAFETY: `taken` was not set before, and is set now.
            let result = body(unsafe { &mut *self.value.get() });
            self.taken.store(false, Ordering::Release);
            Some(result)
        }
    }
}

pub(super) use lock::Lock;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(op: &FusedOp, bytes: usize) -> Entry {
        let plan = Arc::new(Plan::Unfused);
        Entry { op: op.clone(), layouts: OperandLayouts::new(), plan, bytes, used: 0 }
    }

    #[test]
    fn least_recently_used_plans_are_evicted_above_a_byte_limit() {
        let mut plans = Plans { most: 100, ..Plans::default() };
        let ops: Vec<FusedOp> = (0..1000).map(|_| FusedOp::new(Program::default())).collect();
        for number in 0..1000 {
            plans.add(address(&ops[number]), entry(&ops[number], 10));
            assert!(plans.find(&ops[number], &OperandLayouts::new()).is_some());
            assert!(plans.find(&ops[0], &OperandLayouts::new()).is_some(), "the first is used all the time");
            let kept: usize = plans.by_program.values().map(Vec::len).sum();
            assert!(plans.bytes <= 100 && plans.bytes == 10 * kept, "{} bytes of {kept}", plans.bytes);
        }
        assert!(plans.find(&ops[1], &OperandLayouts::new()).is_none());
        assert!(plans.find(&ops[998], &OperandLayouts::new()).is_some());
    }

    #[test]
    fn large_plans_and_lower_limits_evict_as_many_as_needed() {
        let mut plans = Plans { most: 100, ..Plans::default() };
        let ops: Vec<FusedOp> = (0..12).map(|_| FusedOp::new(Program::default())).collect();
        let add = |plans: &mut Plans, number: usize, bytes| {
            plans.add(address(&ops[number]), entry(&ops[number], bytes));
            assert!(plans.find(&ops[number], &OperandLayouts::new()).is_some());
        };
        (0..10).for_each(|number| add(&mut plans, number, 10));
        assert_eq!(plans.bytes, 100);
        add(&mut plans, 10, 95);
        assert_eq!((plans.bytes, plans.by_program.len()), (95, 1), "half of the others would be too many");
        add(&mut plans, 11, 1000);
        assert_eq!((plans.bytes, plans.by_program.len()), (1000, 1), "the newest stays");
        let cache = Cache::default();
        cache.0.with(|kept| *kept = plans);
        cache.set_limit(999);
        assert_eq!(cache.bytes(), 0);
    }
}
