//! Inference rules of indexing ops.

use super::Rule;
use crate::{DType, Result, ResultTypes, Shape, SliceAxis, TensorType, UpdateMode};
use alloc::format;
use smallvec::smallvec;

impl Rule<'_> {
    pub(super) fn take(&self, axis: usize) -> Result<ResultTypes> {
        let (x, index) = (self.tensor(0)?, self.tensor(1)?);
        Ok(smallvec![self.taken(x, index, axis)?])
    }

    fn taken(&self, x: &TensorType, index: &TensorType, axis: usize) -> Result<TensorType> {
        self.index_dtype(index.dtype)?;
        self.axis(axis, x)?;
        self.rank_fits(x.rank() - 1 + index.rank())?;
        let (before, after) = (&x.shape[..axis], &x.shape[axis + 1..]);
        let shape: Shape = before.iter().chain(index.shape.iter()).chain(after).copied().collect();
        self.sized(shape, x.dtype)
    }

    pub(super) fn gather(&self, axis: usize) -> Result<ResultTypes> {
        let (x, index) = (self.tensor(0)?, self.tensor(1)?);
        self.beside(x, index, axis)?;
        Ok(smallvec![x.with_shape(index.shape)])
    }

    /// Checks that an index has the lengths of `x` except along `axis`.
    fn beside(&self, x: &TensorType, index: &TensorType, axis: usize) -> Result<()> {
        self.index_dtype(index.dtype)?;
        self.axis(axis, x)?;
        if index.rank() != x.rank() || index.shape.with(axis, 0) != x.shape.with(axis, 0) {
            return Err(self
                .error(format!("tensor and index differ outside axis {axis}"))
                .hint("slice or broadcast one of them to the other's lengths"));
        }
        Ok(())
    }

    pub(super) fn put(&self, axis: usize, mode: UpdateMode) -> Result<ResultTypes> {
        let (base, index, source) = (self.tensor(0)?, self.tensor(1)?, self.tensor(2)?);
        let expected = self.taken(base, index, axis)?;
        self.updates(base, mode)?;
        self.is_source(source, &expected)?;
        Ok(smallvec![*base])
    }

    pub(super) fn scatter(&self, axis: usize, mode: UpdateMode) -> Result<ResultTypes> {
        let (base, index, source) = (self.tensor(0)?, self.tensor(1)?, self.tensor(2)?);
        self.beside(base, index, axis)?;
        self.updates(base, mode)?;
        self.is_source(source, &base.with_shape(index.shape))?;
        Ok(smallvec![*base])
    }

    pub(super) fn slice_update(&self, slices: &[SliceAxis], mode: UpdateMode) -> Result<ResultTypes> {
        let (base, source) = (self.tensor(0)?, self.tensor(1)?);
        let expected = self.sliced(base, slices)?;
        self.updates(base, mode)?;
        self.is_source(source, &expected)?;
        Ok(smallvec![*base])
    }

    fn updates(&self, base: &TensorType, mode: UpdateMode) -> Result<()> {
        match mode {
            UpdateMode::Set => Ok(()),
            UpdateMode::Add | UpdateMode::Mul | UpdateMode::Min | UpdateMode::Max => self.number(base),
        }
    }

    fn is_source(&self, source: &TensorType, expected: &TensorType) -> Result<()> {
        if source == expected {
            return Ok(());
        }
        Err(self
            .error(format!("the source must be {expected}, not {source}"))
            .hint("the source has the shape of the written elements and the dtype of the destination"))
    }

    pub(super) fn nonzero(&self, index: DType) -> Result<ResultTypes> {
        let ty = self.only()?;
        self.holds_indices(index, ty, 0..ty.rank())?;
        Ok(smallvec![self.sized([ty.num_elements(), ty.rank()].into(), index)?])
    }

    pub(super) fn check_index(&self) -> Result<ResultTypes> {
        let ty = self.only()?;
        self.index_dtype(ty.dtype)?;
        Ok(smallvec![*ty])
    }

    /// The types of the unwatched operands, and of two flags.
    pub(super) fn recover(&self, watched: usize) -> Result<ResultTypes> {
        let Some(kept) = self.inputs.len().checked_sub(watched) else {
            return Err(self.error(format!("{watched} operands are watched, of {}", self.inputs.len())));
        };
        let mut types = ResultTypes::new();
        for place in 0..self.inputs.len() {
            let ty = self.tensor(place)?;
            if place < kept {
                types.push(*ty);
            }
        }
        let flag = TensorType::new([1], DType::Bool);
        types.extend([flag, flag]);
        Ok(types)
    }
}
