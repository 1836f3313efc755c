//! Padding.

use crate::{AnyTensor, Error, Number, Result, Scalar};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Op, Operand, PadAxis, SliceAxis};

/// The padding mode of [`pad`](crate::Tensor::pad). Numbers convert to [`Constant`](PadMode::Constant).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadMode {
    /// A constant.
    Constant(Scalar),
    /// Reflection at the first and the last element, which are not repeated: `c b | a b c | b a`. At most the length of
    /// the axis minus 1.
    Reflect,
    /// Repetition of the first and the last element (PyTorch's `replicate`): `a a | a b c | c c`. The axis may not be
    /// empty.
    Edge,
    /// Elements from the other end: `b c | a b c | a b`. At most the length of the axis.
    Circular,
}

impl<N: Number> From<N> for PadMode {
    fn from(x: N) -> PadMode {
        PadMode::Constant(x.scalar())
    }
}

impl AnyTensor {
    /// Pads with a constant before, after and between the elements of each axis.
    ///
    /// # Errors
    /// When there is not one padding for each axis, or the number is not a value of the dtype.
    pub fn pad_axes(self, pads: Vec<PadAxis>, x: impl Number) -> Result<AnyTensor> {
        self.apply_with(&Op::Pad(pads), [Operand::Scalar(x.scalar())])
    }

    /// Pads axes by `(before, after)` elements; fewer pairs than axes pad the last axes.
    /// See [`Tensor::pad`](crate::Tensor::pad).
    ///
    /// # Errors
    /// When there are more pairs than axes, the constant is not a value of the dtype, or the mode does not allow as
    /// much padding: see [`PadMode`].
    pub fn pad(self, pads: &[(usize, usize)], mode: impl Into<PadMode>) -> Result<AnyTensor> {
        self.pad_with(pads, mode.into())
    }

    /// Like [`pad`](AnyTensor::pad), where a negative width removes elements: `-1` crops one. See
    /// [`Tensor::pad_signed`](crate::Tensor::pad_signed).
    ///
    /// # Errors
    /// As [`pad`](AnyTensor::pad), and when more elements are removed than an axis has.
    pub fn pad_signed(self, pads: &[(isize, isize)], mode: impl Into<PadMode>) -> Result<AnyTensor> {
        self.pad_or_crop(pads, mode.into())
    }

    fn pad_or_crop(self, pads: &[(isize, isize)], mode: PadMode) -> Result<AnyTensor> {
        let more = |width: isize| usize::try_from(width).unwrap_or(0);
        let wider: Vec<(usize, usize)> = pads.iter().map(|&(low, high)| (more(low), more(high))).collect();
        match mode {
            // The wrapped elements are the remaining ones.
            PadMode::Circular => self.cropped(pads)?.pad_with(&wider, mode),
            PadMode::Constant(_) | PadMode::Reflect | PadMode::Edge => {
                self.pad_with(&wider, mode)?.cropped(pads)
            }
        }
    }

    /// Removes the elements of negative widths.
    fn cropped(self, pads: &[(isize, isize)]) -> Result<AnyTensor> {
        let first = self.axes_before(pads.len())?;
        let mut cropped = self;
        for (place, &(low, high)) in pads.iter().enumerate() {
            let axis = first + place;
            let length = cropped.shape()[axis];
            let less = |width: isize| width.min(0).unsigned_abs();
            let kept = length.checked_sub(less(low)).and_then(|rest| rest.checked_sub(less(high)));
            let Some(len) = kept else {
                let problem = format!("{low} and {high} remove more elements than axis {axis} has");
                return Err(Error::type_error("pad", problem, &[cropped.ty().into()])
                    .hint(format!("at most {length} can be removed")));
            };
            if len < length {
                let start = if len == 0 { 0 } else { less(low) };
                cropped = cropped.slice_axis(axis, SliceAxis { start, len, step: 1 })?;
            }
        }
        Ok(cropped)
    }

    /// Returns the number of axes before the padded ones, for a number of pairs.
    fn axes_before(&self, pairs: usize) -> Result<usize> {
        self.rank().checked_sub(pairs).ok_or_else(|| {
            let problem = format!("{pairs} pairs for {} axes", self.rank());
            Error::type_error("pad", problem, &[self.ty().into()])
                .hint("pass at most one pair for each axis, for the last axes")
        })
    }

    fn pad_with(self, pads: &[(usize, usize)], mode: PadMode) -> Result<AnyTensor> {
        let whole = self.axes_before(pads.len())?;
        if let PadMode::Constant(x) = mode {
            let none = core::iter::repeat_n(PadAxis::default(), whole);
            let pads = none.chain(pads.iter().map(|&(low, high)| PadAxis::new(low, high))).collect();
            return self.pad_axes(pads, x);
        }
        let mut padded = pads.iter().enumerate().filter(|&(_, &pad)| pad != (0, 0));
        padded.try_fold(self, |any, (place, &(low, high))| any.pad_axis(whole + place, low, high, mode))
    }

    fn pad_axis(self, axis: usize, low: usize, high: usize, mode: PadMode) -> Result<AnyTensor> {
        let length = self.shape()[axis];
        let (most, name) = match mode {
            PadMode::Constant(_) => (usize::MAX, "constant"),
            PadMode::Reflect => (length.saturating_sub(1), "reflect"),
            PadMode::Edge => (if length == 0 { 0 } else { usize::MAX }, "edge"),
            PadMode::Circular => (length, "circular"),
        };
        if low > most || high > most {
            let problem = format!("{low} before and {high} after are too many for axis {axis} by {name}");
            let error = Error::type_error("pad", problem, &[self.ty().into()]);
            return Err(error.hint(format!("at most {most} on either side of {length}")));
        }
        let part = |start: usize, len: usize, step: isize| {
            self.clone().slice_axis(axis, SliceAxis { start: if len == 0 { 0 } else { start }, len, step })
        };
        let edge = |start: usize, len: usize| part(start, 1, 1)?.repeat_dim(axis, len);
        let (before, after) = match mode {
            PadMode::Reflect => (part(low, low, -1)?, part((length - 1).saturating_sub(1), high, -1)?),
            PadMode::Circular => (part(length - low, low, 1)?, part(0, high, 1)?),
            PadMode::Edge | PadMode::Constant(_) => (edge(0, low)?, edge(length - 1, high)?),
        };
        AnyTensor::cat([before, self, after].into(), axis)
    }
}
