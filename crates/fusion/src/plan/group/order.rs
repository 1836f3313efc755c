//! What must run before what.
//!
//! Each group knows the groups that make what it needs, and which others must have run by then. The latter are known within a
//! window of groups only, so that what an entry takes does not grow with the recording: groups of a window that is over get no
//! more members, so that nothing leads from a later window back into it.

use super::Finder;
use alloc::vec::Vec;

/// The groups of a window. Few recordings have more.
const WINDOW: usize = 4096;

/// A set of groups of one window.
#[derive(Clone, Debug, Default)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    fn set(&mut self, group: usize) {
        let bit = group % WINDOW;
        if self.0.len() <= bit / 64 {
            self.0.resize(bit / 64 + 1, 0);
        }
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    fn clear(&mut self, group: usize) {
        let bit = group % WINDOW;
        if let Some(word) = self.0.get_mut(bit / 64) {
            *word &= !(1 << (bit % 64));
        }
    }

    fn has(&self, group: usize) -> bool {
        let bit = group % WINDOW;
        self.0.get(bit / 64).is_some_and(|word| word & (1 << (bit % 64)) != 0)
    }

    fn join(&mut self, other: &Bits) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }

    /// Whether all of these are among the others.
    fn is_within(&self, other: &Bits) -> bool {
        let others = other.0.iter().copied().chain(core::iter::repeat(0));
        self.0.iter().zip(others).all(|(word, other)| word & !other == 0)
    }
}

fn is_same_window(a: usize, b: usize) -> bool {
    a / WINDOW == b / WINDOW
}

impl Finder<'_> {
    /// Whether a group may still get members.
    pub(super) fn is_open(&self, group: usize) -> bool {
        is_same_window(group, self.groups.len())
    }

    /// Whether one group must run before another, of the same window.
    pub(super) fn comes_after(&self, later: usize, group: usize) -> bool {
        is_same_window(later, group) && self.groups[later].ancestors.has(group)
    }

    /// Whether a third group comes after `first` and before `second`.
    pub(super) fn is_between(&mut self, first: usize, second: usize) -> bool {
        let before = self.resolved(second);
        let found = before.iter().any(|&group| group != first && self.comes_after(group, first));
        self.groups[second].before = before;
        found
    }

    /// Whether two groups are so near that it is known what lies between.
    pub(super) fn are_near(&self, a: usize, b: usize) -> bool {
        is_same_window(a, b)
    }

    /// What a group is part of now.
    fn became(&mut self, mut group: usize) -> usize {
        while self.became[group] != group {
            self.became[group] = self.became[self.became[group]];
            group = self.became[group];
        }
        group
    }

    /// Takes out the groups that make what one needs: as they are now, each once.
    fn resolved(&mut self, group: usize) -> Vec<usize> {
        let mut before = core::mem::take(&mut self.groups[group].before);
        before.iter_mut().for_each(|maker| *maker = self.became(*maker));
        before.sort_unstable();
        before.dedup_by(|again, maker| {
            let is_again = again == maker;
            self.groups[*again].followers -= usize::from(is_again);
            is_again
        });
        before
    }

    /// Notes that a group needs what others make.
    pub(super) fn add_before(&mut self, group: usize, makers: &[usize]) {
        let mut before = self.resolved(group);
        let mut makers: Vec<usize> = makers.iter().copied().filter(|&maker| maker != group).collect();
        makers.sort_unstable();
        makers.dedup();
        makers.retain(|maker| before.binary_search(maker).is_err());
        let mut added = Bits::default();
        for &maker in &makers {
            self.groups[maker].followers += 1;
            if is_same_window(maker, group) {
                added.join(&self.groups[maker].ancestors);
                added.set(maker);
            }
        }
        before.extend(makers);
        self.groups[group].before = before;
        self.add_ancestors(group, &added);
    }

    /// Notes that groups come before one, and before all that come after it.
    fn add_ancestors(&mut self, group: usize, added: &Bits) {
        let state = &mut self.groups[group];
        if added.is_within(&state.ancestors) {
            return;
        }
        state.ancestors.join(added);
        if state.followers > 0 {
            for later in self.window_of(group) {
                if self.groups[later].ancestors.has(group) {
                    self.groups[later].ancestors.join(added);
                }
            }
        }
    }

    /// Notes that a group is part of another of its window: what came after the one that is gone comes after the one that is left.
    pub(super) fn become_part(&mut self, gone: usize, into: usize) {
        let mut before = self.resolved(into);
        let of_gone = self.resolved(gone);
        self.became[gone] = into;
        self.groups[into].followers += self.groups[gone].followers;
        for maker in of_gone {
            if before.contains(&maker) {
                self.groups[maker].followers -= 1;
            } else {
                before.push(maker);
            }
        }
        // Neither needs the other any more.
        let count = before.len();
        before.retain(|&maker| maker != gone && maker != into);
        self.groups[into].followers -= count - before.len();
        self.groups[into].before = before;
        let mut ancestors = core::mem::take(&mut self.groups[gone].ancestors);
        ancestors.join(&self.groups[into].ancestors);
        ancestors.clear(gone);
        ancestors.clear(into);
        if self.groups[into].followers > 0 {
            for later in self.window_of(into) {
                let later = &mut self.groups[later].ancestors;
                if later.has(gone) {
                    later.clear(gone);
                    later.set(into);
                }
                if later.has(into) {
                    later.join(&ancestors);
                }
            }
        }
        self.groups[into].ancestors = ancestors;
    }

    fn window_of(&self, group: usize) -> core::ops::Range<usize> {
        let first = group / WINDOW * WINDOW;
        first..self.groups.len().min(first + WINDOW)
    }

    /// Makes what each group needs name the groups as they are in the end.
    pub(super) fn settle_order(&mut self) {
        for group in 0..self.groups.len() {
            self.groups[group].before = self.resolved(group);
        }
    }
}
