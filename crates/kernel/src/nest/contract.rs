//! Matmuls in a region.

use super::push::runs;
use super::{AxisAtoms, Checked, Nest, Operand, Origin, Refusal, Slot};
use crate::Compute;
use kiln_ir::{Binary, DType, Reduction, TensorType};

impl Nest {
    /// `[.., m, k] x [.., k, n]`: a sum of products over `k`. If `m`, `n` or `k` is 1, it becomes an ordinary reduction
    /// or an elementwise op instead of a matmul.
    pub(super) fn matmul(&mut self, operands: &[Operand], ty: TensorType) -> Result<Slot, Refusal> {
        if self.product.is_some() || self.reduces() {
            return Err(Refusal::Product);
        }
        let (a, b) = (self.tensor(&operands[0])?, self.tensor(&operands[1])?);
        let rank = ty.shape.rank();
        let inner = self.ty(a).shape[rank - 1];
        let is_vector = ty.shape[rank - 2] == 1 || ty.shape[rank - 1] == 1;
        // The engine's own kernel adds in another order, and one product is rounded once, after a 0 is added to it.
        if self.exact && ty.dtype.is_float() && (inner == 1 || is_vector) {
            return Err(Refusal::NoKernel);
        }
        let (left, right) = (runs(&self.state(a).axes, rank), runs(&self.state(b).axes, rank));
        for axis in 0..rank - 2 {
            self.atoms.unify(&left[axis], &right[axis])?;
        }
        self.atoms.unify(&left[rank - 1], &right[rank - 2])?;
        self.mark(a, &[rank - 1])?;
        let rows = self.state(a).axes.iter().filter(|(axis, _)| (*axis as usize) < rank - 1);
        let columns = self.state(b).axes.iter().filter(|(axis, _)| *axis as usize == rank - 1);
        let axes: AxisAtoms = rows.chain(columns).copied().collect();
        let narrow = matches!(self.ty(a).dtype, DType::F16 | DType::BF16);
        let working = if narrow { DType::F32 } else { ty.dtype };
        let (a, b) = (self.state(a).value, self.state(b).value);
        let (a, b) = (self.cast(a, working), self.cast(b, working));
        let mut value = self.value(Compute::Binary(Binary::Mul, a, b), working);
        if inner != 1 {
            value = self.value(Compute::Reduce(Reduction::Sum, value), working);
            if !is_vector {
                self.product = Some(value);
            }
        }
        let value = self.cast(value, ty.dtype);
        let y = self.computed(ty, value, axes);
        self.demote(y);
        Ok(y)
    }

    /// Demotes values computed before a matmul that lack axes of its result. They are recomputed for each of its points
    /// and cannot be stored.
    fn demote(&mut self, product: Slot) {
        let space = self.parallel_leaves(self.state(product));
        let lacking: alloc::vec::Vec<usize> = (0..product.0 as usize)
            .filter(|&i| self.slots[i].origin == Origin::Computed && !self.covers(&self.slots[i], &space))
            .collect();
        for i in lacking {
            self.slots[i].origin = Origin::Prologue;
            self.demoted.push(i);
            self.checked = Checked::default();
        }
    }
}
