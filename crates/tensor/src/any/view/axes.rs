//! Transposition, permutation, flips and rolls.

use crate::{AnyTensor, Axis, AxisList, Error, Result};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Axes, MAX_RANK, Op, SliceAxis};
use smallvec::SmallVec;

impl AnyTensor {
    /// Permutes the axes. See [`Tensor::permute`](crate::Tensor::permute).
    ///
    /// # Errors
    /// When the axes are not a permutation of all axes.
    #[doc(alias = "transpose")]
    pub fn permute(self, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        let axes = axes.into().of("permute", self.ty())?;
        self.apply(&Op::Permute(Axes::new(&axes)))
    }

    /// Swaps two axes. See [`Tensor::swap_dims`](crate::Tensor::swap_dims).
    ///
    /// # Errors
    /// When an axis is out of range.
    #[doc(alias = "swapaxes")]
    #[doc(alias = "transpose")]
    pub fn swap_dims(self, a: impl Into<Axis>, b: impl Into<Axis>) -> Result<AnyTensor> {
        let (a, b) = (a.into().of("swap_dims", self.ty())?, b.into().of("swap_dims", self.ty())?);
        let mut axes: SmallVec<[usize; MAX_RANK]> = (0..self.rank()).collect();
        axes.swap(a, b);
        self.apply(&Op::Permute(Axes::new(&axes)))
    }

    /// Transposes the last two axes. See [`Tensor::transpose`](crate::Tensor::transpose).
    ///
    /// # Errors
    /// When there are fewer than two axes.
    #[doc(alias = "mT")]
    #[doc(alias = "matrix_transpose")]
    pub fn transpose(self) -> Result<AnyTensor> {
        if self.rank() < 2 {
            return Err(Error::type_error("transpose", "needs at least 2 axes", &[self.ty().into()]).hint(
                "a vector has no columns; `unsqueeze` converts it to a row, `unsqueeze_dim` to a column",
            ));
        }
        self.swap_dims(-2, -1)
    }

    /// Moves axes to other positions. See [`Tensor::movedim`](crate::Tensor::movedim).
    ///
    /// # Errors
    /// When an axis is out of range or repeated, or the lists differ in length.
    #[doc(alias = "moveaxis")]
    pub fn movedim(self, from: impl Into<AxisList>, to: impl Into<AxisList>) -> Result<AnyTensor> {
        self.move_axes(&from.into(), &to.into())
    }

    fn move_axes(self, from: &AxisList, to: &AxisList) -> Result<AnyTensor> {
        let (from, to) = (from.of("movedim", self.ty())?, to.of("movedim", self.ty())?);
        if from.len() != to.len() {
            let problem = format!("{} source axes, but {} destination axes", from.len(), to.len());
            return Err(Error::type_error("movedim", problem, &[self.ty().into()])
                .hint("pass one destination for each axis"));
        }
        let mut others = (0..self.rank()).filter(|axis| !from.contains(axis));
        let source = |place: usize| match to.iter().position(|&axis| axis == place) {
            Some(moved) => from[moved],
            None => others.next().unwrap_or(place),
        };
        let axes: Vec<usize> = (0..self.rank()).map(source).collect();
        self.apply(&Op::Permute(Axes::new(&axes)))
    }

    /// Reverses the order of the elements along axes. See [`Tensor::flip`](crate::Tensor::flip).
    ///
    /// # Errors
    /// When an axis is out of range or repeated.
    pub fn flip(self, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        let axes = axes.into().of("flip", self.ty())?;
        let range = |(axis, &len): (usize, &usize)| match axes.contains(&axis) {
            true => SliceAxis { start: len.saturating_sub(1), len, step: -1 },
            false => SliceAxis::all(len),
        };
        let slices = self.shape().iter().enumerate().map(range).collect();
        self.slice_axes(slices)
    }

    /// Reverses the order of the columns. See [`Tensor::fliplr`](crate::Tensor::fliplr).
    ///
    /// # Errors
    /// When there are fewer than two axes.
    pub fn fliplr(self) -> Result<AnyTensor> {
        self.flip(1)
    }

    /// Reverses the order of the rows. See [`Tensor::flipud`](crate::Tensor::flipud).
    ///
    /// # Errors
    /// When the tensor has no axes.
    pub fn flipud(self) -> Result<AnyTensor> {
        self.flip(0)
    }

    /// Rotates by a multiple of 90 degrees in the plane of two axes. See [`Tensor::rot90`](crate::Tensor::rot90).
    ///
    /// # Errors
    /// When the axes are not two different axes of the tensor.
    pub fn rot90(self, times: i64, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        let axes = axes.into().of("rot90", self.ty())?;
        let [a, b] = axes[..] else {
            let problem = format!("a plane has 2 axes, not {}", axes.len());
            return Err(Error::type_error("rot90", problem, &[self.ty().into()])
                .hint("pass the two axes of the rotation plane, such as `[0, 1]`"));
        };
        match times.rem_euclid(4) {
            0 => Ok(self),
            1 => self.flip(b)?.swap_dims(a, b),
            2 => self.flip([a, b]),
            _ => self.flip(a)?.swap_dims(a, b),
        }
    }

    /// Shifts elements cyclically along axes. See [`Tensor::roll`](crate::Tensor::roll).
    ///
    /// # Errors
    /// When an axis is out of range or repeated, or there is not one shift for each axis.
    pub fn roll(self, shifts: &[i64], axes: impl Into<AxisList>) -> Result<AnyTensor> {
        let axes = axes.into().of("roll", self.ty())?;
        if axes.len() != shifts.len() {
            let problem = format!("{} shifts for {} axes", shifts.len(), axes.len());
            return Err(
                Error::type_error("roll", problem, &[self.ty().into()]).hint("pass one shift for each axis")
            );
        }
        axes.iter().zip(shifts).try_fold(self, |any, (&axis, &shift)| any.roll_axis(shift, axis))
    }

    /// Shifts elements cyclically along one axis. See [`Tensor::roll_dim`](crate::Tensor::roll_dim).
    ///
    /// # Errors
    /// When the axis is out of range.
    #[doc(alias = "roll")]
    pub fn roll_dim(self, shift: i64, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let axis = axis.into().of("roll_dim", self.ty())?;
        self.roll_axis(shift, axis)
    }

    fn roll_axis(self, shift: i64, axis: usize) -> Result<AnyTensor> {
        let length = self.shape()[axis];
        let by = if length == 0 { 0 } else { shift.rem_euclid(length as i64) as usize };
        if by == 0 {
            return Ok(self);
        }
        let last = self.clone().narrow(axis, length - by, by)?;
        AnyTensor::cat([last, self.narrow(axis, 0, length - by)?].into(), axis)
    }
}
