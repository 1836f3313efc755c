//! Fusion groups: the choice of ops that run as one kernel.
//!
//! Ops are visited in recording order. Each tries to join the groups of its operands. A loop nest decides whether the
//! axes match, and ancestor sets whether merging would create a cycle. Groups with a common consumer are merged if they
//! fit. An op that joins no group starts its own.

mod bindings;
mod body;
mod columns;
mod epilogue;
mod order;
mod rematerialize;
mod weights;

use super::graph::{Graph, ValueNumber};
use crate::limits::Limits;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use body::Body;
use kiln_ir::{Op, Pattern, Program, Role, TensorType};
use kiln_kernel::Nest;
use order::GroupSet;
use smallvec::SmallVec;

/// The maximum number of members, of both groups together, for which a refused merge is retried every time.
const MAX_RETRIED: usize = 64;

/// The minimum number of elements of a common input for which otherwise unrelated kernels are merged.
pub(super) const WORTH_SHARING: usize = 1 << 14;

/// A set of ops that run as one step, or a single op.
pub(crate) struct Group {
    pub(crate) kind: Kind,
    /// Member entries, ascending.
    pub(crate) members: Vec<u32>,
    /// The members that another group computes too, ascending: cheaper to recompute than to store and load.
    pub(crate) repeated: Vec<u32>,
    /// The members that reduce other members over all rows (column reductions) and their consumers, ascending. They
    /// come after all other members.
    columns: Vec<u32>,
    body: Body,
    /// The groups that produce its operands, each once. Some may have been merged into others since.
    before: Vec<usize>,
    /// The ancestors: groups of the same [window](order) that must run before.
    ancestors: GroupSet,
    /// The groups of its window that use its results. Some may have been merged into others since.
    followers: Vec<usize>,
    /// By refused group, the number of members of both at the refusal.
    refused: BTreeMap<usize, usize>,
    pub(crate) notes: Vec<String>,
    /// Matches the pattern of the emitted region's program.
    pub(crate) pattern: fn(&Program) -> Pattern,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A fused kernel.
    Kernel,
    /// An anchor op, which runs by the engine's own kernel, with elementwise ops on its result.
    Anchor(u32),
    /// A single op.
    Alone,
    /// A group that was merged into another.
    Gone,
}

/// All groups.
pub(crate) struct Groups {
    pub(crate) groups: Vec<Group>,
}

/// Finds the groups of a recording.
pub(crate) fn groups(graph: &Graph<'_>, limits: Limits) -> Groups {
    let mut finder = Finder {
        graph,
        groups: Vec::new(),
        of_entry: alloc::vec![None; graph.structure.entries.len()],
        became: Vec::new(),
        loaders: BTreeMap::new(),
        limits,
    };
    for entry in 0..graph.structure.entries.len() as u32 {
        if graph.needed[entry as usize] {
            finder.visit(entry);
        }
    }
    finder.join_columns();
    finder.rematerialize();
    finder.take_quantized();
    finder.fuse_epilogues();
    finder.rename_merged();
    Groups { groups: finder.groups }
}

struct Finder<'a> {
    graph: &'a Graph<'a>,
    groups: Vec<Group>,
    of_entry: Vec<Option<usize>>,
    /// Union-find parents: the group that each group was merged into, or itself.
    became: Vec<usize>,
    /// Kernels that load a large value, by value.
    loaders: BTreeMap<ValueNumber, Vec<usize>>,
    /// The machine's limits. Matmuls without an epilogue are [`Kind::Alone`].
    limits: Limits,
}

