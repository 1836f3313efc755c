//! Reads by index: each point loads the element of an input that an index selects.
//!
//! The indexed axis has no atoms. The load has the strides of the other axes, and an offset along the indexed one.

use super::push::holding;
use super::{AxisAtoms, IndexedLoad, Nest, Operand, Origin, Refusal, Slot, SlotState};
use crate::{Compute, ValueId};
use kiln_ir::{Binary, Comparison, DType, Scalar, TensorType};

impl Nest {
    /// Reads slices of an input: the axes of the index replace the axis.
    pub(super) fn take(
        &mut self,
        operands: &[Operand],
        axis: usize,
        ty: TensorType,
    ) -> Result<Slot, Refusal> {
        let (x, index) = (self.tensor(&operands[0])?, self.tensor(&operands[1])?);
        let value = self.load_at("take", x, index, axis)?;
        let added = self.ty(index).rank();
        let (of_x, of_index) = (self.state(x).axes.clone(), self.state(index).axes.clone());
        let before = of_x.iter().filter(|(at, _)| (*at as usize) < axis).copied();
        let along = of_index.iter().map(|&(at, atom)| (at + axis as u8, atom));
        let after = of_x.iter().filter(|(at, _)| *at as usize > axis);
        let after = after.map(|&(at, atom)| (at - 1 + added as u8, atom));
        let axes: AxisAtoms = before.chain(along).chain(after).collect();
        Ok(self.computed(ty, value, axes))
    }

    /// Reads elements of an input: the index has the lengths of the input along the other axes.
    pub(super) fn gather_from_input(
        &mut self,
        [x, index]: [Slot; 2],
        axis: usize,
        ty: TensorType,
    ) -> Result<Slot, Refusal> {
        let value = self.load_at("gather", x, index, axis)?;
        self.same_axes_where(x, index, |at| at != axis)?;
        self.like(index, ty, value)
    }

    /// The element of an input at an index along an axis. The index need not be within the axis: such an element is not
    /// read.
    fn load_at(&mut self, op: &'static str, x: Slot, index: Slot, axis: usize) -> Result<ValueId, Refusal> {
        let SlotState { ty, value, axes, origin } = self.state(x).clone();
        let Compute::Load(param) = self.values[value as usize].compute else { return Err(Refusal::NoKernel) };
        if origin != Origin::Input {
            return Err(Refusal::NoKernel);
        }
        let of_index = self.values[self.state(index).value as usize];
        if of_index.reduces || of_index.across || self.scans() {
            return Err(Refusal::Reduction);
        }
        let length = ty.shape[axis];
        let (checked, bound, dtype) = self.checked_index(op, index, axis, length);
        let mut condition = self.value(Compute::Compare(Comparison::Lt, checked, bound), DType::Bool);
        if dtype.is_signed_int() {
            let zero = self.value(Compute::Constant(Scalar::Int(0)), dtype);
            let low = self.value(Compute::Compare(Comparison::Le, zero, checked), DType::Bool);
            condition = self.value(Compute::Binary(Binary::And, low, condition), DType::Bool);
        }
        let offset = self.cast(checked, holding(DType::I32, length));
        let value = self.value(Compute::LoadAt { param, offset, condition }, ty.dtype);
        match self.indexed.iter().find(|load| load.value == value) {
            // The same elements are read again.
            Some(load) if load.axis == axis => return Ok(value),
            Some(_) => return Err(Refusal::Diagonal),
            None => self.indexed.push(IndexedLoad { value, axis, length }),
        }
        let axes = axes.into_iter().filter(|(at, _)| *at as usize != axis).collect();
        let ty = ty.with_shape(ty.shape.with(axis, 1));
        self.slot(SlotState { ty, value, axes, origin: Origin::Input });
        Ok(value)
    }
}
