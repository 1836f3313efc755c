//! Axis factors (atoms): the factors into which reshapes split axes.

use super::Refusal;
use alloc::vec::Vec;
use smallvec::SmallVec;

pub(crate) type AtomId = u16;

/// A run of atoms, outermost first.
pub(crate) type Run = SmallVec<[AtomId; 4]>;

/// All atoms of a region. Atoms are split and identified, never removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Atoms {
    atoms: Vec<Atom>,
    /// The number of atoms at the last call of [`settle`](Atoms::settle).
    settled: usize,
    /// Whether one of those has been split, unified with another of them, or reduced since.
    changed: bool,
    /// The previous state of each changed atom, in the order of the changes, for [`rollback`](Atoms::rollback).
    journal: Vec<(AtomId, Atom)>,
}

/// A savepoint of the atoms.
#[derive(Debug)]
pub(super) struct AtomsSavepoint {
    atoms: usize,
    settled: usize,
    changed: bool,
    journal: usize,
}

#[derive(Clone, Copy, Debug)]
struct Atom {
    extent: usize,
    /// Whether the atom is reduced; set for leaves only.
    reduced: bool,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Leaf,
    /// Unified with another atom.
    Same(AtomId),
    /// Split into an outer and an inner atom.
    Split(AtomId, AtomId),
}

impl Atoms {
    /// Whether an atom of the last call of [`settle`](Atoms::settle) has changed since.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed
    }

    /// Starts to track changes of the current atoms.
    pub(crate) fn settle(&mut self) {
        self.settled = self.atoms.len();
        self.changed = false;
    }

    /// Records an atom in the journal before a change.
    fn change(&mut self, atom: AtomId) -> &mut Atom {
        self.changed |= (atom as usize) < self.settled;
        self.journal.push((atom, self.atoms[atom as usize]));
        &mut self.atoms[atom as usize]
    }

    /// Creates a savepoint.
    pub(super) fn savepoint(&self) -> AtomsSavepoint {
        let Atoms { atoms, settled, changed, journal } = self;
        AtomsSavepoint { atoms: atoms.len(), settled: *settled, changed: *changed, journal: journal.len() }
    }

    /// Restores the state of a savepoint.
    pub(super) fn rollback(&mut self, to: AtomsSavepoint) {
        for (atom, before) in self.journal.drain(to.journal..).rev() {
            self.atoms[atom as usize] = before;
        }
        self.atoms.truncate(to.atoms);
        (self.settled, self.changed) = (to.settled, to.changed);
    }

    /// Adds an atom of that extent.
    pub(crate) fn add(&mut self, extent: usize) -> AtomId {
        self.atoms.push(Atom { extent, reduced: false, state: State::Leaf });
        (self.atoms.len() - 1) as AtomId
    }

    pub(crate) fn extent(&self, atom: AtomId) -> usize {
        self.atoms[atom as usize].extent
    }

    /// The leaves of an atom.
    pub(crate) fn leaves_of(&self, atom: AtomId) -> Run {
        let mut leaves = Run::new();
        self.collect(atom, &mut leaves);
        leaves
    }

    fn collect(&self, atom: AtomId, leaves: &mut Run) {
        match self.atoms[atom as usize].state {
            State::Leaf => leaves.push(atom),
            State::Same(other) => self.collect(other, leaves),
            State::Split(outer, inner) => {
                self.collect(outer, leaves);
                self.collect(inner, leaves);
            }
        }
    }

    /// Whether a leaf is reduced.
    pub(crate) fn is_reduced(&self, leaf: AtomId) -> bool {
        self.atoms[leaf as usize].reduced
    }

    pub(crate) fn set_reduced(&mut self, leaf: AtomId) {
        self.change(leaf).reduced = true;
    }

    pub(crate) fn any_reduced(&self) -> bool {
        self.reduced().next().is_some()
    }

    /// The reduced leaves.
    pub(crate) fn reduced(&self) -> impl Iterator<Item = AtomId> + '_ {
        let leaf = |(_, atom): &(usize, &Atom)| atom.reduced && matches!(atom.state, State::Leaf);
        self.atoms.iter().enumerate().filter(leaf).map(|(id, _)| id as AtomId)
    }

    pub(crate) fn reduced_len(&self) -> usize {
        self.reduced().map(|atom| self.extent(atom)).product()
    }

    /// Splits a leaf into an outer part of that extent and an inner part; `None` if the extent does not divide it.
    pub(crate) fn split(&mut self, leaf: AtomId, outer: usize) -> Option<(AtomId, AtomId)> {
        let Atom { extent, reduced, .. } = self.atoms[leaf as usize];
        if outer == 0 || !extent.is_multiple_of(outer) {
            return None;
        }
        let parts = (self.add(outer), self.add(extent / outer));
        self.atoms[parts.0 as usize].reduced = reduced;
        self.atoms[parts.1 as usize].reduced = reduced;
        self.change(leaf).state = State::Split(parts.0, parts.1);
        Some(parts)
    }

    /// Unifies two runs of the same total extent, splitting atoms as needed.
    pub(crate) fn unify(&mut self, a: &[AtomId], b: &[AtomId]) -> Result<(), Refusal> {
        let mut a = self.reversed(a);
        let mut b = self.reversed(b);
        // The stacks hold the remaining atoms, outermost last.
        while let (Some(&x), Some(&y)) = (a.last(), b.last()) {
            let (long, short) = (self.extent(x), self.extent(y));
            if x == y {
                a.pop();
                b.pop();
            } else if long == short {
                self.join(x, y);
                a.pop();
                b.pop();
                self.refresh(&mut a);
                self.refresh(&mut b);
            } else if long > short {
                self.split(x, short).ok_or(Refusal::Axes)?;
                self.refresh(&mut a);
                self.refresh(&mut b);
            } else {
                self.split(y, long).ok_or(Refusal::Axes)?;
                self.refresh(&mut a);
                self.refresh(&mut b);
            }
        }
        if a.is_empty() && b.is_empty() { Ok(()) } else { Err(Refusal::Axes) }
    }

    fn join(&mut self, a: AtomId, b: AtomId) {
        // The older atom is kept, so that a new one does not change earlier ones.
        let (into, other) = (a.min(b), a.max(b));
        if self.is_reduced(other) && !self.is_reduced(into) {
            self.change(into).reduced = true;
        }
        self.change(other).state = State::Same(into);
    }

    fn reversed(&self, run: &[AtomId]) -> Run {
        let mut leaves: Run = run.iter().flat_map(|&atom| self.leaves_of(atom)).collect();
        leaves.reverse();
        leaves
    }

    /// Replaces split or unified atoms of a stack by their leaves.
    fn refresh(&self, stack: &mut Run) {
        if stack.iter().all(|&atom| matches!(self.atoms[atom as usize].state, State::Leaf)) {
            return;
        }
        *stack = stack
            .iter()
            .flat_map(|&atom| {
                let mut leaves = self.leaves_of(atom);
                leaves.reverse();
                leaves
            })
            .collect();
    }
}
