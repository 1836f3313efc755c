//! Which ops run as one.
//!
//! Ops are visited in the order in which they were recorded. Each tries to join the groups of its operands; a nest says
//! whether the axes match, and a set of ancestors whether a way around the group leads back into it. What two groups
//! feed is their reason to become one. What joins none starts its own.

mod columns;
mod finish;
mod repeat;
mod weights;

use super::graph::{Graph, Role, ValueNumber, role};
use crate::record::Source;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use kiln_ir::{Op, Regions, Scalar};
use kiln_kernel::{Nest, Operand, Slot};
use smallvec::SmallVec;

/// More tensors are not read by one kernel: each needs an address register, and hardware has few.
const MAX_INPUTS: usize = 32;

/// Loading a value of so many elements twice is worth joining kernels that have nothing else in common.
pub(super) const WORTH_SHARING: usize = 1 << 14;

/// Ops that run as one, or one that runs alone.
pub(crate) struct Group {
    pub(crate) kind: Kind,
    /// Entries, ascending.
    pub(crate) members: Vec<u32>,
    /// Those of the members that another group computes too, ascending: cheaper to compute again than to store and load.
    pub(crate) repeated: Vec<u32>,
    /// Those of the members that combine what others compute over all rows, and what follows them, ascending: they come after all
    /// others.
    columns: Vec<u32>,
    nest: Nest,
    slots: BTreeMap<ValueNumber, Slot>,
    /// Groups that must run before.
    ancestors: Bits,
    inputs: usize,
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A kernel.
    Kernel,
    /// An op with the engine's own kernel, and elementwise ops on its result.
    Hero(u32),
    /// An op by itself.
    Alone,
    /// It has become part of another group.
    Gone,
}

/// All groups.
pub(crate) struct Groups {
    pub(crate) groups: Vec<Group>,
}

/// Finds the groups of a recording.
pub(crate) fn groups(graph: &Graph<'_>, suited: Regions) -> Groups {
    let mut finder = Finder {
        graph,
        groups: Vec::new(),
        of_entry: alloc::vec![None; graph.structure.entries.len()],
        loaders: BTreeMap::new(),
        suited,
    };
    for entry in 0..graph.structure.entries.len() as u32 {
        if graph.needed[entry as usize] {
            finder.visit(entry);
        }
    }
    finder.join_columns();
    finder.repeat_cheap();
    finder.take_quantized();
    finder.finish_products();
    Groups { groups: finder.groups }
}

struct Finder<'a> {
    graph: &'a Graph<'a>,
    groups: Vec<Group>,
    of_entry: Vec<Option<usize>>,
    /// Kernels that load a large value.
    loaders: BTreeMap<ValueNumber, Vec<usize>>,
    /// What suits the engine. Products that it does not continue are [`Kind::Alone`].
    suited: Regions,
}

