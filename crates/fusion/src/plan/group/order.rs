//! Topological order of fusion groups, and cycle checks.
//!
//! Each group knows the groups that make its operands, and which others must have run by then. The latter are known within a
//! window of groups only, so that the cost of an entry does not grow with the recording: groups of a window that is over get no
//! more members, so that nothing leads from a later window back into it.

use super::Finder;
use alloc::vec::Vec;

/// The groups of a window. Few recordings have more.
const WINDOW: usize = 4096;

/// A set of groups of one window.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupSet(Vec<u64>);

impl GroupSet {
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

    fn join(&mut self, other: &GroupSet) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }

    /// Whether all of these are among the others.
    fn is_within(&self, other: &GroupSet) -> bool {
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

    /// Whether two groups are so near that the groups between them are known.
    pub(super) fn are_in_one_window(&self, a: usize, b: usize) -> bool {
        is_same_window(a, b)
    }

    /// The group that a group is part of now.
    fn became(&mut self, mut group: usize) -> usize {
        while self.became[group] != group {
            self.became[group] = self.became[self.became[group]];
            group = self.became[group];
        }
        group
    }

    /// Takes out the groups that make the operands of one: as they are now, each once.
    fn resolved(&mut self, group: usize) -> Vec<usize> {
        let mut before = core::mem::take(&mut self.groups[group].before);
        before.iter_mut().for_each(|maker| *maker = self.became(*maker));
        before.sort_unstable();
        before.dedup();
        before
    }

    /// Notes that a group needs results of others.
    pub(super) fn add_before(&mut self, group: usize, makers: &[usize]) {
        let mut before = self.resolved(group);
        let mut makers: Vec<usize> = makers.iter().copied().filter(|&maker| maker != group).collect();
        makers.sort_unstable();
        makers.dedup();
        makers.retain(|maker| before.binary_search(maker).is_err());
        let mut added = GroupSet::default();
        for &maker in makers.iter().filter(|&&maker| is_same_window(maker, group)) {
            self.groups[maker].followers.push(group);
            added.join(&self.groups[maker].ancestors);
            added.set(maker);
        }
        before.extend(makers);
        let state = &mut self.groups[group];
        state.before = before;
        if !added.is_within(&state.ancestors) {
            state.ancestors.join(&added);
            self.spread(group, &added, None);
        }
    }

    /// Records that a group was merged into another of its window: followers of the merged group follow the remaining
    /// one.
    pub(super) fn merge_into(&mut self, gone: usize, into: usize) {
        self.became[gone] = into;
        let before = core::mem::take(&mut self.groups[gone].before);
        self.groups[into].before.extend(before);
        let mut before = self.resolved(into);
        // Neither needs the other any more.
        before.retain(|&maker| maker != into);
        let followers = core::mem::take(&mut self.groups[gone].followers);
        let mut ancestors = core::mem::take(&mut self.groups[gone].ancestors);
        let state = &mut self.groups[into];
        ancestors.join(&state.ancestors);
        ancestors.clear(gone);
        ancestors.clear(into);
        state.before = before;
        state.followers.extend(followers);
        state.ancestors = ancestors.clone();
        ancestors.set(into);
        self.spread(into, &ancestors, Some(gone));
    }

    /// Adds ancestors to all groups that come after `group`, into which another was merged.
    fn spread(&mut self, group: usize, added: &GroupSet, gone: Option<usize>) {
        let mut left = alloc::vec![group];
        while let Some(group) = left.pop() {
            let mut followers = core::mem::take(&mut self.groups[group].followers);
            followers.iter_mut().for_each(|later| *later = self.became(*later));
            followers.sort_unstable();
            followers.dedup();
            followers.retain(|&later| later != group);
            for &later in &followers {
                let ancestors = &mut self.groups[later].ancestors;
                let had = gone.is_some_and(|gone| ancestors.has(gone));
                gone.into_iter().for_each(|gone| ancestors.clear(gone));
                // The groups after one that knows already know as well.
                if had || !added.is_within(ancestors) {
                    ancestors.join(added);
                    left.push(later);
                }
            }
            self.groups[group].followers = followers;
        }
    }

    /// Makes the operands of each group name the groups as they are in the end.
    pub(super) fn rename_merged(&mut self) {
        for group in 0..self.groups.len() {
            self.groups[group].before = self.resolved(group);
        }
    }
}
