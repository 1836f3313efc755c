//! Savepoints: undo of ops pushed to a loop nest.

use super::atom::AtomsSavepoint;
use super::{Checked, Nest, Origin};
use crate::ValueId;

/// A savepoint of a region, for [`Nest::rollback`].
#[derive(Debug)]
pub struct Savepoint {
    atoms: AtomsSavepoint,
    values: usize,
    slots: usize,
    product: Option<ValueId>,
    num_inputs: usize,
    padded: usize,
    indexed: usize,
    demoted: usize,
    checks: usize,
    checked: Checked,
}

impl Nest {
    /// Creates a savepoint, in constant time.
    ///
    /// ```
    /// use kiln_ir::{DType, Op, TensorType, Unary};
    /// use kiln_kernel::Nest;
    ///
    /// let ty = TensorType::new([8], DType::F32);
    /// let mut nest = Nest::default();
    /// let x = nest.input(ty);
    /// let before = nest.savepoint();
    /// nest.push(&Op::Unary(Unary::Exp), &[x.into()], &[ty]).unwrap();
    /// assert_eq!(nest.num_values(), 2);
    /// nest.rollback(before);
    /// assert_eq!(nest.num_values(), 1);
    /// ```
    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            atoms: self.atoms.savepoint(),
            values: self.values.len(),
            slots: self.slots.len(),
            product: self.product,
            num_inputs: self.num_inputs,
            padded: self.padded.len(),
            indexed: self.indexed.len(),
            demoted: self.demoted.len(),
            checks: self.checks.len(),
            checked: self.checked.clone(),
        }
    }

    /// Undoes all ops pushed since the savepoint, in the time that pushing took. Later slots become invalid. The
    /// savepoint must be of this region, and of a state that no earlier rollback has undone.
    pub fn rollback(&mut self, to: Savepoint) {
        for slot in self.demoted.drain(to.demoted..) {
            self.slots[slot].origin = Origin::Computed;
        }
        self.atoms.rollback(to.atoms);
        if !self.atoms.any_reduced() {
            self.reduced.clear();
        }
        self.values.truncate(to.values);
        self.slots.truncate(to.slots);
        self.padded.truncate(to.padded);
        self.indexed.truncate(to.indexed);
        self.checks.truncate(to.checks);
        (self.product, self.num_inputs, self.checked) = (to.product, to.num_inputs, to.checked);
    }
}
