//! The same elements in another shape or order.

use super::{fail, ok};
use crate::{AnyTensor, Backend, Kind, Number, Shape, SliceArg, Tensor};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Error, PadAxis, SliceAxis};

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// The elements in row-major order, in another shape. One length may be -1 and is computed from the others;
    /// 0 keeps the length of the same axis, unless the tensor is empty.
    ///
    /// # Panics
    /// When the lengths do not multiply to the number of elements.
    #[track_caller]
    pub fn reshape<const D2: usize>(self, shape: impl ReshapeArgs<D2>) -> Tensor<B, D2, K> {
        let lengths = shape.into_lengths();
        self.convert(|any| {
            let shape = resolve_reshape(&any, &lengths)?;
            any.reshape(shape)
        })
    }

    /// Joins the axes `start..=end` into one.
    ///
    /// # Panics
    /// When the axes are out of range or `D2` does not match.
    #[track_caller]
    pub fn flatten<const D2: usize>(self, start: usize, end: usize) -> Tensor<B, D2, K> {
        self.convert(|any| {
            any.check_axes("flatten", &[start, end])?;
            let shape = *any.shape();
            if start > end || D + start != D2 + end {
                let problem = format!("joining axes {start} to {end} of {D} does not leave {D2}");
                return Err(Error::type_error("flatten", problem, &[any.ty().into()]));
            }
            let joined: usize = shape[start..=end].iter().product();
            let lengths =
                shape[..start].iter().copied().chain([joined]).chain(shape[end + 1..].iter().copied());
            any.reshape(lengths.collect::<Shape>())
        })
    }

    /// Removes all axes of length 1, until `D2` are left; from the front.
    ///
    /// # Panics
    /// When the axes of length 1 are not `D - D2`.
    #[track_caller]
    pub fn squeeze<const D2: usize>(self) -> Tensor<B, D2, K> {
        self.convert(|any| {
            let rest: Shape = any.shape().iter().copied().filter(|&length| length != 1).collect();
            if rest.rank() != D2 {
                let problem = format!("without axes of length 1 there are {} axes, not {D2}", rest.rank());
                return Err(Error::type_error("squeeze", problem, &[any.ty().into()])
                    .hint("name the axis to remove with `squeeze_dim`"));
            }
            any.reshape(rest)
        })
    }

    /// Removes one axis of length 1.
    ///
    /// # Panics
    /// When the axis is longer, or `D2` is not `D - 1`.
    #[track_caller]
    pub fn squeeze_dim<const D2: usize>(self, axis: usize) -> Tensor<B, D2, K> {
        self.convert(|any| {
            any.check_axes("squeeze_dim", &[axis])?;
            let shape = *any.shape();
            if shape[axis] != 1 {
                let problem = format!("axis {axis} has length {}, not 1", shape[axis]);
                return Err(Error::type_error("squeeze_dim", problem, &[any.ty().into()]));
            }
            any.reshape(shape.without(axis))
        })
    }

    /// Adds axes of length 1 in front.
    ///
    /// # Panics
    /// When `D2` is less than `D`.
    #[track_caller]
    pub fn unsqueeze<const D2: usize>(self) -> Tensor<B, D2, K> {
        self.convert(|any| {
            if D2 < D {
                let problem = format!("{D} axes do not become {D2} by adding some");
                return Err(Error::type_error("unsqueeze", problem, &[any.ty().into()]));
            }
            let lengths = core::iter::repeat_n(1, D2 - D).chain(any.shape().iter().copied());
            let shape = lengths.collect::<Shape>();
            any.reshape(shape)
        })
    }

    /// Adds an axis of length 1 before `axis`.
    ///
    /// # Panics
    /// When the axis is out of range, or `D2` is not `D + 1`.
    #[track_caller]
    pub fn unsqueeze_dim<const D2: usize>(self, axis: usize) -> Tensor<B, D2, K> {
        self.convert(|any| {
            if axis > D || D2 != D + 1 {
                let problem = format!("an axis at {axis} of {D} makes {}, not {D2}", D + 1);
                return Err(Error::type_error("unsqueeze_dim", problem, &[any.ty().into()]));
            }
            let shape = any.shape().inserted(axis, 1);
            any.reshape(shape)
        })
    }

    /// Exchanges the last two axes.
    ///
    /// # Panics
    /// With fewer than two axes.
    #[track_caller]
    pub fn transpose(self) -> Self {
        self.map(|any| match D {
            0 | 1 => Err(Error::type_error("transpose", "needs at least 2 axes", &[any.ty().into()])),
            _ => any.swap_dims(D - 2, D - 1),
        })
    }

    /// Exchanges the last two axes.
    ///
    /// # Panics
    /// With fewer than two axes.
    #[track_caller]
    pub fn t(self) -> Self {
        self.transpose()
    }

    /// Exchanges two axes.
    #[track_caller]
    pub fn swap_dims(self, a: usize, b: usize) -> Self {
        self.map(|any| any.swap_dims(a, b))
    }

    /// Axes in another order: axis `i` of the result is axis `axes[i]`. Negative numbers count from the end.
    #[track_caller]
    pub fn permute(self, axes: [isize; D]) -> Self {
        let axes: Vec<usize> =
            axes.iter().map(|&a| if a < 0 { a + D as isize } else { a } as usize).collect();
        self.map(|any| any.permute(&axes))
    }

    /// Moves an axis to another place; the others keep their order.
    #[track_caller]
    pub fn movedim(self, from: usize, to: usize) -> Self {
        self.map(|any| {
            any.check_axes("movedim", &[from, to])?;
            let mut axes: Vec<usize> = (0..D).collect();
            let axis = axes.remove(from);
            axes.insert(to, axis);
            any.permute(&axes)
        })
    }

    /// Elements of these axes in reverse order.
    #[track_caller]
    pub fn flip<const N: usize>(self, axes: [usize; N]) -> Self {
        self.map(|any| any.flip(&axes))
    }

    /// Repeats axes of length 1 to this shape, and adds axes in front. A view: nothing is copied.
    #[track_caller]
    pub fn expand<const D2: usize>(self, shape: [usize; D2]) -> Tensor<B, D2, K> {
        self.convert(|any| any.expand(shape))
    }

    /// A range of each axis; fewer ranges than axes leave the last axes whole. See [`s!`](crate::s).
    ///
    /// ```
    /// use kiln_tensor::{Flex, Int, Tensor, s};
    ///
    /// let x = Tensor::<Flex, 1, Int>::arange(0..6, &Default::default()).reshape([2, 3]);
    /// assert_eq!(x.clone().slice([0..1, 1..3]).into_data().to_vec::<i32>(), [1, 2]);
    /// assert_eq!(x.slice(s![.., ..;-1]).into_data().to_vec::<i32>(), [2, 1, 0, 5, 4, 3]);
    /// ```
    ///
    /// # Panics
    /// When there are more ranges than axes, or a range starts beyond its axis.
    #[track_caller]
    pub fn slice<const N: usize, R: Into<SliceArg>>(self, ranges: [R; N]) -> Self {
        self.map(|any| {
            let slices = resolve_slices(&any, ranges)?;
            any.slice_axes(slices)
        })
    }

    /// The tensor with a range of it replaced.
    ///
    /// # Panics
    /// When the values do not have the shape of the range.
    #[track_caller]
    pub fn slice_assign<const N: usize, R: Into<SliceArg>>(self, ranges: [R; N], values: Self) -> Self {
        self.map(|any| {
            let slices = resolve_slices(&any, ranges)?;
            let op = kiln_ir::Op::SliceUpdate { slices, mode: kiln_ir::UpdateMode::Set };
            any.apply_with(&op, [values.into_any().into_value().into()])
        })
    }

    /// `length` elements of an axis, from `start`.
    #[track_caller]
    pub fn narrow(self, axis: usize, start: usize, length: usize) -> Self {
        self.map(|any| any.slice_axis(axis, SliceAxis { start, len: length, step: 1 }))
    }

    /// Splits an axis into `count` parts of equal length, the last of which may be shorter; fewer than `count` when the
    /// axis is too short.
    ///
    /// # Panics
    /// When the count is 0 or the axis is out of range.
    #[track_caller]
    pub fn chunk(self, count: usize, axis: usize) -> Vec<Self> {
        if count == 0 {
            fail(&Error::type_error(
                "chunk",
                "the number of parts must be at least 1",
                &[self.as_any().ty().into()],
            ));
        }
        ok(self.as_any().check_axes("chunk", &[axis]));
        let length = self.shape()[axis];
        self.split(length.div_ceil(count).max(1), axis)
    }

    /// Splits an axis into parts of that length; the last may be shorter.
    ///
    /// # Panics
    /// When the length is 0 or the axis is out of range.
    #[track_caller]
    pub fn split(self, length: usize, axis: usize) -> Vec<Self> {
        if length == 0 {
            fail(&Error::type_error(
                "split",
                "the length of parts must be at least 1",
                &[self.as_any().ty().into()],
            ));
        }
        ok(self.as_any().check_axes("split", &[axis]));
        let total = self.shape()[axis];
        let part = |start: usize| self.clone().narrow(axis, start, length.min(total - start));
        if total == 0 { Vec::from([self.clone()]) } else { (0..total).step_by(length).map(part).collect() }
    }

    /// The tensor repeated along each axis.
    #[track_caller]
    pub fn repeat(self, times: [usize; D]) -> Self {
        (0..D).fold(self, |tensor, axis| tensor.repeat_dim(axis, times[axis]))
    }

    /// The tensor repeated along one axis.
    #[track_caller]
    pub fn repeat_dim(self, axis: usize, times: usize) -> Self {
        self.map(|any| {
            any.check_axes("repeat_dim", &[axis])?;
            let shape = *any.shape();
            let with_copies = any.reshape(shape.inserted(axis, 1))?.expand(shape.inserted(axis, times))?;
            with_copies.reshape(shape.with(axis, shape[axis] * times))
        })
    }

    /// Puts a number around the elements: `(before, after)` per axis.
    #[track_caller]
    pub fn pad(self, pads: [(usize, usize); D], x: impl Number) -> Self {
        let pads = pads.iter().map(|&(low, high)| PadAxis::new(low, high)).collect();
        self.map(|any| any.pad_axes(pads, x))
    }
}

