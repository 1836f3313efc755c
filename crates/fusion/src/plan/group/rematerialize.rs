//! Rematerialization: intermediates that are cheaper to recompute than to store and load.
//!
//! A backward pass uses many intermediates of the forward pass. If another kernel computes them elementwise from stored
//! values, the reading kernel may recompute them instead. For a GELU and its gradient, only the argument is then
//! stored.

use super::{Finder, Kind};
use crate::plan::external_uses::ExternalUses;
use crate::plan::graph::ValueNumber;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use kiln_ir::{Effort, Op, Role};
use smallvec::{SmallVec, smallvec};

/// The cost of loading or storing a byte, in units of one addition.
const LOAD_BYTE: usize = 3;

/// The maximum number of sweeps over all kernels.
const SWEEPS: usize = 3;

/// The maximum number of recomputed instructions in one kernel.
const MAX_RECOMPUTED: usize = 64;

/// The values that one group recomputes instead of loading.
struct Rematerialization<'a> {
    group: usize,
    /// Whether recomputed values may be read through views.
    views: bool,
    external_uses: &'a ExternalUses,
    readers: &'a [Readers],
    /// Entries that the group already recomputes.
    added: BTreeSet<u32>,
    /// The values that the group loads.
    loaded: BTreeSet<ValueNumber>,
}

/// The computation of a value from stored values.
#[derive(Default)]
struct Chain {
    /// The entries that compute it.
    entries: BTreeSet<u32>,
    /// The stored values that they read.
    from: BTreeSet<ValueNumber>,
}

/// The readers of a value, except the group that computes it.
#[derive(Clone, Copy)]
struct Readers {
    /// Whether only kernels read the stored value.
    are_kernels: bool,
    count: Count,
}

#[derive(Clone, Copy, PartialEq)]
enum Count {
    None,
    /// One group, or a consumer outside of all groups.
    One(Option<usize>),
    Many,
}

