//! Generates indexing ops.

use super::{Generator, Wanted};
use kiln_ir::{DType, IndexUser, Op, Shape, TensorType, UpdateMode};
use kiln_suite::case::Fill;

impl Generator<'_> {
    pub(super) fn take(&mut self) -> Option<()> {
        let (x, axis) = self.indexed(|_| true)?;
        let rank = self.random.below(3);
        let index = self.shape_of_index(rank);
        let index = self.index(index, self.ty(x).shape[axis])?;
        self.emit_on(Op::Take { axis }, &[x, index]).map(drop)
    }

    pub(super) fn put(&mut self) -> Option<()> {
        let mode = self.random.pick(UpdateMode::ALL);
        let (base, axis) = self.indexed(|dtype| mode == UpdateMode::Set || !dtype.is_bool())?;
        let ty = self.ty(base);
        let rank = self.random.below(3);
        let index = self.shape_of_index(rank);
        let lengths = ty.shape[..axis].iter().chain(index.iter()).chain(&ty.shape[axis + 1..]);
        let source = ty.with_shape(lengths.copied().collect::<Shape>());
        if source.num_elements() > 4 * self.style.most_elements {
            return None;
        }
        let index = self.index(index, ty.shape[axis])?;
        let source = self.exact(source, Wanted::Free);
        self.emit_on(Op::Put { axis, mode }, &[base, index, source]).map(drop)
    }

    pub(super) fn gather(&mut self) -> Option<()> {
        let (x, axis) = self.indexed(|_| true)?;
        let index = self.shape_beside(&self.ty(x).shape, axis);
        let index = self.index(index, self.ty(x).shape[axis])?;
        self.emit_on(Op::Gather { axis }, &[x, index]).map(drop)
    }

    pub(super) fn scatter(&mut self) -> Option<()> {
        let mode = self.random.pick(UpdateMode::ALL);
        let (base, axis) = self.indexed(|dtype| mode == UpdateMode::Set || !dtype.is_bool())?;
        let ty = self.ty(base);
        let shape = self.shape_beside(&ty.shape, axis);
        let index = self.index(shape, ty.shape[axis])?;
        let source = self.exact(ty.with_shape(shape), Wanted::Free);
        self.emit_on(Op::Scatter { axis, mode }, &[base, index, source]).map(drop)
    }

    pub(super) fn slice_update(&mut self) -> Option<()> {
        let mode = self.random.pick(UpdateMode::ALL);
        let base = self.tensor(0, 5, |dtype| mode == UpdateMode::Set || !dtype.is_bool());
        let slices = self.slices(&self.ty(base).shape);
        let shape: Shape = slices.iter().map(|slice| slice.len).collect();
        let source = self.exact(self.ty(base).with_shape(shape), Wanted::Free);
        self.emit_on(Op::SliceUpdate { slices, mode }, &[base, source]).map(drop)
    }

    pub(super) fn nonzero(&mut self) -> Option<()> {
        let x = self.tensor(0, 4, |_| true);
        let longest = self.ty(x).shape.iter().copied().max().unwrap_or(0);
        let index = self.index_dtype(longest);
        self.emit_on(Op::NonZero { index }, &[x]).map(drop)
    }

    pub(super) fn check_index(&mut self) -> Option<()> {
        let (rank, length, user) =
            (self.random.below(3), self.length().max(1), self.random.pick(IndexUser::ALL));
        let shape = self.shape_of_index(rank);
        let index = self.index(shape, length)?;
        self.emit_on(Op::CheckIndex { length, user }, &[index]).map(drop)
    }

    pub(super) fn recover(&mut self) -> Option<()> {
        let count = 1 + self.random.below(3);
        // Smooth programs are differentiated, and a recovered value has no gradient.
        let smooth = self.style.smooth;
        let operands: Vec<usize> =
            (0..count).map(|_| self.tensor(0, 4, |dtype| !(smooth && dtype.is_float()))).collect();
        let watched = self.random.below(count);
        self.emit_on(Op::Recover { watched }, &operands).map(drop)
    }

    /// A tensor and its indexed axis.
    fn indexed(&mut self, ok: impl Fn(DType) -> bool) -> Option<(usize, usize)> {
        let x = self.tensor(1, 5, ok);
        Some((x, self.random.below(self.ty(x).rank())))
    }

    fn shape_of_index(&mut self, rank: usize) -> Shape {
        (0..rank).map(|_| self.length().min(6)).collect()
    }

    /// The shape with another length of an axis.
    fn shape_beside(&mut self, shape: &Shape, axis: usize) -> Shape {
        let length = if self.random.chance(40) { shape[axis] } else { self.length().min(9) };
        shape.with(axis, length)
    }

    /// Indices into an axis of a length; `None` for a nonempty index into an empty axis.
    fn index(&mut self, shape: Shape, length: usize) -> Option<usize> {
        if length == 0 && shape.num_elements() > 0 {
            return None;
        }
        let ty = TensorType::new(shape, self.index_dtype(length));
        let (low, high) = (0.0, length.saturating_sub(1) as f64);
        let stray = self.style.stray && self.random.chance(40);
        let fill = if stray { Fill::Uniform(low - 1.0, high + 1.0) } else { Fill::Uniform(low, high) };
        Some(self.fresh(ty, Wanted::Filled(fill)))
    }
}
