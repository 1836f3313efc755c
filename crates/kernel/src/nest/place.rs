//! Indexing with one index per line by one-hot comparison: each element compares its own position with the index.

use super::push::{holding, runs};
use super::{IndexCheck, Nest, Operand, Origin, Refusal, Slot};
use crate::{Compute, ValueId};
use kiln_ir::{Binary, Comparison, DType, Reduction, Scalar, TensorType, UpdateMode};

impl Nest {
    /// Gathers elements along the axis. Where the region reads whole lines anyway, the one element of each line is the
    /// sum of the line with all other elements replaced by 0, or in an exact region their maximum. Otherwise elements are loaded by index.
    pub(super) fn gather(
        &mut self,
        operands: &[Operand],
        axis: usize,
        ty: TensorType,
    ) -> Result<Slot, Refusal> {
        let (x, index) = (self.tensor(&operands[0])?, self.tensor(&operands[1])?);
        let length = self.ty(x).shape[axis];
        let crossed = self.reduces() || self.state(x).origin == Origin::Computed || length == 1;
        if ty.shape[axis] != 1 || !crossed {
            return self.gather_from_input([x, index], axis, ty);
        }
        if self.scans() {
            return Err(Refusal::NoKernel);
        }
        let here = self.matches_index("gather", x, index, axis)?;
        // A sum loses the sign of -0, a maximum does not.
        let (other, reduction) = match ty.dtype {
            dtype if dtype.is_bool() => (Scalar::Bool(false), Reduction::Max),
            dtype if dtype.is_float() && self.exact => (Scalar::Float(f64::NEG_INFINITY), Reduction::Max),
            dtype if dtype.is_float() => (Scalar::Float(0.0), Reduction::Sum),
            _integer => (Scalar::Int(0), Reduction::Sum),
        };
        let other = self.value(Compute::Constant(other), ty.dtype);
        let mut value = self.value(Compute::Select(here, self.state(x).value, other), ty.dtype);
        if length != 1 {
            self.mark(x, &[axis])?;
            value = self.value(Compute::Reduce(reduction, value), ty.dtype);
        }
        let kept = self.state(x).axes.iter().filter(|(at, _)| *at as usize != axis).copied().collect();
        Ok(self.computed(ty, value, kept))
    }

    /// Scatters into the base: replaces or combines one element of each line along the axis.
    pub(super) fn scatter(
        &mut self,
        operands: &[Operand],
        axis: usize,
        mode: UpdateMode,
        ty: TensorType,
    ) -> Result<Slot, Refusal> {
        let (base, index) = (self.tensor(&operands[0])?, self.tensor(&operands[1])?);
        let source = self.tensor(&operands[2])?;
        if self.ty(index).shape[axis] != 1 {
            return Err(Refusal::NoKernel);
        }
        let here = self.matches_index("scatter", base, index, axis)?;
        self.same_axes(index, source)?;
        let (base_value, source) = (self.state(base).value, self.state(source).value);
        let written = match mode.binary() {
            Some(function) => self.value(Compute::Binary(function, base_value, source), ty.dtype),
            None => source,
        };
        let value = self.value(Compute::Select(here, written, base_value), ty.dtype);
        self.like(base, ty, value)
    }

    /// Whether an element of `x` is the one of its line that the index, of length 1 along the axis, points to.
    fn matches_index(
        &mut self,
        op: &'static str,
        x: Slot,
        index: Slot,
        axis: usize,
    ) -> Result<ValueId, Refusal> {
        self.same_axes_where(x, index, |at| at != axis)?;
        let (checked, _, dtype) = self.checked_index(op, index, axis, self.ty(x).shape[axis]);
        let position = self.position(x, axis, dtype);
        Ok(self.value(Compute::Compare(Comparison::Eq, position, checked), DType::Bool))
    }

    /// An index along an axis of that length, with a bounds check, and the length; both of the returned dtype.
    pub(super) fn checked_index(
        &mut self,
        op: &'static str,
        index: Slot,
        axis: usize,
        length: usize,
    ) -> (ValueId, ValueId, DType) {
        let dtype = holding(self.ty(index).dtype, length);
        let value = self.cast(self.state(index).value, dtype);
        let bound = self.value(Compute::Constant(Scalar::from(length)), dtype);
        let checked = self.value(Compute::Checked(value, bound), dtype);
        self.checks.push(IndexCheck { value: checked, op, axis, length, index });
        (checked, bound, dtype)
    }

    /// The position along an axis.
    fn position(&mut self, x: Slot, axis: usize, dtype: DType) -> ValueId {
        let run = runs(&self.state(x).axes, self.ty(x).shape.rank()).swap_remove(axis);
        let mut position: Option<ValueId> = None;
        for atom in run {
            let inner = self.value(Compute::Index(u32::from(atom)), dtype);
            position = Some(match position {
                Some(outer) => {
                    let extent = Scalar::from(self.atoms.extent(atom));
                    let extent = self.value(Compute::Constant(extent), dtype);
                    let outer = self.value(Compute::Binary(Binary::Mul, outer, extent), dtype);
                    self.value(Compute::Binary(Binary::Add, outer, inner), dtype)
                }
                None => inner,
            });
        }
        position.unwrap_or_else(|| self.value(Compute::Constant(Scalar::Int(0)), dtype))
    }
}
