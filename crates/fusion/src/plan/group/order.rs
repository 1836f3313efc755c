//! Topological order of fusion groups, and cycle checks.
//!
//! Each group has a list of the groups that produce its operands, and a set of its ancestors. Ancestor sets cover only
//! a window of groups, so the cost per entry does not grow with the recording. Groups of a closed window get no more
//! members, so no later window leads back into it.

use super::Finder;
use alloc::vec::Vec;

/// The number of groups per window. Few recordings have more groups.
const WINDOW: usize = 4096;

/// A bit set of groups of one window.
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

    /// Whether this is a subset of another set.
    fn is_within(&self, other: &GroupSet) -> bool {
        let others = other.0.iter().copied().chain(core::iter::repeat(0));
        self.0.iter().zip(others).all(|(word, other)| word & !other == 0)
    }
}

fn is_same_window(a: usize, b: usize) -> bool {
    a / WINDOW == b / WINDOW
}

impl Finder<'_> {
    /// Whether the group's window is open, so that it may get members.
    pub(super) fn is_open(&self, group: usize) -> bool {
        is_same_window(group, self.groups.len())
    }

    /// Whether `group` is an ancestor of `later` in the same window.
    pub(super) fn comes_after(&self, later: usize, group: usize) -> bool {
        is_same_window(later, group) && self.groups[later].ancestors.has(group)
    }

    /// Whether a path from `first` to `second` leads through a third group.
    pub(super) fn is_between(&mut self, first: usize, second: usize) -> bool {
        let before = self.resolved(second);
        let found = before.iter().any(|&group| group != first && self.comes_after(group, first));
        self.groups[second].before = before;
        found
    }

    /// Whether two groups are in one window, so that paths between them are known.
    pub(super) fn are_in_one_window(&self, a: usize, b: usize) -> bool {
        is_same_window(a, b)
    }

    /// The group that a group has been merged into; itself if none (union-find with path halving).
    fn became(&mut self, mut group: usize) -> usize {
        while self.became[group] != group {
            self.became[group] = self.became[self.became[group]];
            group = self.became[group];
        }
        group
    }

    /// Takes the predecessors of a group, each replaced by the group it was merged into, without duplicates.
    fn resolved(&mut self, group: usize) -> Vec<usize> {
        let mut before = core::mem::take(&mut self.groups[group].before);
        before.iter_mut().for_each(|maker| *maker = self.became(*maker));
        before.sort_unstable();
        before.dedup();
        before
    }

    /// Adds predecessors to a group, and updates ancestors.
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
        // The merged groups no longer depend on each other.
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

    /// Adds ancestors to all transitive followers of `group`, into which another was merged.
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
                // The followers of a group that already has these ancestors have them too.
                if had || !added.is_within(ancestors) {
                    ancestors.join(added);
                    left.push(later);
                }
            }
            self.groups[group].followers = followers;
        }
    }

    /// Replaces merged groups in all predecessor lists.
    pub(super) fn rename_merged(&mut self) {
        for group in 0..self.groups.len() {
            self.groups[group].before = self.resolved(group);
        }
    }
}
