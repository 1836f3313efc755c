//! Computing again what is cheaper to compute than to store and load.
//!
//! A backward pass uses much of what the forward pass computed on the way. Where a kernel loads values that another kernel
//! computes elementwise from others that lie in memory anyway, it may as well compute them itself: of a GELU and its
//! gradient, only the argument is left to store.

use super::{Finder, Kind};
use crate::plan::graph::{Role, ValueNumber, role};
use crate::plan::outside::Outside;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use kiln_ir::{Binary, Op, Unary};

/// What loading (or storing) a byte costs, where an addition in a kernel costs 1: memory moves one in the time of so many.
const LOAD_BYTE: usize = 3;

/// How often all kernels are gone through at most.
const SWEEPS: usize = 3;

/// So many instructions at most are computed again in one kernel.
const MOST: usize = 64;

/// A value that a group may compute again.
struct Again<'a> {
    group: usize,
    wanted: ValueNumber,
    /// Whether what is computed on the way may be looked at through views.
    views: bool,
    /// Entries that the group computes again already.
    added: &'a BTreeSet<u32>,
}

impl Finder<'_> {
    /// Goes through the kernels, last first: a value that one of them no longer loads may not have to be stored. What is not
    /// stored any more is no reason to load it rather than what it comes from, so that the next sweep may find more.
    pub(super) fn repeat_cheap(&mut self) {
        let mut outside = Outside::new(self.graph, &self.groups);
        for _ in 0..SWEEPS {
            let mut found = false;
            for group in (0..self.groups.len()).rev() {
                if self.groups[group].kind == Kind::Kernel || matches!(self.groups[group].kind, Kind::Hero(_))
                {
                    // A kernel may not be able to look at what it computes in another shape.
                    let repeated = self.repeat_in(group, true, &mut outside);
                    found |= repeated.or_else(|| self.repeat_in(group, false, &mut outside)).unwrap_or(false);
                }
            }
            if !found {
                break;
            }
        }
    }

    /// Whether the group computes anything again that it did not before. `views`: whether that may be looked at through views. `None`
    /// where the kernel is not worth having: the group stays as it is.
    fn repeat_in(&mut self, group: usize, views: bool, outside: &mut Outside) -> Option<bool> {
        let mut added: BTreeSet<u32> = BTreeSet::new();
        let mut loaded: BTreeSet<ValueNumber> = self.loads(group).into_iter().collect();
        let mut left: Vec<ValueNumber> =
            loaded.iter().copied().filter(|&value| self.is_stored_for_kernels(value)).collect();
        // What is computed for one value may be most of what another needs.
        loop {
            let count = left.len();
            left.retain(|&value| !self.takes(group, value, views, outside, &mut added, &mut loaded));
            if left.len() == count {
                break;
            }
        }
        if added.is_empty() {
            return Some(false);
        }
        outside.remove(self.graph, &self.groups[group]);
        let done = self.add_repeated(group, added);
        outside.add(self.graph, &self.groups[group]);
        done.map(|()| true)
    }

    /// Whether a group had better compute a value than load it: then it is noted with what it is computed from.
    fn takes(
        &self,
        group: usize,
        value: ValueNumber,
        views: bool,
        outside: &Outside,
        added: &mut BTreeSet<u32>,
        loaded: &mut BTreeSet<ValueNumber>,
    ) -> bool {
        let (mut chain, mut from) = (BTreeSet::new(), BTreeSet::new());
        let again = Again { group, wanted: value, views, added };
        if self.chain(&again, value, outside, &mut chain, &mut from).is_none() {
            return false;
        }
        let computed: usize = chain.iter().map(|&entry| cost(&self.graph.entry(entry).op)).sum();
        // Rows and columns cost nothing beside a whole tensor.
        let size = self.graph.types[value as usize].num_elements();
        from.retain(|from| {
            !loaded.contains(from) && self.graph.types[*from as usize].num_elements() * 2 > size
        });
        let users = &self.graph.users[value as usize];
        let is_last = users.iter().all(|&user| {
            let of = self.of_entry[user as usize];
            of == Some(group) || of == self.maker(value)
        });
        let saved = if is_last { 2 * self.load(value) } else { self.load(value) };
        let spent = computed + from.iter().map(|&from| self.load(from)).sum::<usize>();
        if spent > saved || added.len() + chain.len() > MOST {
            return false;
        }
        added.extend(chain);
        loaded.extend(from);
        true
    }

    /// What loading an element of a value costs.
    fn load(&self, value: ValueNumber) -> usize {
        LOAD_BYTE * self.graph.types[value as usize].dtype.size()
    }

    /// The values of other groups that a group loads, in the order in which they were recorded.
    fn loads(&self, group: usize) -> Vec<ValueNumber> {
        let group = &self.groups[group];
        let operands = group.members.iter().flat_map(|&entry| self.graph.operands(entry));
        let roots = operands.map(|value| self.graph.roots[value as usize]);
        let other = |root: &ValueNumber| {
            self.graph.producers[*root as usize].is_some_and(|(maker, _)| !group.has(maker))
        };
        roots.filter(other).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether a value is stored for nobody but kernels.
    fn is_stored_for_kernels(&self, value: ValueNumber) -> bool {
        let users = &self.graph.users[value as usize];
        !self.graph.is_alive(value)
            && users.iter().all(|&user| {
                self.of_entry[user as usize].is_some_and(|group| {
                    matches!(self.groups[group].kind, Kind::Kernel | Kind::Hero(_))
                        && self.groups[group].kind != Kind::Hero(user)
                })
            })
    }

    /// The entries that compute a value, and what is stored besides it that they compute it from; `None` where something on the way is neither stored
    /// nor elementwise.
    fn chain(
        &self,
        again: &Again<'_>,
        value: ValueNumber,
        outside: &Outside,
        chain: &mut BTreeSet<u32>,
        from: &mut BTreeSet<ValueNumber>,
    ) -> Option<()> {
        let root = self.graph.roots[value as usize];
        let Some((entry, op)) = self.graph.producer(root) else {
            from.insert(root);
            return Some(());
        };
        if role(op) == Role::Constant || self.groups[again.group].has(entry) || again.added.contains(&entry) {
            return Some(());
        }
        if root != again.wanted && outside.has(root) {
            // A view of it is as good as the value.
            from.insert(root);
            return Some(());
        }
        if !is_elementwise(op) || (value != root && !again.views) || chain.len() >= MOST {
            return None;
        }
        for operand in self.graph.operands(entry) {
            self.chain(again, operand, outside, chain, from)?;
        }
        chain.insert(entry);
        Some(())
    }

    /// Makes entries members of a group that are members of another one already.
    fn add_repeated(&mut self, group: usize, added: BTreeSet<u32>) -> Option<()> {
        let state = &self.groups[group];
        let mut members: Vec<u32> = state.members.iter().copied().chain(added.iter().copied()).collect();
        members.sort_unstable();
        let built = self.build(state.kind, members, &state.columns)?;
        let state = &mut self.groups[group];
        state.take(built);
        state.repeated.extend(added);
        state.repeated.sort_unstable();
        Some(())
    }
}

pub(super) fn is_elementwise(op: &Op) -> bool {
    matches!(op, Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Cast(_))
}

fn cost(op: &Op) -> usize {
    let is_costly = matches!(
        op,
        Op::Unary(
            Unary::Exp
                | Unary::Expm1
                | Unary::Ln
                | Unary::Log1p
                | Unary::Sin
                | Unary::Cos
                | Unary::Tan
                | Unary::Tanh
                | Unary::Atan
                | Unary::Erf
        ) | Op::Binary(Binary::Pow | Binary::Rem | Binary::Atan2)
    );
    if is_costly { 10 } else { 1 }
}
