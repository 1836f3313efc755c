//! Compiled regions, by program and by how the operands lie in memory.

use super::fused::Plan;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kiln_ir::Program;
use smallvec::SmallVec;

/// Plans that are kept at most. When there are more, the half that was not used for the longest time is dropped.
const MOST_PLANS: usize = 1024;

/// How an operand is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// A plain number.
    Number,
    /// A tensor in row-major order without gaps.
    Contiguous,
    /// A tensor with these strides.
    Strided(SmallVec<[isize; 6]>),
}

/// The operands of a region.
pub(super) type AllGiven = SmallVec<[Given; 8]>;

struct Entry {
    /// Held, so that no other program gets its address.
    program: Arc<Program>,
    given: AllGiven,
    plan: Arc<Plan>,
    used: u64,
}

/// The plans of an engine.
#[derive(Default)]
pub(crate) struct Cache(lock::Lock<Plans>);

#[derive(Default)]
struct Plans {
    by_program: BTreeMap<usize, Vec<Entry>>,
    count: usize,
    clock: u64,
}

impl Cache {
    /// The plan for a program and operands, made if it is not there.
    pub(super) fn plan(
        &self,
        program: &Arc<Program>,
        given: AllGiven,
        make: impl FnOnce(&AllGiven) -> Plan,
    ) -> Arc<Plan> {
        let key = Arc::as_ptr(program).addr();
        if let Some(plan) = self.0.with(|plans| plans.find(key, &given)).flatten() {
            return plan;
        }
        let plan = Arc::new(make(&given));
        let entry = Entry { program: program.clone(), given, plan: plan.clone(), used: 0 };
        self.0.with(|plans| plans.add(key, entry));
        plan
    }

    /// The number of plans that are kept and compiled.
    pub(crate) fn compiled(&self) -> usize {
        let count = |plans: &mut Plans| {
            plans.by_program.values().flatten().filter(|entry| entry.plan.is_compiled()).count()
        };
        self.0.with(count).unwrap_or(0)
    }
}

impl Plans {
    fn find(&mut self, key: usize, given: &AllGiven) -> Option<Arc<Plan>> {
        self.clock += 1;
        let entry = self.by_program.get_mut(&key)?.iter_mut().find(|entry| entry.given == *given)?;
        entry.used = self.clock;
        Some(entry.plan.clone())
    }

    fn add(&mut self, key: usize, entry: Entry) {
        if self.count >= MOST_PLANS {
            self.shrink();
        }
        debug_assert!(Arc::as_ptr(&entry.program).addr() == key);
        let entries = self.by_program.entry(key).or_default();
        // Another thread may have been faster.
        if entries.iter().all(|other| other.given != entry.given) {
            entries.push(Entry { used: self.clock, ..entry });
            self.count += 1;
        }
    }

    fn shrink(&mut self) {
        let mut used: Vec<u64> = self.by_program.values().flatten().map(|entry| entry.used).collect();
        used.sort_unstable();
        let Some(&middle) = used.get(used.len() / 2) else { return };
        self.by_program.retain(|_, entries| {
            entries.retain(|entry| entry.used > middle);
            !entries.is_empty()
        });
        self.count = self.by_program.values().map(Vec::len).sum();
    }
}

#[cfg(feature = "std")]
mod lock {
    use std::sync::{Mutex, PoisonError};

    /// A value for one thread at a time.
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

    /// A value for one thread at a time. Nobody waits: whoever comes second does without.
    #[derive(Default)]
    pub(crate) struct Lock<T> {
        taken: AtomicBool,
        value: UnsafeCell<T>,
    }

    // SAFETY: `with` lets one thread at a time to the value.
    unsafe impl<T: Send> Sync for Lock<T> {}

    impl<T> Lock<T> {
        /// Calls `body` with the value, unless somebody else does just now.
        pub(crate) fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
            if self.taken.swap(true, Ordering::Acquire) {
                return None;
            }
            // SAFETY: `taken` was not set, and is set now.
            let result = body(unsafe { &mut *self.value.get() });
            self.taken.store(false, Ordering::Release);
            Some(result)
        }
    }
}

pub(super) use lock::Lock;
