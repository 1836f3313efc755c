//! Fusion of bias and activation into a matmul's epilogue, where the engine's library has one.
//!
//! A vendor library adds a bias and applies an activation before it stores a matmul's result, which saves one store and
//! one load. A kernel that does nothing else joins the matmul. Values computed from its result, such as the mask for
//! the gradient of an activation, move to the kernel that reads them.

use super::{Finder, Kind};
use crate::plan::emit::program_of;
use crate::plan::external_uses::ExternalUses;
use crate::plan::graph::ValueNumber;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use kiln_ir::{Op, Pattern, Program};
use kiln_kernel::match_epilogue;
use smallvec::SmallVec;

/// The groups that contain an entry: one, unless others recompute it.
type Holders = SmallVec<[usize; 2]>;

/// A kernel that can become a matmul's epilogue.
struct EpilogueFusion {
    product: u32,
    /// The members that form the epilogue, ascending.
    head: Vec<u32>,
    /// The members that are computed from the epilogue's result, ascending.
    tail: Vec<u32>,
    /// The kernel that reads the results of `tail`.
    reader: Option<usize>,
}

impl Finder<'_> {
    /// Merges matmuls with the kernels that are only their epilogues.
    pub(super) fn fuse_epilogues(&mut self) {
        if !self.limits.fuse_epilogues {
            return;
        }
        let mut external_uses = ExternalUses::new(self.graph, &self.groups);
        let mut holders = self.holders();
        for group in 0..self.groups.len() {
            if let Some(epilogue) = self.epilogue(group, &external_uses, &holders)
                && self.move_tail(&epilogue, &mut external_uses).is_some()
            {
                for &entry in &epilogue.tail {
                    holders[entry as usize].retain(|holder| *holder != group);
                    if let Some(reader) =
                        epilogue.reader.filter(|reader| !holders[entry as usize].contains(reader))
                    {
                        holders[entry as usize].push(reader);
                    }
                }
                holders[epilogue.product as usize] = [group].into_iter().collect();
                external_uses.remove(self.graph, &self.groups[group]);
                self.take_product(group, epilogue);
                external_uses.add(self.graph, &self.groups[group]);
            }
        }
    }

    /// The groups that contain each entry.
    fn holders(&self) -> Vec<Holders> {
        let mut holders = alloc::vec![Holders::new(); self.of_entry.len()];
        for (number, group) in self.groups.iter().enumerate() {
            group.members.iter().for_each(|&entry| holders[entry as usize].push(number));
        }
        holders
    }

    /// How a kernel finishes a product that has no other consumer.
    fn epilogue(
        &self,
        group: usize,
        external_uses: &ExternalUses,
        holders: &[Holders],
    ) -> Option<EpilogueFusion> {
        let state = &self.groups[group];
        if state.kind != Kind::Kernel || !state.columns.is_empty() || !state.repeated.is_empty() {
            return None;
        }
        let product = self.only_product(group, holders)?;
        let results = state.members.iter().map(|&entry| self.graph.first[entry as usize]);
        let stored: Vec<ValueNumber> = results.filter(|&value| external_uses.has(value)).collect();
        stored.iter().find_map(|&result| self.epilogue_at(group, product, result, &stored, holders))
    }

    /// As [`finish`](Finder::finish), with `result`, one of the stored values, as the epilogue's result.
    fn epilogue_at(
        &self,
        group: usize,
        product: u32,
        result: ValueNumber,
        stored: &[ValueNumber],
        holders: &[Holders],
    ) -> Option<EpilogueFusion> {
        let members = &self.groups[group].members;
        let mut head = BTreeSet::new();
        self.add_makers(group, result, &mut head);
        let (head, tail): (Vec<u32>, Vec<u32>) = members.iter().partition(|entry| head.contains(entry));
        let is_seen = |&entry: &u32| stored.binary_search(&self.graph.first[entry as usize]).is_ok();
        if head.iter().filter(|entry| is_seen(entry)).count() != 1 {
            return None;
        }
        let reader = self.reader_of(group, &tail, result, holders)?;
        let with_product: Vec<u32> = [product].into_iter().chain(head.iter().copied()).collect();
        let (program, inputs) = program_of(self.graph, &with_product, &[result]);
        let epilogue = match_epilogue(&program)?;
        let has_row = epilogue.bias.is_none_or(|bias| inputs[bias].is_some_and(|value| self.is_row(value)));
        let has_numbers = epilogue.numbers.iter().all(|&(input, _)| inputs[input].is_none());
        (has_row && has_numbers).then_some(EpilogueFusion { product, head, tail, reader })
    }

    /// The matmul whose result the kernel reads, if there is only one and the kernel is its only reader.
    fn only_product(&self, group: usize, holders: &[Holders]) -> Option<u32> {
        let mut products = self.reads(group).into_iter().filter_map(|value| {
            let (entry, op) = self.graph.producer(value)?;
            (*op == Op::MatMul).then_some((value, entry))
        });
        let (Some((value, entry)), None) = (products.next(), products.next()) else { return None };
        let stands_alone = self.of_entry[entry as usize].is_some_and(|other| {
            self.groups[other].kind == Kind::Alone && self.groups[other].members == [entry]
        });
        let reads = |user: &u32| holders[*user as usize].as_slice() == [group];
        let alone = !self.graph.is_alive(value) && self.graph.users[value as usize].iter().all(reads);
        (stands_alone && alone).then_some(entry)
    }

    /// Collects the members of a group that a value depends on.
    fn add_makers(&self, group: usize, value: ValueNumber, found: &mut BTreeSet<u32>) {
        let maker = self.graph.producer(self.graph.roots[value as usize]);
        if let Some((entry, _)) = maker.filter(|(entry, _)| self.groups[group].has(*entry))
            && found.insert(entry)
        {
            self.graph.operands(entry).iter().for_each(|&operand| self.add_makers(group, operand, found));
        }
    }

    /// The only kernel that reads the values of `tail`; `Some(None)` if nothing reads them. `None` if `tail` reads any
    /// values but the result and its own, or if its values are live or have other readers.
    fn reader_of(
        &self,
        group: usize,
        tail: &[u32],
        result: ValueNumber,
        holders: &[Holders],
    ) -> Option<Option<usize>> {
        let from_result = |&value: &ValueNumber| {
            let root = self.graph.roots[value as usize];
            let maker = self.graph.producer(root);
            root == result || maker.is_some_and(|(maker, _)| tail.binary_search(&maker).is_ok())
        };
        let mut readers = BTreeSet::new();
        for &entry in tail {
            let value = self.graph.first[entry as usize];
            let simple = self.graph.entry(entry).op.is_elementwise()
                && self.graph.operands(entry).iter().all(from_result)
                && !self.graph.is_alive(value);
            if !simple {
                return None;
            }
            for &user in &self.graph.users[value as usize] {
                let holders = holders[user as usize].iter().copied();
                readers.extend(holders.filter(|&holder| !self.groups[holder].has(entry)));
                // A live view is no member of any group.
                self.of_entry[user as usize]?;
            }
        }
        readers.remove(&group);
        let reader = readers.pop_first();
        let is_kernel = reader.is_none_or(|reader| self.groups[reader].kind == Kind::Kernel);
        (is_kernel && readers.is_empty()).then_some(reader)
    }

    /// Whether a value is one row, broadcast.
    fn is_row(&self, value: ValueNumber) -> bool {
        let Some((entry, Op::Broadcast(shape))) = self.graph.producer(value) else { return false };
        let row = &self.graph.types[self.graph.operands(entry)[0] as usize].shape;
        row.last() == shape.last() && row.last() == Some(&row.num_elements())
    }

    /// Moves the members computed from the result into the kernel that reads them. `None`, without changes, if that is
    /// not worthwhile.
    fn move_tail(&mut self, epilogue: &EpilogueFusion, external_uses: &mut ExternalUses) -> Option<()> {
        let Some(reader) = epilogue.reader else { return Some(()) };
        let state = &self.groups[reader];
        let mut members: Vec<u32> = state.members.iter().chain(&epilogue.tail).copied().collect();
        members.sort_unstable();
        members.dedup();
        let built = self.build(Kind::Kernel, members, &state.columns)?;
        external_uses.remove(self.graph, &self.groups[reader]);
        self.groups[reader].take(built);
        self.groups[reader].repeated.retain(|entry| epilogue.tail.binary_search(entry).is_err());
        external_uses.add(self.graph, &self.groups[reader]);
        epilogue.tail.iter().for_each(|&entry| self.of_entry[entry as usize] = Some(reader));
        Some(())
    }

    /// Merges a matmul and its epilogue into one group.
    fn take_product(&mut self, group: usize, epilogue: EpilogueFusion) {
        let EpilogueFusion { product, head, .. } = epilogue;
        let Some(other) = self.of_entry[product as usize] else { return };
        self.groups[other].kind = Kind::Gone;
        self.groups[other].members.clear();
        self.of_entry[product as usize] = Some(group);
        self.groups[group].kind = Kind::Alone;
        self.groups[group].members = [product].into_iter().chain(head).collect();
        self.groups[group].pattern = pattern;
    }
}

/// The pattern of a region with an epilogue.
fn pattern(program: &Program) -> Pattern {
    match_epilogue(program).map_or(Pattern::Loop, Pattern::Epilogue)
}
