//! Values of a region that are constant across rows: column reductions, and their users.

use super::{AtomId, AxisAtoms, Nest, Origin, Refusal, Slot, SlotState};
use alloc::vec::Vec;

impl Nest {
    /// Creates a region that may also have column reductions: over all rows of its row reductions. It may compute with
    /// the results.
    ///
    /// ```
    /// use kiln_ir::{Axes, DType, Op, Reduction, TensorType};
    /// use kiln_kernel::Nest;
    ///
    /// let ty = |rows, columns| TensorType::new([rows, columns], DType::F32);
    /// let sum = |axis| Op::Reduce { reduction: Reduction::Sum, axes: Axes::one(axis) };
    /// for (mut nest, both) in [(Nest::with_columns(), true), (Nest::default(), false)] {
    ///     let x = nest.input(ty(8, 32));
    ///     nest.push(&sum(1), &[x.into()], &[ty(8, 1)]).unwrap();
    ///     assert_eq!(nest.push(&sum(0), &[x.into()], &[ty(1, 32)]).is_ok(), both);
    /// }
    /// ```
    pub fn with_columns() -> Nest {
        Nest { columns: true, ..Nest::default() }
    }

    /// The bytes per column of values reduced over all rows; 0 without such reductions.
    pub fn column_reduce_bytes(&self) -> usize {
        let across = self.values.iter().filter(|value| value.compute.column_reduce().is_some());
        across.map(|value| value.dtype.accumulator().size()).sum()
    }

    /// Whether a reduction along some axes of a tensor is a reduction over the rows of the region.
    ///
    /// # Errors
    /// When the operand already depends on a column reduction.
    pub(super) fn is_over_rows(&self, x: &SlotState, along: &[usize]) -> Result<bool, Refusal> {
        if !self.may_have_columns() {
            return Ok(false);
        }
        let leaves = self.leaves(x);
        let (over, kept): (AxisAtoms, AxisAtoms) =
            leaves.into_iter().partition(|(axis, _)| along.contains(&(*axis as usize)));
        let space = self.space();
        let is_over = !space.is_empty()
            && over.len() == space.len()
            && over.iter().all(|(_, atom)| space.contains(atom))
            && self.is_row(kept.iter().map(|&(_, atom)| atom));
        if is_over && self.values[x.value as usize].across { Err(Refusal::Reduction) } else { Ok(is_over) }
    }

    /// Whether a tensor with these axes is constant across the rows of the region.
    pub(super) fn is_column(&self, axes: &AxisAtoms) -> bool {
        self.may_have_columns() && {
            let leaves: Vec<AtomId> = axes.iter().flat_map(|&(_, atom)| self.atoms.leaves_of(atom)).collect();
            self.is_row(leaves.into_iter()) && !self.space().is_empty()
        }
    }

    fn may_have_columns(&self) -> bool {
        self.columns && self.reduces() && !self.scans() && self.product.is_none()
    }

    /// Whether these atoms are exactly the reduced atoms of the region.
    fn is_row(&self, atoms: impl ExactSizeIterator<Item = AtomId>) -> bool {
        atoms.len() == self.atoms.reduced().count()
            && atoms.into_iter().all(|atom| self.atoms.is_reduced(atom))
    }

    /// Checks that a new tensor is computed either for rows or for columns.
    pub(super) fn check_column(&self, slot: &SlotState) -> Result<(), Refusal> {
        let value = &self.values[slot.value as usize];
        let holds = match slot.origin {
            Origin::Computed | Origin::Free | Origin::Prologue => !value.across,
            Origin::Column => {
                !value.reduces
                    && self.may_have_columns()
                    && self.is_row(self.leaves(slot).iter().map(|&(_, a)| a))
            }
            Origin::Input | Origin::View => true,
        };
        if holds { Ok(()) } else { Err(Refusal::Space) }
    }

    /// Whether some of these outputs are constant across rows.
    pub(crate) fn has_columns(&self, outputs: &[Slot]) -> bool {
        outputs.iter().any(|&slot| self.state(slot).origin == Origin::Column)
    }
}
