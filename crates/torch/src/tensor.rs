//! The ops of LibTorch that the engine calls, as methods.

pub(crate) use crate::ffi::Tensor;
use crate::ffi::{Argument, Failure, call};
use Argument::{Bool, Int, Ints, Text};
use core::ffi::CStr;

/// A result of LibTorch.
pub(crate) type Result<T = Tensor> = core::result::Result<T, Failure>;

/// The dtypes of LibTorch 1.13 that Kiln has, as `c10::ScalarType` numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum TorchType {
    Byte = 0,
    Char = 1,
    Short = 2,
    Int = 3,
    Long = 4,
    Half = 5,
    Float = 6,
    Double = 7,
    Bool = 11,
    BFloat16 = 15,
}

/// Lengths or axes as LibTorch takes them.
pub(crate) fn ints(lengths: &[usize]) -> Vec<i64> {
    lengths.iter().map(|&length| length as i64).collect()
}

/// Calls an op with one result.
pub(crate) fn one(op: &CStr, arguments: &[Argument<'_>]) -> Result {
    let [y] = call(op, arguments)?;
    Ok(y)
}

impl Tensor {
    pub(crate) fn arg(&self) -> Argument<'_> {
        Argument::Tensor(self)
    }

    pub(crate) fn dims(&self) -> Vec<usize> {
        self.lengths().into_iter().map(|length| usize::try_from(length).unwrap_or(0)).collect()
    }

    pub(crate) fn rank(&self) -> usize {
        self.lengths().len()
    }

    pub(crate) fn is(&self, ty: TorchType) -> bool {
        self.dtype() == ty as i32
    }

    /// An op of this tensor alone.
    pub(crate) fn map(&self, op: &CStr) -> Result {
        one(op, &[self.arg()])
    }

    /// An op of this tensor and another argument.
    pub(crate) fn with(&self, op: &CStr, other: Argument<'_>) -> Result {
        one(op, &[self.arg(), other])
    }

    /// An op of two tensors.
    pub(crate) fn and(&self, op: &CStr, other: &Tensor) -> Result {
        one(op, &[self.arg(), other.arg()])
    }

    pub(crate) fn to(&self, ty: TorchType) -> Result {
        if self.is(ty) { Ok(self.clone()) } else { self.with(c"to.dtype", Int(i64::from(ty as i32))) }
    }

    /// The same bits as another dtype of the same size.
    pub(crate) fn bits_as(&self, ty: TorchType) -> Result {
        if self.is(ty) { Ok(self.clone()) } else { self.with(c"view.dtype", Int(i64::from(ty as i32))) }
    }

    /// The elements `start`, `start + step`, … below `end` along an axis, as a view. The step is positive.
    pub(crate) fn slice(&self, axis: usize, start: usize, end: usize, step: usize) -> Result {
        let [axis, start, end, step] = [axis, start, end, step].map(|number| Int(number as i64));
        one(c"slice.Tensor", &[self.arg(), axis, start, end, step])
    }

    pub(crate) fn narrow(&self, axis: usize, start: usize, length: usize) -> Result {
        self.slice(axis, start, start + length, 1)
    }

    pub(crate) fn flip(&self, axis: usize) -> Result {
        self.with(c"flip", Ints(&[axis as i64]))
    }

    /// A copy in row-major order, which shares no memory.
    pub(crate) fn copied(&self) -> Result {
        self.with(c"clone", Int(0))
    }

    /// Writes the elements of another tensor over those of this one, which the caller has just made.
    pub(crate) fn overwrite(&self, source: &Tensor) -> Result<()> {
        self.and(c"copy_", source).map(|_| ())
    }

    /// The number where the mask is true, this tensor elsewhere.
    pub(crate) fn masked(&self, mask: &Tensor, number: Argument<'_>) -> Result {
        one(c"masked_fill.Scalar", &[self.arg(), mask.arg(), number])
    }

    /// As `self ? a : b` for each element.
    pub(crate) fn select(&self, a: &Tensor, b: &Tensor) -> Result {
        one(c"where.self", &[self.arg(), a.arg(), b.arg()])
    }

    /// Division by a mode of rounding.
    pub(crate) fn div_truncated(&self, other: &Tensor) -> Result {
        one(c"div.Tensor_mode", &[self.arg(), other.arg(), Text("trunc")])
    }

    /// A reduction over axes, which keep length 1, in a dtype.
    pub(crate) fn sum(&self, axes: &[usize], ty: TorchType) -> Result {
        one(c"sum.dim_IntList", &[self.arg(), Ints(&ints(axes)), Bool(true), Int(i64::from(ty as i32))])
    }

    /// `amax` or `amin` over axes, which keep length 1. A NaN wins.
    pub(crate) fn extreme(&self, op: &CStr, axes: &[usize]) -> Result {
        one(op, &[self.arg(), Ints(&ints(axes)), Bool(true)])
    }
}