fn resolve_slices<const N: usize, R: Into<SliceArg>>(
    any: &AnyTensor,
    ranges: [R; N],
) -> crate::Result<Vec<SliceAxis>> {
    let shape = any.shape();
    if N > shape.rank() {
        let problem = format!("{N} ranges for {} axes", shape.rank());
        return Err(Error::type_error("slice", problem, &[any.ty().into()]));
    }
    let whole = shape.iter().skip(N).map(|&length| Ok(SliceAxis::all(length)));
    let ranged = ranges.into_iter().enumerate().map(|(axis, range)| range.into().resolve(axis, shape[axis]));
    ranged.chain(whole).collect()
}

/// What [`Tensor::reshape`] accepts: arrays of lengths, and [`Shape`].
pub trait ReshapeArgs<const D: usize> {
    /// The lengths; -1 for one to be computed, 0 for one to be kept.
    fn into_lengths(self) -> [i64; D];
}

macro_rules! reshape_args {
    ($($ty:ty),*) => {$(
        impl<const D: usize> ReshapeArgs<D> for [$ty; D] {
            fn into_lengths(self) -> [i64; D] {
                self.map(|length| length as i64)
            }
        }
    )*};
}

reshape_args!(usize, i64, i32);

impl<const D: usize> ReshapeArgs<D> for Shape {
    #[track_caller]
    fn into_lengths(self) -> [i64; D] {
        assert_eq!(self.rank(), D, "[reshape] the shape {self} does not have {D} axes");
        core::array::from_fn(|axis| self[axis] as i64)
    }
}

fn resolve_reshape(any: &AnyTensor, lengths: &[i64]) -> crate::Result<Shape> {
    let error =
        |problem: &str| Error::type_error("reshape", format!("{problem} in {lengths:?}"), &[any.ty().into()]);
    let total = any.shape().num_elements();
    let mut shape = Shape::new(&alloc::vec![1; lengths.len()]);
    let mut open = None;
    for (axis, &length) in lengths.iter().enumerate() {
        match length {
            -1 if open.is_some() => return Err(error("two lengths are -1")),
            -1 => open = Some(axis),
            0 if total != 0 && axis < any.shape().rank() => shape[axis] = any.shape()[axis],
            0.. => shape[axis] = length as usize,
            _ => return Err(error("a length is negative")),
        }
    }
    if let Some(axis) = open {
        let rest = shape.num_elements();
        if rest == 0 || !total.is_multiple_of(rest) {
            return Err(error(&format!("{total} elements do not divide into the other lengths")));
        }
        shape[axis] = total / rest;
    }
    Ok(shape)
}