impl Finder<'_> {
    fn visit(&mut self, entry: u32) {
        match role(&self.graph.entry(entry).op) {
            Role::View | Role::Constant => {}
            Role::Alone => self.start(entry, Kind::Alone, Nest::default(), BTreeMap::new()),
            Role::Hero if !self.suited.continue_products => {
                self.start(entry, Kind::Alone, Nest::default(), BTreeMap::new());
            }
            Role::Hero => {
                let result = self.graph.first[entry as usize];
                let mut nest = Nest::default();
                let slot = nest.input(self.graph.types[result as usize]);
                self.start(entry, Kind::Hero(entry), nest, [(result, slot)].into_iter().collect());
            }
            Role::Fusable => self.visit_fusable(entry),
        }
    }

    fn visit_fusable(&mut self, entry: u32) {
        let mut candidates = self.candidates(entry);
        if self.is_reduced_next(entry) {
            candidates.retain(|&group| self.groups[group].kind == Kind::Kernel);
        }
        let mut notes = Vec::new();
        while let Some(candidate) = candidates.pop() {
            match self.join(candidate, entry) {
                Ok(()) => {
                    while let Some(other) = candidates.pop() {
                        self.merge(candidate, other);
                    }
                    return;
                }
                Err(why) => notes.push((candidate, why)),
            }
        }
        if !self.is_reduced_next(entry) && self.join_sibling(entry) {
            return;
        }
        for (candidate, why) in notes {
            let name = self.graph.entry(entry).op.name();
            self.groups[candidate].notes.push(format!("op {entry} ({name}) is not part of it: {why}"));
        }
        let (mut nest, mut slots) = (Nest::default(), BTreeMap::new());
        // Picking from memory along an axis is no reason to cross all of it.
        let picks = matches!(self.graph.entry(entry).op, Op::Gather { .. });
        let alone = picks || self.push(entry, &[], &mut nest, &mut slots).is_err();
        let kind = if alone { Kind::Alone } else { Kind::Kernel };
        self.start(entry, kind, nest, slots);
    }

    /// Whether a result need not be stored, because reductions and elementwise ops beside them are all that follows: on its own it
    /// would have to be, at the end of a product.
    fn is_reduced_next(&self, entry: u32) -> bool {
        let result = self.graph.first[entry as usize];
        if self.graph.is_alive(result) || matches!(self.graph.entry(entry).op, Op::Reduce { .. }) {
            return false;
        }
        let users = &self.graph.users[result as usize];
        let is_reduction = |&user: &u32| matches!(self.graph.entry(user).op, Op::Reduce { .. });
        users.iter().any(is_reduction)
            && users.iter().all(|&user| role(&self.graph.entry(user).op) == Role::Fusable)
    }

    /// The groups that make the operands, in the order of their making.
    fn candidates(&self, entry: u32) -> Vec<usize> {
        let mut candidates: Vec<usize> = self.makers(entry).into_iter().collect();
        candidates.retain(|&group| matches!(self.groups[group].kind, Kind::Kernel | Kind::Hero(_)));
        candidates.sort_unstable();
        candidates.dedup();
        candidates
    }

    /// The groups that make what the operands of an entry look at.
    fn makers(&self, entry: u32) -> SmallVec<[usize; 4]> {
        let operands = self.graph.operands(entry);
        operands.iter().filter_map(|&value| self.maker(value)).collect()
    }

    fn maker(&self, value: ValueNumber) -> Option<usize> {
        let root = self.graph.roots[value as usize];
        let (entry, _) = self.graph.producers[root as usize]?;
        self.of_entry[entry as usize]
    }

    fn start(&mut self, entry: u32, kind: Kind, nest: Nest, slots: BTreeMap<ValueNumber, Slot>) {
        let mut ancestors = Bits::default();
        for maker in self.makers(entry) {
            ancestors.join(&self.groups[maker].ancestors);
            ancestors.set(maker);
        }
        let group = self.groups.len();
        self.of_entry[entry as usize] = Some(group);
        let inputs = slots.len();
        let members = alloc::vec![entry];
        let (repeated, columns, notes) = (Vec::new(), Vec::new(), Vec::new());
        self.groups.push(Group { kind, members, repeated, columns, nest, slots, ancestors, inputs, notes });
        if kind == Kind::Kernel {
            self.note_loads(group, entry);
        }
    }

    fn note_loads(&mut self, group: usize, entry: u32) {
        for value in self.graph.operands(entry) {
            if self.graph.types[value as usize].num_elements() >= WORTH_SHARING {
                self.loaders.entry(value).or_default().push(group);
            }
        }
    }

    /// Takes an entry into a group.
    fn join(&mut self, group: usize, entry: u32) -> Result<(), String> {
        let makers = self.makers(entry);
        if makers.iter().any(|&maker| maker != group && self.groups[maker].ancestors.has(group)) {
            return Err("an op outside the region lies between".to_string());
        }
        if matches!(self.graph.entry(entry).op, Op::Gather { .. })
            && !self.graph.is_made_by(self.graph.operands(entry)[0], |maker| self.groups[group].has(maker))
        {
            return Err("it picks from memory".to_string());
        }
        let mut nest = self.groups[group].nest.clone();
        let mut slots = self.groups[group].slots.clone();
        let members = &self.groups[group].members;
        self.push(entry, members, &mut nest, &mut slots)?;
        let kind = self.groups[group].kind;
        let inputs = self.count_inputs(members, entry, &slots);
        self.accepts(kind, &nest, &slots, inputs)?;
        let state = &mut self.groups[group];
        (state.nest, state.slots, state.inputs) = (nest, slots, inputs);
        state.members.push(entry);
        self.of_entry[entry as usize] = Some(group);
        let before: SmallVec<[usize; 4]> = makers.into_iter().filter(|&maker| maker != group).collect();
        self.add_ancestors(group, &before);
        self.note_loads(group, entry);
        Ok(())
    }

    /// A kernel that loads one of the operands already saves loading it twice.
    fn join_sibling(&mut self, entry: u32) -> bool {
        for value in self.graph.operands(entry) {
            let Some(loaders) = self.loaders.get(&value) else { continue };
            let loaders: SmallVec<[usize; 4]> = loaders.iter().rev().take(4).copied().collect();
            for loader in loaders {
                if self.groups[loader].kind == Kind::Kernel && self.join(loader, entry).is_ok() {
                    return true;
                }
            }
        }
        false
    }

    /// Makes two groups one, if they fit.
    fn merge(&mut self, into: usize, other: usize) {
        let kind = match (self.groups[into].kind, self.groups[other].kind) {
            (Kind::Kernel, Kind::Kernel) => Kind::Kernel,
            (Kind::Hero(hero), Kind::Kernel) | (Kind::Kernel, Kind::Hero(hero)) => Kind::Hero(hero),
            (Kind::Hero(_), Kind::Hero(_))
            | (Kind::Alone | Kind::Gone, _)
            | (_, Kind::Alone | Kind::Gone) => return,
        };
        if self.is_between(into, other) || self.is_between(other, into) {
            return;
        }
        let members = self.members_of(into, other);
        if let Some(built) = self.build(kind, members, &[]) {
            self.absorb(into, other, kind, built);
        }
    }

    /// The members of two groups, in order.
    fn members_of(&self, a: usize, b: usize) -> Vec<u32> {
        let mut members: Vec<u32> =
            self.groups[a].members.iter().chain(&self.groups[b].members).copied().collect();
        members.sort_unstable();
        members
    }

    /// A group of these members, of which `columns` come last; `None` where it is not worth having.
    fn build(&self, kind: Kind, members: Vec<u32>, columns: &[u32]) -> Option<Built> {
        let mut nest = if columns.is_empty() { Nest::default() } else { Nest::with_columns() };
        let mut slots = BTreeMap::new();
        if let Kind::Hero(hero) = kind {
            let result = self.graph.first[hero as usize];
            slots.insert(result, nest.input(self.graph.types[result as usize]));
        }
        for entry in in_order(&members, columns) {
            if kind != Kind::Hero(entry) {
                self.push(entry, &members, &mut nest, &mut slots).ok()?;
            }
        }
        let inputs = self.count_inputs(&members, members[0], &slots);
        self.accepts(kind, &nest, &slots, inputs).ok()?;
        Some(Built { members, nest, slots, inputs })
    }

    /// Makes a group part of another, which becomes what was built of both.
    fn absorb(&mut self, into: usize, other: usize, kind: Kind, built: Built) {
        for &entry in &built.members {
            self.of_entry[entry as usize] = Some(into);
        }
        let gone = &mut self.groups[other];
        gone.kind = Kind::Gone;
        gone.members.clear();
        let notes = core::mem::take(&mut gone.notes);
        let ancestors = gone.ancestors.clone();
        let state = &mut self.groups[into];
        state.kind = kind;
        state.take(built);
        state.notes.extend(notes);
        let before: Vec<usize> = ancestors.iter().filter(|&group| group != into).collect();
        // What came after the one that is gone comes after the one that is left.
        for group in &mut self.groups {
            if group.ancestors.has(other) {
                group.ancestors.clear(other);
                group.ancestors.set(into);
            }
        }
        self.groups[into].ancestors.clear(into);
        self.add_ancestors(into, &before);
    }

    /// Whether a third group comes after `first` and before `second`.
    fn is_between(&self, first: usize, second: usize) -> bool {
        self.groups[second]
            .ancestors
            .iter()
            .any(|group| group != first && self.groups[group].ancestors.has(first))
    }

    fn add_ancestors(&mut self, group: usize, before: &[usize]) {
        let mut added = Bits::default();
        for &maker in before {
            added.join(&self.groups[maker].ancestors);
            added.set(maker);
        }
        added.clear(group);
        self.groups[group].ancestors.join(&added);
        for later in 0..self.groups.len() {
            if self.groups[later].ancestors.has(group) {
                self.groups[later].ancestors.join(&added);
            }
        }
    }

    /// The values that a kernel of these members loads.
    fn count_inputs(&self, members: &[u32], entry: u32, slots: &BTreeMap<ValueNumber, Slot>) -> usize {
        let has = |maker: u32| maker == entry || members.contains(&maker);
        slots.keys().filter(|&&value| !self.graph.is_made_by(value, has)).count()
    }

    /// Whether a kernel of that nest is worth having.
    fn accepts(
        &self,
        kind: Kind,
        nest: &Nest,
        slots: &BTreeMap<ValueNumber, Slot>,
        inputs: usize,
    ) -> Result<(), String> {
        let is_around = |value: ValueNumber| {
            self.graph.producer(value).is_some_and(|(_, op)| matches!(op, Op::Pad(_) | Op::Concat { .. }))
        };
        if slots
            .iter()
            .any(|(&value, &slot)| is_around(value) && !nest.is_input(slot) && !nest.is_storable(slot))
        {
            return Err("a padded tensor has another index space than the region".to_string());
        }
        if inputs > MAX_INPUTS {
            return Err("the region would read too many tensors".to_string());
        }
        if matches!(kind, Kind::Hero(_)) && nest.reduces() {
            return Err("nothing is reduced on the way out of a matrix product or convolution".to_string());
        }
        if nest.across_bytes() > 0 && !self.holds_columns(nest, slots) {
            return Err("threads cannot hold rows and what columns add up to".to_string());
        }
        if !nest.reduces() || !nest.is_resident() {
            return Ok(());
        }
        let (row, rows) = (nest.row_len(), nest.num_points() / nest.row_len().max(1));
        if !nest.rows_are_innermost() || (self.suited.whole_rows && !nest.rows_are_whole()) {
            return Err(
                "the rows to combine with their own reductions do not lie together in memory".to_string()
            );
        }
        if row > self.suited.resident_row && rows < self.suited.many_rows {
            return Err(format!("rows of {row} elements are too long to stay in cache"));
        }
        Ok(())
    }

    /// Pushes an entry into a nest, with the views and constants that lead to its operands.
    fn push(
        &self,
        entry: u32,
        members: &[u32],
        nest: &mut Nest,
        slots: &mut BTreeMap<ValueNumber, Slot>,
    ) -> Result<(), String> {
        let recorded = self.graph.entry(entry);
        let mut operands: SmallVec<[Operand; 4]> = SmallVec::new();
        for &source in &recorded.operands {
            operands.push(match (self.graph.value(source), source) {
                (Some(value), _) => self.operand(value, members, nest, slots)?.into(),
                (None, Source::Constant(scalar)) => scalar.into(),
                (None, _) => placeholder(number_dtype(self.graph, entry)).into(),
            });
        }
        let slot =
            nest.push(&recorded.op, &operands, &recorded.results).map_err(|refusal| refusal.to_string())?;
        slots.insert(self.graph.first[entry as usize], slot);
        Ok(())
    }

    /// The slot of a value: made in the region, looked at through views that the region can see through, or loaded.
    fn operand(
        &self,
        value: ValueNumber,
        members: &[u32],
        nest: &mut Nest,
        slots: &mut BTreeMap<ValueNumber, Slot>,
    ) -> Result<Slot, String> {
        if let Some(&slot) = slots.get(&value) {
            return Ok(slot);
        }
        if let Some((entry, op)) = self.graph.producer(value)
            && self.graph.is_made_by(value, |maker| members.contains(&maker))
        {
            let slot = match role(op) {
                Role::Constant => {
                    let number = placeholder(self.graph.types[value as usize].dtype);
                    let operands: &[Operand] =
                        if matches!(op, Op::Full(_)) { &[Operand::Scalar(number)] } else { &[] };
                    nest.push(op, operands, &self.graph.entry(entry).results)
                }
                Role::View => {
                    let of = self.graph.operands(entry)[0];
                    let of = self.operand(of, members, nest, slots)?;
                    nest.push(op, &[of.into()], &self.graph.entry(entry).results)
                }
                Role::Fusable | Role::Hero | Role::Alone => return Err("it is made later".to_string()),
            };
            let slot = slot.map_err(|refusal| format!("{} on the way: {refusal}", op.name()))?;
            slots.insert(value, slot);
            return Ok(slot);
        }
        let slot = nest.input(self.graph.types[value as usize]);
        slots.insert(value, slot);
        Ok(slot)
    }
}