impl Finder<'_> {
    fn visit(&mut self, entry: u32) {
        let op = &self.graph.entry(entry).op;
        let in_regions = self.limits.kinds.contains(op.kind());
        let is_load = self.limits.indexed_loads && matches!(op, Op::Take { .. });
        match op.info().role {
            Role::View | Role::Constant => {}
            Role::Anchor | Role::Fusable if !in_regions => self.start(entry, Kind::Alone, Body::default()),
            Role::Alone if !(in_regions && is_load) => self.start(entry, Kind::Alone, Body::default()),
            Role::Anchor if !self.limits.continue_products => self.start(entry, Kind::Alone, Body::default()),
            Role::Anchor => self.start(entry, Kind::Anchor(entry), self.empty(Kind::Anchor(entry), &[])),
            Role::Alone | Role::Fusable if !self.suits_kernels(entry) => {
                self.start(entry, Kind::Alone, Body::default());
            }
            Role::Alone | Role::Fusable => self.visit_fusable(entry),
        }
    }

    /// Whether an op picks few elements of each line, and a kernel would iterate over full lines, since it has no loads
    /// by index.
    fn needs_full_lines(&self, entry: u32) -> bool {
        !self.limits.indexed_loads && matches!(self.graph.entry(entry).op, Op::Gather { .. })
    }

    /// Whether a kernel of the machine can bind the operands and compute with their dtypes.
    fn suits_kernels(&self, entry: u32) -> bool {
        let recorded = self.graph.entry(entry);
        let computes = |ty: &TensorType| self.limits.dtypes.contains(ty.dtype);
        let operands = self.graph.operands(entry);
        operands.len() <= self.limits.inputs
            && recorded.results.iter().all(computes)
            && operands.iter().all(|&value| computes(&self.graph.types[value as usize]))
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
        let mut body = Body::default();
        let alone = self.needs_full_lines(entry) || self.push(entry, &[], &mut body).is_err();
        let kind = if alone { Kind::Alone } else { Kind::Kernel };
        self.start(entry, kind, body);
    }

    /// Whether a result is used by a reduction, and otherwise only by fusable ops, so that it need not be stored. In
    /// the epilogue of a matmul it would be stored.
    fn is_reduced_next(&self, entry: u32) -> bool {
        let result = self.graph.first[entry as usize];
        if self.graph.is_alive(result) || matches!(self.graph.entry(entry).op, Op::Reduce { .. }) {
            return false;
        }
        let users = &self.graph.users[result as usize];
        let is_reduction = |&user: &u32| matches!(self.graph.entry(user).op, Op::Reduce { .. });
        users.iter().any(is_reduction)
            && users.iter().all(|&user| self.graph.entry(user).op.info().role == Role::Fusable)
    }

    /// The groups that produce the operands, in ascending order, if they can still grow.
    fn candidates(&self, entry: u32) -> Vec<usize> {
        let mut candidates: Vec<usize> = self.makers(entry).into_iter().collect();
        candidates.retain(|&group| {
            self.is_open(group) && matches!(self.groups[group].kind, Kind::Kernel | Kind::Anchor(_))
        });
        candidates.sort_unstable();
        candidates.dedup();
        candidates
    }

    /// The groups that produce the operands of an entry, or the bases of operands that are views.
    fn makers(&self, entry: u32) -> SmallVec<[usize; 4]> {
        let operands = self.graph.operands(entry);
        operands.iter().filter_map(|&value| self.maker(value)).collect()
    }

    fn maker(&self, value: ValueNumber) -> Option<usize> {
        let root = self.graph.roots[value as usize];
        let (entry, _) = self.graph.producers[root as usize]?;
        self.of_entry[entry as usize]
    }

    fn start(&mut self, entry: u32, kind: Kind, body: Body) {
        let group = self.groups.len();
        self.became.push(group);
        self.of_entry[entry as usize] = Some(group);
        self.groups.push(Group::new(kind, entry, body));
        self.add_before(group, &self.makers(entry));
        if kind == Kind::Kernel {
            self.note_loads(group, entry);
        }
    }

    /// An empty body. The body of an anchor op holds its result. With `columns`, the body may hold column reductions.
    fn empty(&self, kind: Kind, columns: &[u32]) -> Body {
        let nest = match (self.limits.exact, columns) {
            (true, _) => Nest::exact(),
            (false, []) => Nest::default(),
            (false, _) => Nest::with_columns(),
        };
        let mut body = Body::new(nest);
        if let Kind::Anchor(anchor) = kind {
            let result = self.graph.first[anchor as usize];
            let slot = body.nest.input(self.graph.types[result as usize]);
            body.insert(result, slot);
        }
        body
    }

    fn note_loads(&mut self, group: usize, entry: u32) {
        for value in self.graph.operands(entry) {
            if self.graph.types[value as usize].num_elements() >= WORTH_SHARING {
                self.loaders.entry(value).or_default().push(group);
            }
        }
    }

    /// Adds an entry to a group. If it is refused, the group is unchanged.
    fn join(&mut self, group: usize, entry: u32) -> Result<(), String> {
        let makers = self.makers(entry);
        if makers.iter().any(|&maker| maker != group && self.comes_after(maker, group)) {
            return Err("an op outside the region must run in between".to_string());
        }
        if self.groups[group].members.len() >= self.limits.kernel_ops {
            return Err("the region has the maximum number of ops".to_string());
        }
        if self.needs_full_lines(entry)
            && !self.graph.is_made_by(self.graph.operands(entry)[0], |maker| self.groups[group].has(maker))
        {
            return Err("it gathers from memory".to_string());
        }
        self.extend(group, &[entry], None)?;
        let state = &mut self.groups[group];
        state.members.push(entry);
        self.of_entry[entry as usize] = Some(group);
        self.add_before(group, &makers);
        self.note_loads(group, entry);
        Ok(())
    }

    /// Pushes entries that come after all members of a group into its body. `members` are the members of the resulting
    /// group, by default the group's own. If an entry is refused, restores the body.
    fn extend(&mut self, group: usize, entries: &[u32], members: Option<&[u32]>) -> Result<(), String> {
        let mut body = core::mem::take(&mut self.groups[group].body);
        let savepoint = body.savepoint();
        let state = &self.groups[group];
        let members = members.unwrap_or(&state.members);
        let pushed = entries.iter().try_for_each(|&entry| self.push(entry, members, &mut body));
        let accepted = pushed
            .and_then(|()| self.accepts(state.kind, &body))
            .and_then(|()| self.binds_few(members.iter().chain(entries).copied(), &state.repeated));
        if accepted.is_err() {
            body.rollback(savepoint);
        }
        self.groups[group].body = body;
        accepted
    }

    /// Adds an entry to a kernel that loads one of its operands, which saves a second load.
    fn join_sibling(&mut self, entry: u32) -> bool {
        for value in self.graph.operands(entry) {
            let Some(loaders) = self.loaders.get(&value) else { continue };
            let loaders: SmallVec<[usize; 4]> = loaders.iter().rev().take(4).copied().collect();
            for loader in loaders {
                let is_kernel = self.is_open(loader) && self.groups[loader].kind == Kind::Kernel;
                if is_kernel && self.join(loader, entry).is_ok() {
                    return true;
                }
            }
        }
        false
    }

    /// Merges two groups if the result fits one kernel.
    fn merge(&mut self, into: usize, other: usize) {
        let kind = match (self.groups[into].kind, self.groups[other].kind) {
            (Kind::Kernel, Kind::Kernel) => Kind::Kernel,
            (Kind::Anchor(anchor), Kind::Kernel) | (Kind::Kernel, Kind::Anchor(anchor)) => {
                Kind::Anchor(anchor)
            }
            (Kind::Anchor(_), Kind::Anchor(_))
            | (Kind::Alone | Kind::Gone, _)
            | (_, Kind::Alone | Kind::Gone) => return,
        };
        if !self.may_merge(into, other) || self.is_between(into, other) || self.is_between(other, into) {
            return;
        }
        let members = self.members_of(into, other);
        let count = members.len();
        let built = match self.in_succession(into, other) {
            Some((first, second)) => self.append(first, second, members),
            None => self.build(kind, members, &[]),
        };
        if let Some(built) = built {
            self.absorb(into, other, kind, built);
        } else {
            self.groups[into].refused.insert(other, count);
        }
    }

    /// Whether a merge is worth trying: the groups are not too large for one kernel, and they have grown since an
    /// earlier refusal.
    fn may_merge(&self, into: usize, other: usize) -> bool {
        let [a, b] = [into, other].map(|group| &self.groups[group]);
        let (members, values) =
            (a.members.len() + b.members.len(), a.body.nest.num_values() + b.body.nest.num_values());
        let refused = [a.refused.get(&other), b.refused.get(&into)].into_iter().flatten().max();
        let has_grown =
            refused.is_none_or(|refused| members <= MAX_RETRIED || members > refused + refused / 8);
        // The sum overcounts values that both groups load.
        members <= self.limits.kernel_ops
            && values <= self.limits.kernel_ops + self.limits.inputs
            && has_grown
    }

    /// Orders two groups so that the members of the second can be pushed behind those of the first. Either all of them
    /// were recorded later, or the first does not depend on the second. The latter reorders the pushes, and is only
    /// done for large groups.
    fn in_succession(&self, a: usize, b: usize) -> Option<(usize, usize)> {
        let members = |group: usize| &self.groups[group].members;
        let lies_before = |a: usize, b: usize| members(a).last() < members(b).first();
        let is_large = members(a).len() + members(b).len() > MAX_RETRIED;
        let follows = |first: usize, second: usize| {
            let is_free = is_large && !self.comes_after(first, second);
            self.groups[second].kind == Kind::Kernel && (is_free || lies_before(first, second))
        };
        let (more, less) = if members(a).len() < members(b).len() { (b, a) } else { (a, b) };
        [(more, less), (less, more)].into_iter().find(|&(first, second)| follows(first, second))
    }

    /// The result of [`build`](Finder::build) for two such groups, in time proportional to the second: it reuses the
    /// body of the first.
    fn append(&mut self, first: usize, second: usize, members: Vec<u32>) -> Option<Built> {
        let entries = self.groups[second].members.clone();
        self.extend(first, &entries, Some(&members)).ok()?;
        Some(Built { members, body: core::mem::take(&mut self.groups[first].body) })
    }

    /// The members of two groups, ascending.
    fn members_of(&self, a: usize, b: usize) -> Vec<u32> {
        let mut members: Vec<u32> =
            self.groups[a].members.iter().chain(&self.groups[b].members).copied().collect();
        members.sort_unstable();
        members
    }

    /// Builds a group of these members, `columns` last; `None` if it is no valid or worthwhile kernel.
    fn build(&self, kind: Kind, members: Vec<u32>, columns: &[u32]) -> Option<Built> {
        self.build_repeating(kind, members, columns, &[])
    }

    /// As [`build`](Finder::build), where other groups compute and store the members in `repeated`, ascending.
    fn build_repeating(
        &self,
        kind: Kind,
        members: Vec<u32>,
        columns: &[u32],
        repeated: &[u32],
    ) -> Option<Built> {
        self.binds_few(members.iter().copied(), repeated).ok()?;
        let mut body = self.empty(kind, columns);
        for entry in in_order(&members, columns) {
            if kind != Kind::Anchor(entry) {
                self.push(entry, &members, &mut body).ok()?;
            }
        }
        self.accepts(kind, &body).ok()?;
        Some(Built { members, body })
    }

    /// Merges a group into another, which becomes `built`.
    fn absorb(&mut self, into: usize, other: usize, kind: Kind, built: Built) {
        let gone = &mut self.groups[other];
        for &entry in &gone.members {
            self.of_entry[entry as usize] = Some(into);
        }
        gone.kind = Kind::Gone;
        gone.members.clear();
        gone.body = Body::default();
        let notes = core::mem::take(&mut gone.notes);
        let state = &mut self.groups[into];
        state.kind = kind;
        state.take(built);
        state.notes.extend(notes);
        self.merge_into(other, into);
    }
}

