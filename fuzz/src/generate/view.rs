//! Generates views, copies, padding and concatenation, and operands through views.

use super::{Generator, Wanted};
use kiln_ir::{Axes, Op, PadAxis, ProgramOperand, Shape, SliceAxis, TensorType};

impl Generator<'_> {
    pub(super) fn reshape(&mut self) -> Option<()> {
        let x = self.tensor(0, 6, |_| true);
        let shape = self.same_size(&self.ty(x).shape);
        self.emit_on(Op::Reshape(shape), &[x]).map(drop)
    }

    /// Another shape with the same number of elements: axes merged, split and inserted.
    fn same_size(&mut self, shape: &Shape) -> Shape {
        let mut lengths = shape.to_vec();
        for _ in 0..self.random.between(1, 3) {
            match self.random.below(3) {
                0 if lengths.len() >= 2 => {
                    let axis = self.random.below(lengths.len() - 1);
                    let next = lengths.remove(axis + 1);
                    lengths[axis] *= next;
                }
                1 if !lengths.is_empty() && lengths.len() < 8 => {
                    let axis = self.random.below(lengths.len());
                    let length = lengths[axis];
                    let divisors: Vec<usize> = (1..=length).filter(|d| length.is_multiple_of(*d)).collect();
                    if let Some(&divisor) = divisors.get(self.random.below(divisors.len())) {
                        lengths[axis] = divisor;
                        lengths.insert(axis + 1, length / divisor);
                    }
                }
                _ if lengths.len() < 8 => lengths.insert(self.random.below(lengths.len() + 1), 1),
                _ => {}
            }
        }
        lengths.into()
    }

    pub(super) fn permute(&mut self) -> Option<()> {
        let x = self.tensor(0, 6, |_| true);
        let axes = self.random.permutation(self.ty(x).rank());
        self.emit_on(Op::Permute(Axes::new(&axes)), &[x]).map(drop)
    }

    pub(super) fn broadcast(&mut self) -> Option<()> {
        let x = self.tensor(0, 5, |_| true);
        let shape = self.ty(x).shape;
        let mut lengths = Vec::new();
        for _ in 0..self.random.below(3) {
            lengths.push(self.length().min(9));
        }
        for &length in shape.iter() {
            lengths.push(if length == 1 && self.random.chance(70) { self.length().min(9) } else { length });
        }
        self.emit_on(Op::Broadcast(lengths.into()), &[x]).map(drop)
    }

    pub(super) fn slice(&mut self) -> Option<()> {
        let x = self.tensor(0, 5, |_| true);
        let slices = self.slices(&self.ty(x).shape);
        self.emit_on(Op::Slice(slices), &[x]).map(drop)
    }

    /// A range of each axis.
    pub(super) fn slices(&mut self, shape: &Shape) -> Vec<SliceAxis> {
        shape.iter().map(|&length| self.slice_of(length)).collect()
    }

    fn slice_of(&mut self, length: usize) -> SliceAxis {
        if length == 0 || self.random.chance(4) {
            return SliceAxis { start: self.random.below(length + 1), len: 0, step: 1 };
        }
        if self.random.chance(30) {
            return SliceAxis::all(length);
        }
        let start = self.random.below(length);
        let step = self.random.pick(&[1, 1, 2, 3, -1, -1, -2, -3, 5, -7]);
        let room = if step > 0 { length - 1 - start } else { start };
        let most = room / isize::unsigned_abs(step) + 1;
        let len = if self.random.chance(60) { most } else { self.random.between(1, most) };
        SliceAxis { start, len, step }
    }

    pub(super) fn pad(&mut self) -> Option<()> {
        let x = self.tensor(0, 4, |_| true);
        let ty = self.ty(x);
        let pads = (0..ty.rank()).map(|_| PadAxis {
            low: self.random.pick(&[0, 0, 1, 2]),
            high: self.random.pick(&[0, 0, 1, 3]),
            interior: self.random.pick(&[0, 0, 0, 1, 2]),
        });
        let pads = pads.collect();
        let number = self.scalar(ty.dtype);
        self.emit(Op::Pad(pads), &[ProgramOperand::Slot(x), ProgramOperand::Scalar(number)]).map(drop)
    }

    pub(super) fn concat(&mut self) -> Option<()> {
        let first = self.tensor(1, 5, |_| true);
        let ty = self.ty(first);
        let axis = self.random.below(ty.rank());
        let mut operands = vec![first];
        for _ in 0..self.random.below(4) {
            let length = self.length();
            let other = ty.with_shape(ty.shape.with(axis, length));
            if other.num_elements() <= 2 * self.style.most_elements {
                operands.push(self.exact(other, Wanted::Free));
            }
        }
        self.emit_on(Op::Concat { axis }, &operands).map(drop)
    }

    pub(super) fn windows(&mut self) -> Option<()> {
        let x = self.tensor(1, 5, |_| true);
        let axis = self.random.below(self.ty(x).rank());
        let length = self.ty(x).shape[axis];
        let size = self.random.between(1, length.clamp(1, 4));
        let (step, dilation) = (self.random.between(1, 4), self.random.pick(&[1, 1, 1, 2, 3]));
        self.emit_on(Op::Windows { axis, size, step, dilation }, &[x]).map(drop)
    }

    pub(super) fn copy(&mut self) -> Option<()> {
        let x = self.tensor(0, 6, |_| true);
        self.emit_on(Op::Copy, &[x]).map(drop)
    }

    /// A tensor of a type, by a permutation of another.
    pub(super) fn behind_permute(&mut self, ty: TensorType, wanted: Wanted) -> Option<usize> {
        let axes = Axes::new(&self.random.permutation(ty.rank()));
        let source: Shape = axes.inverse().iter().map(|axis| ty.shape[axis]).collect();
        let source = self.fresh(ty.with_shape(source), wanted);
        Some(self.emit_on(Op::Permute(axes), &[source])?[0])
    }

    /// A tensor of a type, by a slice of a larger one, possibly with negative steps.
    pub(super) fn behind_slice(&mut self, ty: TensorType, wanted: Wanted) -> Option<usize> {
        let (mut source, mut slices) = (ty.shape, Vec::new());
        for (axis, &len) in ty.shape.iter().enumerate() {
            let (before, after) = (self.random.below(2), self.random.below(2));
            let step = self.random.pick(&[1, 1, 2, -1, -2, 3]);
            let reach = len.saturating_sub(1) * isize::unsigned_abs(step);
            source[axis] = before + after + reach + usize::from(len > 0);
            let start = if step > 0 { before } else { before + reach };
            slices.push(SliceAxis { start: start.min(source[axis]), len, step });
        }
        if source.num_elements() > 4 * self.style.most_elements {
            return None;
        }
        let source = self.fresh(ty.with_shape(source), wanted);
        Some(self.emit_on(Op::Slice(slices), &[source])?[0])
    }

    /// A tensor of a type, by a broadcast of a smaller one.
    pub(super) fn behind_broadcast(&mut self, ty: TensorType, wanted: Wanted) -> Option<usize> {
        let keep = self.random.between(0, ty.rank());
        let mut source: Shape = ty.shape[ty.rank() - keep..].into();
        for axis in 0..keep {
            if self.random.chance(50) {
                source[axis] = 1;
            }
        }
        let source = self.fresh(ty.with_shape(source), wanted);
        Some(self.emit_on(Op::Broadcast(ty.shape), &[source])?[0])
    }

    /// A tensor of a type, by a reshape of another.
    pub(super) fn behind_reshape(&mut self, ty: TensorType, wanted: Wanted) -> Option<usize> {
        let source = self.same_size(&ty.shape);
        let source = self.fresh(ty.with_shape(source), wanted);
        Some(self.emit_on(Op::Reshape(ty.shape), &[source])?[0])
    }
}
