//! Fusion of column reductions into kernels that traverse the same rows.
//!
//! The gradients of a norm's weight and bias are column sums. Another kernel reads the same elements and combines them
//! along the rows. Where threads have registers for column totals, one kernel does both.

use super::{Finder, Group, Kind};
use crate::limits::COLUMN_THREADS;
use crate::plan::graph::ValueNumber;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;
use kiln_kernel::{Nest, Slot};

/// The maximum number of kernels tried before and after a column reduction, among those that read the same values.
const MAX_TRIED: usize = 32;

impl Finder<'_> {
    /// Merges column reductions into kernels that iterate over the rows of the same tensors. Reductions with the most
    /// inputs come first, to find a kernel that reads all of them.
    pub(super) fn join_columns(&mut self) {
        if !self.limits.columns {
            return;
        }
        let mut all: Vec<(usize, BTreeSet<ValueNumber>)> =
            (0..self.groups.len()).filter_map(|group| Some((group, self.full_reads(group)?))).collect();
        all.sort_by_key(|(group, reads)| (Reverse(reads.len()), *group));
        let having = self.having();
        for (group, reads) in all {
            // A kernel that iterates over the rows has each of the values, so the search visits the kernels of the
            // rarest value.
            let rarest = reads.iter().map(|value| having.get(value).map_or(&[][..], Vec::as_slice));
            let Some(rarest) = rarest.min_by_key(|groups| groups.len()) else { continue };
            let near = rarest.partition_point(|&other| other < group);
            let near = &rarest[near.saturating_sub(MAX_TRIED)..rarest.len().min(near + MAX_TRIED)];
            let mut through: Vec<usize> =
                near.iter().copied().filter(|&other| self.rows_are_columns(other, group, &reads)).collect();
            through.sort_by_key(|&other| (self.groups[other].columns.is_empty(), other));
            through.into_iter().find(|&other| self.join_columns_of(other, group));
        }
    }

    /// The kernels that reduce along whole rows, by the values that they read or compute. Members merged into them
    /// later read no whole tensor that they do not have.
    fn having(&self) -> BTreeMap<ValueNumber, Vec<usize>> {
        let mut having: BTreeMap<ValueNumber, Vec<usize>> = BTreeMap::new();
        for (number, group) in self.groups.iter().enumerate() {
            let nest = &group.body.nest;
            if group.kind == Kind::Kernel && nest.reduces() && nest.rows_are_whole() {
                let made = group.members.iter().map(|&entry| self.graph.first[entry as usize]);
                for value in self.reads(number).into_iter().chain(made) {
                    having.entry(value).or_default().push(number);
                }
            }
        }
        having
    }

    /// Returns the full tensors that a pure column reduction over many rows reads; `None` for any other group.
    fn full_reads(&self, group: usize) -> Option<BTreeSet<ValueNumber>> {
        let Group { kind, body, .. } = &self.groups[group];
        let nest = &body.nest;
        let combines = *kind == Kind::Kernel && nest.reduces() && !nest.rows_are_innermost();
        if !combines || nest.is_resident() || nest.row_len() < self.limits.many_rows {
            return None;
        }
        let reads = self.reads(group);
        let is_full =
            |value: &ValueNumber| self.graph.types[*value as usize].num_elements() == nest.num_points();
        Some(reads.into_iter().filter(is_full).collect())
    }

    /// The values of other groups that the members of a group read, directly or through views.
    pub(super) fn reads(&self, group: usize) -> BTreeSet<ValueNumber> {
        let group = &self.groups[group];
        let operands = group.members.iter().flat_map(|&entry| self.graph.operands(entry));
        let roots = operands.map(|value| self.graph.roots[value as usize]);
        roots.filter(|&root| !self.graph.is_made_by(root, |maker| group.has(maker))).collect()
    }

    /// Whether the rows of a group are the columns of another, and the group has all values that the other reads.
    fn rows_are_columns(&self, group: usize, other: usize, reads: &BTreeSet<ValueNumber>) -> bool {
        let (rows, columns) = (&self.groups[group], &self.groups[other].body.nest);
        let nest = &rows.body.nest;
        if group == other || rows.kind != Kind::Kernel || !nest.reduces() || !nest.rows_are_whole() {
            return false;
        }
        if nest.num_points() != columns.num_points()
            || nest.row_len() * columns.row_len() != nest.num_points()
        {
            return false;
        }
        let own = self.reads(group);
        let has = |&value: &ValueNumber| {
            own.contains(&value) || self.graph.is_made_by(value, |maker| rows.has(maker))
        };
        !reads.is_empty() && reads.iter().all(has)
    }

    /// Tries to merge a group into the kernel that iterates over its rows. Returns whether it did.
    fn join_columns_of(&mut self, into: usize, other: usize) -> bool {
        if !self.are_in_one_window(into, other)
            || self.is_between(into, other)
            || self.is_between(other, into)
        {
            return false;
        }
        let mut columns: Vec<u32> =
            self.groups[into].columns.iter().chain(&self.groups[other].members).copied().collect();
        columns.sort_unstable();
        let Some(built) = self.build(Kind::Kernel, self.members_of(into, other), &columns) else {
            return false;
        };
        self.absorb(into, other, Kind::Kernel, built);
        self.groups[into].columns = columns;
        true
    }

    /// Whether the registers of a block can hold a row and the totals of all columns.
    pub(super) fn holds_columns(&self, nest: &Nest, slots: &BTreeMap<ValueNumber, Slot>) -> bool {
        /// The maximum bytes per thread of a block.
        const MAX_BYTES: usize = 128;
        let row = nest.row_len();
        let is_resident = |value: &ValueNumber, slot: &Slot| {
            nest.is_input(*slot) && self.graph.types[*value as usize].num_elements() > row
        };
        let resident = slots.iter().filter(|(value, slot)| is_resident(value, slot));
        let resident: usize = resident.map(|(value, _)| self.graph.types[*value as usize].dtype.size()).sum();
        row.div_ceil(COLUMN_THREADS) * (resident + nest.column_reduce_bytes()) <= MAX_BYTES
    }
}

impl Group {
    /// The last member that is no column reduction or consumer of one.
    pub(crate) fn last_of_rows(&self) -> u32 {
        let rows = self.members.iter().rev().find(|entry| self.columns.binary_search(entry).is_err());
        rows.copied().unwrap_or(0)
    }
}