/// The members and the body of a group.
struct Built {
    members: Vec<u32>,
    body: Body,
}

/// The members in execution order: those in `last` come last.
fn in_order<'a>(members: &'a [u32], last: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
    let first = members.iter().filter(|entry| last.binary_search(entry).is_err());
    first.chain(last).copied()
}

/// The dtype of a plain number among an entry's operands: that of the tensor operands for comparisons, else of the
/// result.
pub(crate) fn number_dtype(graph: &Graph<'_>, entry: u32) -> kiln_ir::DType {
    let recorded = graph.entry(entry);
    let beside = graph.operands(entry).last().map(|&value| graph.types[value as usize].dtype);
    let own = recorded.results[0].dtype;
    if matches!(recorded.op, Op::Compare(_)) { beside.unwrap_or(own) } else { own }
}

impl Group {
    fn new(kind: Kind, entry: u32, body: Body) -> Group {
        Group {
            kind,
            members: alloc::vec![entry],
            repeated: Vec::new(),
            columns: Vec::new(),
            body,
            before: Vec::new(),
            ancestors: GroupSet::default(),
            followers: Vec::new(),
            refused: BTreeMap::new(),
            notes: Vec::new(),
            pattern: |_| Pattern::Loop,
        }
    }

    fn take(&mut self, built: Built) {
        (self.members, self.body) = (built.members, built.body);
    }

    /// The members in execution order.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = u32> + '_ {
        in_order(&self.members, &self.columns)
    }

    /// Whether an entry is a member.
    pub(crate) fn has(&self, entry: u32) -> bool {
        self.members.binary_search(&entry).is_ok()
    }

    /// The direct predecessors, each once, for the order of steps.
    pub(crate) fn before(&self) -> &[usize] {
        &self.before
    }
}
