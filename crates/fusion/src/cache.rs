//! Plans made before, by structure.

use crate::plan::{Plan, Structure};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// More plans than this are not kept: the one that was not used for longest goes.
const MAX_PLANS: usize = 128;

/// The entries of all plans together. A plan of a huge region may push out many small ones.
const MAX_ENTRIES: usize = 1 << 17;

#[derive(Default)]
pub(crate) struct Plans {
    kept: Vec<Kept>,
    entries: usize,
    clock: u64,
}

struct Kept {
    hash: u64,
    plan: Arc<Plan>,
    used: u64,
}

impl Plans {
    /// The plan of exactly this structure.
    pub(crate) fn find(&mut self, hash: u64, structure: &Structure) -> Option<Arc<Plan>> {
        self.clock += 1;
        let clock = self.clock;
        let kept =
            self.kept.iter_mut().find(|kept| kept.hash == hash && kept.plan.structure == *structure)?;
        kept.used = clock;
        Some(kept.plan.clone())
    }

    pub(crate) fn add(&mut self, hash: u64, plan: Arc<Plan>) {
        self.clock += 1;
        self.entries += plan.structure.entries.len();
        self.kept.push(Kept { hash, plan, used: self.clock });
        while self.kept.len() > 1 && (self.kept.len() > MAX_PLANS || self.entries > MAX_ENTRIES) {
            let oldest = (0..self.kept.len()).min_by_key(|&i| self.kept[i].used).unwrap_or(0);
            let gone = self.kept.swap_remove(oldest);
            self.entries -= gone.plan.structure.entries.len();
        }
    }
}
