//! The plan cache, by recording structure, and the programs of its regions.

use crate::plan::{Plan, Structure, Template};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use kiln_ir::{FxHasher, Program};

/// The default size limit of the plan cache in bytes; the least recently used plan is evicted. A training step of some
/// 1,500 ops takes about 0.8 MiB for each set of shapes.
const MAX_BYTES: usize = 384 << 20;

/// The plan cache: plans by exact structure, and templates for structures of other lengths.
pub(crate) struct Plans {
    plans: LruCache<Arc<Plan>>,
    /// Each counted with its plan.
    templates: LruCache<Arc<Template>>,
}

impl Default for Plans {
    /// With the limit of the environment.
    fn default() -> Plans {
        #[cfg(feature = "std")]
        let set: Option<usize> =
            kiln_ir::setting("KILN_PLAN_CACHE_BYTES", "a number of bytes", |text| text.parse().ok());
        #[cfg(not(feature = "std"))]
        let set = None;
        let mut plans = Plans { plans: LruCache::new(0), templates: LruCache::new(0) };
        plans.set_limit(set.unwrap_or(MAX_BYTES));
        plans
    }
}

impl Plans {
    /// Sets the size limit in bytes, of which templates may take a third, and evicts entries beyond it. The newest plan and
    /// the newest template always stay.
    pub(crate) fn set_limit(&mut self, bytes: usize) {
        self.templates.set_limit(bytes / 3);
        self.plans.set_limit(bytes - bytes / 3);
    }

    /// The plan of an equal structure.
    pub(crate) fn find(&mut self, hash: u64, structure: &Structure) -> Option<Arc<Plan>> {
        self.plans.find(hash, |plan| plan.structure == *structure)
    }

    /// Marks a plan as recently used.
    pub(crate) fn touch(&mut self, plan: &Arc<Plan>) {
        self.plans.find(plan.hash, |other| Arc::ptr_eq(other, plan));
    }

    /// Adds a plan under its hash.
    pub(crate) fn add(&mut self, plan: Arc<Plan>) {
        self.plans.add(plan.hash, plan.bytes(), plan);
    }

    /// The templates with this likeness hash, seldom more than one.
    pub(crate) fn templates(&mut self, signature: u64) -> Vec<Arc<Template>> {
        self.templates.all(signature)
    }

    pub(crate) fn add_template(&mut self, template: Arc<Template>) {
        self.templates.add(template.hash(), template.bytes(), template);
    }

    /// The total size of plans and templates in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.plans.bytes + self.templates.bytes
    }
}

/// An LRU cache by hash with a limit in bytes. The newest entry is never evicted, however large it is.
struct LruCache<T> {
    by_hash: BTreeMap<u64, Vec<CacheEntry<T>>>,
    /// The hashes of all entries, by the time of their last use.
    by_use: BTreeMap<u64, u64>,
    bytes: usize,
    most: usize,
    clock: u64,
}

struct CacheEntry<T> {
    what: T,
    bytes: usize,
    used: u64,
}

impl<T: Clone> LruCache<T> {
    fn new(most: usize) -> LruCache<T> {
        LruCache { by_hash: BTreeMap::new(), by_use: BTreeMap::new(), bytes: 0, most, clock: 0 }
    }

    /// Finds an entry by hash and predicate, and marks it as used.
    fn find(&mut self, hash: u64, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let kept = self.by_hash.get_mut(&hash)?.iter_mut().find(|kept| is_it(&kept.what))?;
        self.by_use.remove(&kept.used);
        self.clock += 1;
        kept.used = self.clock;
        self.by_use.insert(self.clock, hash);
        Some(kept.what.clone())
    }

    /// All entries with a hash; marks them as used.
    fn all(&mut self, hash: u64) -> Vec<T> {
        let Some(same) = self.by_hash.get_mut(&hash) else { return Vec::new() };
        for kept in same.iter_mut() {
            self.by_use.remove(&kept.used);
            self.clock += 1;
            kept.used = self.clock;
            self.by_use.insert(self.clock, hash);
        }
        same.iter().map(|kept| kept.what.clone()).collect()
    }

    fn add(&mut self, hash: u64, bytes: usize, what: T) {
        self.clock += 1;
        self.bytes += bytes;
        self.by_hash.entry(hash).or_default().push(CacheEntry { what, bytes, used: self.clock });
        self.by_use.insert(self.clock, hash);
        self.set_limit(self.most);
    }

    /// Sets the limit and evicts the least recently used entries above it.
    fn set_limit(&mut self, most: usize) {
        self.most = most;
        while self.bytes > self.most && self.by_use.len() > 1 {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((used, hash)) = self.by_use.pop_first() else { return };
        let Some(same) = self.by_hash.get_mut(&hash) else { return };
        if let Some(place) = same.iter().position(|kept| kept.used == used) {
            self.bytes -= same.swap_remove(place).bytes;
        }
        if same.is_empty() {
            self.by_hash.remove(&hash);
        }
    }
}

/// The programs of regions, deduplicated. Engines cache compiled kernels by a program's address, and the layers of a
/// model share a few programs.
#[derive(Default)]
pub(crate) struct Programs {
    by_hash: BTreeMap<u64, Vec<Weak<Program>>>,
    /// The number of entries at which expired entries are removed.
    bound: usize,
}

impl Programs {
    /// The canonical instance of a program: the first equal one.
    pub(crate) fn shared(&mut self, program: &Arc<Program>) -> Arc<Program> {
        let mut hasher = FxHasher::default();
        program.hash(&mut hasher);
        let same = self.by_hash.entry(hasher.finish()).or_default();
        if let Some(known) = same.iter().filter_map(Weak::upgrade).find(|known| *known == *program) {
            return known;
        }
        same.push(Arc::downgrade(program));
        self.forget();
        program.clone()
    }

    /// Removes expired entries if the bound is reached.
    fn forget(&mut self) {
        /// The minimum bound: fewer entries are not worth a sweep.
        const MIN_BOUND: usize = 256;
        if self.by_hash.len() <= self.bound.max(MIN_BOUND) {
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
    fn least_recently_used_entries_are_evicted_above_a_byte_limit() {
        let mut recent = LruCache::new(100);
        for number in 0..10 {
            recent.add(number / 2, 10, number);
        }
        assert_eq!((recent.bytes, recent.by_use.len()), (100, 10));
        assert_eq!(recent.find(0, |&number| number == 0), Some(0));
        recent.add(7, 25, 10);
        assert_eq!(recent.bytes, 95);
        assert_eq!(recent.all(0), [0], "1 went, and 0 was used");
        assert_eq!(recent.all(1), [], "2 and 3 went");
        assert_eq!(recent.all(2), [4, 5]);
        recent.add(8, 1000, 11);
        assert_eq!((recent.bytes, recent.by_use.len(), recent.by_hash.len()), (1000, 1, 1));
        assert_eq!(recent.find(8, |_| true), Some(11), "the last stays");
        assert_eq!(recent.find(7, |_| true), None);
    }

    #[test]
    fn a_lower_limit_evicts_at_once_and_zero_leaves_the_newest() {
        let mut recent = LruCache::new(usize::MAX);
        (0..10).for_each(|number| recent.add(number, 10, number));
        recent.set_limit(50);
        assert_eq!((recent.bytes, recent.by_use.len(), recent.by_hash.len()), (50, 5, 5));
        recent.set_limit(49);
        assert_eq!(recent.bytes, 40);
        recent.set_limit(0);
        assert_eq!((recent.bytes, recent.find(9, |_| true)), (10, Some(9)));
    }

    #[test]
    fn equal_programs_are_interned_while_referenced() {
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
