//! Plans made before, by structure, and the programs of their regions.

use crate::plan::{Plan, Structure};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use kiln_ir::{Mixer, Program};

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
    pub(crate) fn find(&self, hash: u64, structure: &Structure) -> Option<Arc<Plan>> {
        let mut kept = self.kept.iter();
        Some(kept.find(|kept| kept.hash == hash && kept.plan.structure == *structure)?.plan.clone())
    }

    /// Notes that a plan is used.
    pub(crate) fn touch(&mut self, plan: &Arc<Plan>) {
        self.clock += 1;
        if let Some(kept) = self.kept.iter_mut().find(|kept| Arc::ptr_eq(&kept.plan, plan)) {
            kept.used = self.clock;
        }
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

/// The programs of regions, each once: engines know what they compiled by a program's address, and the layers of a model are
/// all of a few programs.
#[derive(Default)]
pub(crate) struct Programs {
    by_hash: BTreeMap<u64, Vec<Weak<Program>>>,
    /// How many there may be before those that are gone are forgotten.
    bound: usize,
}

impl Programs {
    /// The same program, as it was seen first.
    pub(crate) fn shared(&mut self, program: &Arc<Program>) -> Arc<Program> {
        let mut hasher = Mixer::default();
        program.hash(&mut hasher);
        let same = self.by_hash.entry(hasher.finish()).or_default();
        if let Some(known) = same.iter().filter_map(Weak::upgrade).find(|known| *known == *program) {
            return known;
        }
        same.push(Arc::downgrade(program));
        self.forget();
        program.clone()
    }

    /// Forgets those that are gone, if there are many.
    fn forget(&mut self) {
        /// As many are worth looking through.
        const LEAST: usize = 256;
        if self.by_hash.len() <= self.bound.max(LEAST) {
            return;
        }
        self.by_hash.retain(|_, same| {
            same.retain(|program| program.strong_count() > 0);
            !same.is_empty()
        });
        self.bound = 2 * self.by_hash.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::{DType, TensorType};

    fn program(length: usize) -> Arc<Program> {
        let inputs = alloc::vec![TensorType::new([length], DType::F32)];
        Arc::new(Program { inputs, ..Program::default() })
    }

    #[test]
    fn equal_programs_are_one_for_as_long_as_somebody_has_it() {
        let mut programs = Programs::default();
        let first = programs.shared(&program(3));
        assert!(Arc::ptr_eq(&first, &programs.shared(&program(3))));
        assert!(!Arc::ptr_eq(&first, &programs.shared(&program(4))));
        for length in 0..2000 {
            programs.shared(&program(length));
        }
        assert!(programs.by_hash.len() < 600);
        assert!(Arc::ptr_eq(&first, &programs.shared(&program(3))));
    }
}