impl Finder<'_> {
    /// Visits the kernels, last first: a value that one of them no longer loads may become dead. The cost model then no
    /// longer prefers loading it to loading its inputs, so that the next sweep may find more.
    pub(super) fn rematerialize(&mut self) {
        let mut external_uses = ExternalUses::new(self.graph, &self.groups);
        let values = 0..self.graph.types.len() as ValueNumber;
        // The entries' groups do not change here.
        let readers: Vec<Readers> = values.map(|value| self.readers(value)).collect();
        for _ in 0..SWEEPS {
            let mut found = false;
            for group in (0..self.groups.len()).rev() {
                if self.groups[group].kind == Kind::Kernel
                    || matches!(self.groups[group].kind, Kind::Anchor(_))
                {
                    // A kernel may not be able to read a recomputed value in another shape.
                    let repeated = [true, false]
                        .into_iter()
                        .find_map(|views| self.rematerialize_in(group, views, &readers, &mut external_uses));
                    found |= repeated.unwrap_or(false);
                }
            }
            if !found {
                break;
            }
        }
    }

    /// Whether the group now recomputes additional values. `views`: whether it may read them through views. `None` if
    /// the kernel is not worthwhile: the group is then unchanged.
    fn rematerialize_in(
        &mut self,
        group: usize,
        views: bool,
        readers: &[Readers],
        external_uses: &mut ExternalUses,
    ) -> Option<bool> {
        let loaded: BTreeSet<ValueNumber> = self.loads(group).into_iter().collect();
        let is_for_kernels = |value: &ValueNumber| readers[*value as usize].are_kernels;
        let mut left: Vec<ValueNumber> = loaded.iter().copied().filter(is_for_kernels).collect();
        let mut chosen =
            Rematerialization { group, views, external_uses, readers, added: BTreeSet::new(), loaded };
        // The entries recomputed for one value may be most of the entries that another needs.
        loop {
            let count = left.len();
            left.retain(|&value| !self.takes(value, &mut chosen));
            if left.len() == count {
                break;
            }
        }
        let added = chosen.added;
        if added.is_empty() {
            return Some(false);
        }
        external_uses.remove(self.graph, &self.groups[group]);
        let done = self.add_recomputed(group, added);
        external_uses.add(self.graph, &self.groups[group]);
        done.map(|()| true)
    }

    /// Whether recomputing a value is cheaper than loading it. If so, adds the value and its inputs to `chosen`.
    fn takes(&self, value: ValueNumber, chosen: &mut Rematerialization<'_>) -> bool {
        let Some(Chain { entries, mut from }) = self.chain(chosen, value) else { return false };
        let computed: usize = entries.iter().map(|&entry| cost(&self.graph.entry(entry).op)).sum();
        // Rows and columns are negligible compared with a whole tensor.
        let size = self.graph.types[value as usize].num_elements();
        from.retain(|from| {
            !chosen.loaded.contains(from) && self.graph.types[*from as usize].num_elements() * 2 > size
        });
        let is_last = match chosen.readers[value as usize].count {
            Count::None => true,
            Count::One(reader) => reader == Some(chosen.group),
            Count::Many => false,
        };
        let saved = if is_last { 2 * self.load(value) } else { self.load(value) };
        let spent = computed + from.iter().map(|&from| self.load(from)).sum::<usize>();
        if spent > saved || chosen.added.len() + entries.len() > MAX_RECOMPUTED {
            return false;
        }
        chosen.added.extend(entries);
        chosen.loaded.extend(from);
        true
    }

    /// The cost of loading one element of a value.
    fn load(&self, value: ValueNumber) -> usize {
        LOAD_BYTE * self.graph.types[value as usize].dtype.size()
    }

    /// The values of other groups that a group loads, in recording order.
    fn loads(&self, group: usize) -> Vec<ValueNumber> {
        let group = &self.groups[group];
        let operands = group.members.iter().flat_map(|&entry| self.graph.operands(entry));
        let roots = operands.map(|value| self.graph.roots[value as usize]);
        let other = |root: &ValueNumber| {
            self.graph.producers[*root as usize].is_some_and(|(maker, _)| !group.has(maker))
        };
        roots.filter(other).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The readers of a value.
    fn readers(&self, value: ValueNumber) -> Readers {
        let maker = self.maker(value);
        let mut readers = Readers { are_kernels: !self.graph.is_alive(value), count: Count::None };
        for &user in &self.graph.users[value as usize] {
            let of = self.of_entry[user as usize];
            readers.are_kernels &= of.is_some_and(|group| {
                let kind = self.groups[group].kind;
                matches!(kind, Kind::Kernel | Kind::Anchor(_)) && kind != Kind::Anchor(user)
            });
            readers.count = match readers.count {
                count if of == maker => count,
                Count::None => Count::One(of),
                Count::One(other) if other == of => Count::One(of),
                Count::One(_) | Count::Many => Count::Many,
            };
        }
        readers
    }

    /// The computation of a value from stored values. `None` if a part of it is neither stored nor elementwise, or if
    /// it exceeds the limit.
    fn chain(&self, chosen: &Rematerialization<'_>, wanted: ValueNumber) -> Option<Chain> {
        let mut chain = Chain::default();
        let mut left: SmallVec<[ValueNumber; 16]> = smallvec![wanted];
        while let Some(value) = left.pop() {
            let root = self.graph.roots[value as usize];
            let Some((entry, op)) = self.graph.producer(root) else {
                chain.from.insert(root);
                continue;
            };
            let is_there = self.groups[chosen.group].has(entry) || chosen.added.contains(&entry);
            if is_there || op.info().role == Role::Constant {
                continue;
            }
            if root != wanted && chosen.external_uses.has(root) {
                // Loading a view costs as much as loading its base.
                chain.from.insert(root);
                continue;
            }
            let is_computed = op.is_elementwise() && self.limits.kinds.contains(op.kind());
            if !is_computed || (value != root && !chosen.views) {
                return None;
            }
            // Each entry is visited once, however often it is used.
            if chain.entries.insert(entry) {
                if chain.entries.len() > MAX_RECOMPUTED {
                    return None;
                }
                left.extend(self.graph.operands(entry));
            }
        }
        Some(chain)
    }

    /// Adds entries that are already members of another group to a group.
    fn add_recomputed(&mut self, group: usize, added: BTreeSet<u32>) -> Option<()> {
        let state = &self.groups[group];
        let mut members: Vec<u32> = state.members.iter().copied().chain(added.iter().copied()).collect();
        members.sort_unstable();
        let mut repeated: Vec<u32> = state.repeated.iter().copied().chain(added).collect();
        repeated.sort_unstable();
        let built = self.build_repeating(state.kind, members, &state.columns, &repeated)?;
        let state = &mut self.groups[group];
        state.take(built);
        state.repeated = repeated;
        Some(())
    }
}

fn cost(op: &Op) -> usize {
    let is_costly = op.function().is_some_and(|function| function.effort >= Effort::Elementary);
    if is_costly { 10 } else { 1 }
}