/// What a group is built of.
struct Built {
    members: Vec<u32>,
    nest: Nest,
    slots: BTreeMap<ValueNumber, Slot>,
    inputs: usize,
}

/// Members, of which some come last.
fn in_order<'a>(members: &'a [u32], last: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
    let first = members.iter().filter(|entry| last.binary_search(entry).is_err());
    first.chain(last).copied()
}

/// The dtype that a plain number among an entry's operands takes: that of the tensors beside it.
pub(crate) fn number_dtype(graph: &Graph<'_>, entry: u32) -> kiln_ir::DType {
    let recorded = graph.entry(entry);
    let beside = graph.operands(entry).last().map(|&value| graph.types[value as usize].dtype);
    let own = recorded.results[0].dtype;
    if matches!(recorded.op, Op::Compare(_)) { beside.unwrap_or(own) } else { own }
}

/// A number in the place of one that is given later: the shape of a kernel does not depend on it.
fn placeholder(dtype: kiln_ir::DType) -> Scalar {
    if dtype.is_bool() { Scalar::Bool(false) } else { Scalar::Int(1) }
}

/// A set of groups.
#[derive(Clone, Debug, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn set(&mut self, bit: usize) {
        if self.0.len() <= bit / 64 {
            self.0.resize(bit / 64 + 1, 0);
        }
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    fn clear(&mut self, bit: usize) {
        if let Some(word) = self.0.get_mut(bit / 64) {
            *word &= !(1 << (bit % 64));
        }
    }

    fn has(&self, bit: usize) -> bool {
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

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(i, &word)| {
            (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| i * 64 + bit)
        })
    }
}

impl Group {
    fn take(&mut self, built: Built) {
        let Built { members, nest, slots, inputs } = built;
        (self.members, self.nest, self.slots, self.inputs) = (members, nest, slots, inputs);
    }

    /// The members in the order in which they are computed.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = u32> + '_ {
        in_order(&self.members, &self.columns)
    }

    /// Whether an entry is computed here.
    pub(crate) fn has(&self, entry: u32) -> bool {
        self.members.binary_search(&entry).is_ok()
    }

    /// Groups that must run before, for the order of steps.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = usize> + '_ {
        self.ancestors.iter()
    }
}
