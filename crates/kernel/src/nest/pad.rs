//! Guarded loads past the edges of operands: padding and concatenation.
//!
//! A padded axis is a separate axis. The operand is read along it with an offset, where the index is within the
//! operand; elsewhere memory is not accessed.

use super::push::{holding, runs};
use super::{AtomId, AxisAtoms, Nest, Operand, Origin, Refusal, Slot, SlotState};
use crate::{Compute, ValueId};
use kiln_ir::{Binary, Comparison, DType, PadAxis, Scalar, TensorType};
use smallvec::SmallVec;

/// An operand with padding before its first element.
#[derive(Clone, Debug)]
pub(super) struct Padded {
    /// The load.
    load: ValueId,
    /// The amount of padding before the first element along each axis.
    low: SmallVec<[usize; 6]>,
}

impl Nest {
    /// The number of padding elements before a load's first element along each axis; empty without padding.
    pub(crate) fn low_padding(&self, load: ValueId) -> &[usize] {
        self.padded.iter().find(|padded| padded.load == load).map_or(&[], |padded| &padded.low)
    }

    /// Pads an operand of the region.
    pub(super) fn pad(
        &mut self,
        operands: &[Operand],
        pads: &[PadAxis],
        ty: TensorType,
    ) -> Result<Slot, Refusal> {
        let Operand::Scalar(padding) = operands[1] else { return Err(Refusal::NoKernel) };
        let (mut value, inside, axes) = self.within(&operands[0], pads, ty)?;
        if !is_plain_zero(padding) {
            let padding = self.value(Compute::Constant(padding), ty.dtype);
            value = self.value(Compute::Select(inside, value, padding), ty.dtype);
        }
        Ok(self.slot(SlotState { ty, value, axes, origin: Origin::Free }))
    }

    /// Concatenates operands of the region along an axis.
    pub(super) fn concat(
        &mut self,
        operands: &[Operand],
        axis: usize,
        ty: TensorType,
    ) -> Result<Slot, Refusal> {
        /// The maximum number of operands: with more, the tests per element cost more than a separate kernel.
        const MAX_OPERANDS: usize = 4;
        if operands.len() > MAX_OPERANDS {
            return Err(Refusal::NoKernel);
        }
        let mut joined: Option<(ValueId, AxisAtoms)> = None;
        let mut low = 0;
        for operand in operands {
            let length = self.ty(self.tensor(operand)?).shape[axis];
            let mut pads: SmallVec<[PadAxis; 6]> = SmallVec::from_elem(PadAxis::default(), ty.rank());
            pads[axis] = PadAxis::new(low, ty.shape[axis] - low - length);
            low += length;
            let (value, inside, axes) = self.within(operand, &pads, ty)?;
            joined = Some(match joined {
                None => (value, axes),
                Some((before, first)) => {
                    for (left, right) in runs(&first, ty.rank()).iter().zip(&runs(&axes, ty.rank())) {
                        self.atoms.unify(left, right)?;
                    }
                    (self.value(Compute::Select(inside, value, before), ty.dtype), first)
                }
            });
        }
        let (value, axes) = joined.ok_or(Refusal::NoKernel)?;
        Ok(self.slot(SlotState { ty, value, axes, origin: Origin::Free }))
    }

    /// An operand as part of a larger tensor: its elements, the condition that a point is inside, and the axes.
    fn within(
        &mut self,
        operand: &Operand,
        pads: &[PadAxis],
        ty: TensorType,
    ) -> Result<(ValueId, ValueId, AxisAtoms), Refusal> {
        let x = self.state(self.tensor(operand)?).clone();
        let Compute::Load(place) = self.values[x.value as usize].compute else {
            return Err(Refusal::NoKernel);
        };
        if x.origin != Origin::Input || pads.iter().any(|pad| pad.interior > 0) {
            return Err(Refusal::NoKernel);
        }
        let old = runs(&x.axes, x.ty.rank());
        let mut axes = AxisAtoms::new();
        let mut inside: Option<ValueId> = None;
        for (axis, pad) in pads.iter().enumerate() {
            let length = ty.shape[axis];
            if pad.low + pad.high == 0 {
                axes.extend(old[axis].iter().map(|&atom| (axis as u8, atom)));
                continue;
            }
            let atom = self.atoms.add(length);
            axes.push((axis as u8, atom));
            for test in self.tests(atom, pad.low, x.ty.shape[axis], length) {
                inside = Some(match inside {
                    Some(others) => self.value(Compute::Binary(Binary::And, others, test), DType::Bool),
                    None => test,
                });
            }
        }
        let Some(inside) = inside else {
            let everywhere = self.value(Compute::Constant(Scalar::Bool(true)), DType::Bool);
            return Ok((x.value, everywhere, axes));
        };
        let value = self.value(Compute::LoadWhere(place, inside), ty.dtype);
        self.padded.push(Padded { load: value, low: pads.iter().map(|pad| pad.low).collect() });
        self.slot(SlotState { ty, value, axes: axes.clone(), origin: Origin::Input });
        Ok((value, inside, axes))
    }

    /// Tests that the index along an axis of that length is in `low..low + count`. Tests that always hold are left out.
    fn tests(&mut self, atom: AtomId, low: usize, count: usize, length: usize) -> SmallVec<[ValueId; 2]> {
        let dtype = holding(DType::I32, length);
        let index = self.value(Compute::Index(u32::from(atom)), dtype);
        let mut tests = SmallVec::new();
        if low > 0 {
            let low = self.value(Compute::Constant(Scalar::from(low)), dtype);
            tests.push(self.value(Compute::Compare(Comparison::Le, low, index), DType::Bool));
        }
        if low + count < length {
            let end = self.value(Compute::Constant(Scalar::from(low + count)), dtype);
            tests.push(self.value(Compute::Compare(Comparison::Lt, index, end), DType::Bool));
        }
        tests
    }
}

/// Whether a scalar equals the value of guarded loads without a memory access (positive zero).
fn is_plain_zero(scalar: Scalar) -> bool {
    match scalar {
        Scalar::Float(x) => x.to_bits() == 0,
        Scalar::Int(x) => x == 0,
        Scalar::UInt(x) => x == 0,
        Scalar::Bool(x) => !x,
    }
}
