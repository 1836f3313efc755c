//! Reshapes: the same elements in another shape.

use crate::{AnyTensor, Axis, AxisList, Error, MAX_RANK, Result, Shape};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Op, OperandType, infer::broadcast_shapes};

impl AnyTensor {
    /// Reshapes the tensor. See [`Tensor::reshape`](crate::Tensor::reshape).
    ///
    /// # Errors
    /// When the shape has another number of elements.
    #[doc(alias = "view")]
    pub fn reshape(self, shape: impl Into<Shape>) -> Result<AnyTensor> {
        let shape = shape.into();
        if *self.shape() == shape { Ok(self) } else { self.apply(&Op::Reshape(shape)) }
    }

    /// Reshapes the tensor; one length may be -1 and is inferred, and 0 keeps the length of the same axis. See
    /// [`Tensor::reshape`](crate::Tensor::reshape).
    ///
    /// # Errors
    /// When the lengths do not multiply to the number of elements, more than one is -1, or one is less than -1.
    pub fn reshape_lengths(self, lengths: &[i64]) -> Result<AnyTensor> {
        self.fits_rank("reshape", lengths.len())?;
        let shape = resolve_reshape(&self, lengths)?;
        self.reshape(shape)
    }

    /// Flattens the axes `start..=end` into one. A rank-0 tensor becomes a vector of one element. See
    /// [`Tensor::flatten`](crate::Tensor::flatten).
    ///
    /// # Errors
    /// When an axis is out of range, or `start` is after `end`.
    #[doc(alias = "ravel")]
    pub fn flatten(self, start: impl Into<Axis>, end: impl Into<Axis>) -> Result<AnyTensor> {
        self.flatten_axes(start.into(), end.into())
    }

    fn flatten_axes(self, start: Axis, end: Axis) -> Result<AnyTensor> {
        if self.rank() == 0 {
            return self.reshape([1]);
        }
        let (start, end) = (start.of("flatten", self.ty())?, end.of("flatten", self.ty())?);
        if start > end {
            let problem = format!("the first axis, {start}, comes after the last, {end}");
            return Err(Error::type_error("flatten", problem, &[self.ty().into()])
                .hint("name the axes in ascending order"));
        }
        let shape = *self.shape();
        let joined: usize = shape[start..=end].iter().product();
        let lengths = shape[..start].iter().copied().chain([joined]).chain(shape[end + 1..].iter().copied());
        self.reshape(lengths.collect::<Shape>())
    }

    /// Splits an axis into several. See [`Tensor::unflatten`](crate::Tensor::unflatten).
    ///
    /// # Errors
    /// When the axis is out of range, the lengths do not multiply to its length, more than one is -1, or one is less
    /// than -1.
    pub fn unflatten(self, axis: impl Into<Axis>, lengths: &[i64]) -> Result<AnyTensor> {
        let axis = axis.into().of("unflatten", self.ty())?;
        let shape = *self.shape();
        let place = |length: usize| length as i64;
        let wanted: Vec<i64> = (shape[..axis].iter().copied().map(place))
            .chain(lengths.iter().copied())
            .chain(shape[axis + 1..].iter().copied().map(place))
            .collect();
        self.fits_rank("unflatten", wanted.len())?;
        let parts = resolve_lengths("unflatten", &self, shape[axis], None, lengths)?;
        let whole = shape[..axis].iter().chain(parts.iter()).chain(&shape[axis + 1..]);
        self.reshape(whole.copied().collect::<Shape>())
    }

    /// Removes all axes of length 1. See [`Tensor::squeeze`](crate::Tensor::squeeze).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn squeeze(self) -> Result<AnyTensor> {
        let rest: Shape = self.shape().iter().copied().filter(|&length| length != 1).collect();
        self.reshape(rest)
    }

    /// Removes one axis of length 1. See [`Tensor::squeeze_dim`](crate::Tensor::squeeze_dim).
    ///
    /// # Errors
    /// When the axis is out of range, or its length is not 1.
    pub fn squeeze_dim(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let axis = axis.into().of("squeeze_dim", self.ty())?;
        self.without_axes("squeeze_dim", &[axis])
    }

    /// Removes axes of length 1. See [`Tensor::squeeze_dims`](crate::Tensor::squeeze_dims).
    ///
    /// # Errors
    /// When an axis is out of range or repeated, or its length is not 1.
    pub fn squeeze_dims(self, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        let axes = axes.into().of("squeeze_dims", self.ty())?;
        self.without_axes("squeeze_dims", &axes)
    }

    pub(crate) fn without_axes(self, op: &str, axes: &[usize]) -> Result<AnyTensor> {
        let shape = *self.shape();
        if let Some(&axis) = axes.iter().find(|&&axis| shape[axis] != 1) {
            let problem = format!("axis {axis} has length {}, not 1", shape[axis]);
            return Err(Error::type_error(op, problem, &[self.ty().into()])
                .hint("join some of them: `flatten`")
                .hint("only axes of length 1 can be squeezed; `reshape` or a reduction removes others"));
        }
        let rest = (0..shape.rank()).filter(|axis| !axes.contains(axis)).map(|axis| shape[axis]);
        self.reshape(rest.collect::<Shape>())
    }

    /// Inserts axes of length 1 in front, up to rank `rank`. See [`Tensor::unsqueeze`](crate::Tensor::unsqueeze).
    ///
    /// # Errors
    /// When the tensor has more than `rank` axes.
    pub fn unsqueeze(self, rank: usize) -> Result<AnyTensor> {
        self.fits_rank("unsqueeze", rank)?;
        let Some(more) = rank.checked_sub(self.rank()) else {
            let problem = format!("{} axes do not become {rank} by adding some", self.rank());
            return Err(Error::type_error("unsqueeze", problem, &[self.ty().into()])
                .hint("`squeeze` and `flatten` reduce the number of axes"));
        };
        let shape = core::iter::repeat_n(1, more).chain(self.shape().iter().copied()).collect::<Shape>();
        self.reshape(shape)
    }

    /// Inserts an axis of length 1, which is axis `axis` of the result. See
    /// [`Tensor::unsqueeze_dim`](crate::Tensor::unsqueeze_dim).
    ///
    /// # Errors
    /// When the axis is out of range of the result.
    #[doc(alias = "expand_dims")]
    #[doc(alias = "newaxis")]
    pub fn unsqueeze_dim(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.with_axes("unsqueeze_dim", &AxisList::of_one(axis.into()))
    }

    /// Inserts axes of length 1, which are these axes of the result. See
    /// [`Tensor::unsqueeze_dims`](crate::Tensor::unsqueeze_dims).
    ///
    /// # Errors
    /// When an axis is out of range of the result or repeated.
    pub fn unsqueeze_dims(self, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        self.with_axes("unsqueeze_dims", &axes.into())
    }

    fn with_axes(self, op: &str, axes: &AxisList) -> Result<AnyTensor> {
        let rank = self.rank() + axes.len();
        self.fits_rank(op, rank)?;
        // The axes are those of the result, so they are checked against its rank.
        let result = self.ty().with_shape(Shape::new(&[1; MAX_RANK][..rank]));
        let places = axes.of(op, &result).map_err(|_| {
            let problem = format!("the new axes are not distinct axes of a result of {rank} axes");
            Error::type_error(op, problem, &[self.ty().into()]).hint(format!(
                "new axes range from 0 to {}, or from -1 counted from the end",
                rank.max(1) - 1
            ))
        })?;
        let mut old = self.shape().iter().copied();
        let length = |axis| if places.contains(&axis) { 1 } else { old.next().unwrap_or(1) };
        let shape = (0..rank).map(length).collect::<Shape>();
        self.reshape(shape)
    }

    /// Expands axes of length 1 and adds axes in front, without copying. See [`Tensor::expand`](crate::Tensor::expand).
    ///
    /// # Errors
    /// When the tensor does not broadcast to the shape.
    #[doc(alias = "broadcast_to")]
    pub fn expand(self, shape: impl Into<Shape>) -> Result<AnyTensor> {
        let shape = shape.into();
        if *self.shape() == shape {
            return Ok(self);
        }
        self.apply(&Op::Broadcast(shape)).map_err(|error| error.in_op("expand"))
    }

    /// Like [`expand`](AnyTensor::expand), where -1 keeps a length.
    ///
    /// # Errors
    /// When the tensor does not broadcast to the lengths, a new axis has length -1, or a length is less than -1.
    pub fn expand_lengths(self, lengths: &[i64]) -> Result<AnyTensor> {
        self.fits_rank("expand", lengths.len())?;
        let added = lengths.len().saturating_sub(self.rank());
        let length = |(axis, &length): (usize, &i64)| match length {
            -1 if axis >= added => Ok(self.shape()[axis - added]),
            0.. => Ok(length as usize),
            _ => Err(Error::type_error(
                "expand",
                format!("{length} at position {axis} is not a length"),
                &[self.ty().into()],
            )
            .hint("-1 keeps the length of an existing axis")),
        };
        let shape = lengths.iter().enumerate().map(length).collect::<Result<Vec<usize>>>()?;
        self.expand(shape)
    }

    /// Broadcasts all tensors to one shape. See [`Tensor::broadcast_tensors`](crate::Tensor::broadcast_tensors).
    ///
    /// # Errors
    /// When the shapes do not broadcast.
    pub fn broadcast_tensors(tensors: Vec<AnyTensor>) -> Result<Vec<AnyTensor>> {
        let mut shape = Shape::default();
        for tensor in &tensors {
            shape = match broadcast_shapes(&shape, tensor.shape()) {
                Some(shape) => shape,
                None => {
                    let types: Vec<OperandType<'_>> = tensors.iter().map(|x| x.ty().into()).collect();
                    let error = Error::type_error("broadcast_tensors", "shapes do not broadcast", &types);
                    return Err(error.hint("aligned at the last axis, lengths must be equal or 1"));
                }
            };
        }
        tensors.into_iter().map(|tensor| tensor.expand(shape)).collect()
    }

    /// Returns the tensor with at least one axis. See [`Tensor::atleast_1d`](crate::Tensor::atleast_1d).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn atleast_1d(self) -> Result<AnyTensor> {
        let rank = self.rank().max(1);
        self.unsqueeze(rank)
    }

    /// Returns the tensor with at least two axes. See [`Tensor::atleast_2d`](crate::Tensor::atleast_2d).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn atleast_2d(self) -> Result<AnyTensor> {
        let rank = self.rank().max(2);
        self.unsqueeze(rank)
    }

    /// Returns the tensor with at least three axes. See [`Tensor::atleast_3d`](crate::Tensor::atleast_3d).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn atleast_3d(self) -> Result<AnyTensor> {
        match self.rank() {
            // A matrix is an image with one channel.
            2 => self.unsqueeze_dim(2),
            1 => self.unsqueeze_dims([0, 2]),
            rank => self.unsqueeze(rank.max(3)),
        }
    }

    /// Returns an error if `rank` is above the maximum rank.
    pub(crate) fn fits_rank(&self, op: &str, rank: usize) -> Result<()> {
        if rank <= MAX_RANK {
            return Ok(());
        }
        let problem = format!("{rank} axes are more than the {MAX_RANK} that a tensor may have");
        Err(Error::type_error(op, problem, &[self.ty().into()]))
    }
}

fn resolve_reshape(any: &AnyTensor, lengths: &[i64]) -> Result<Shape> {
    let total = any.shape().num_elements();
    // In an empty tensor 0 is a length like any other.
    let keep = if total == 0 { None } else { Some(any.shape()) };
    resolve_lengths("reshape", any, total, keep, lengths)
}

/// Resolves -1 and 0 in the lengths of `total` elements; `keep` has the lengths that a 0 keeps.
fn resolve_lengths(
    op: &str,
    any: &AnyTensor,
    total: usize,
    keep: Option<&Shape>,
    lengths: &[i64],
) -> Result<Shape> {
    let error = |problem: &str| {
        Error::type_error(op, format!("{problem} in {lengths:?}"), &[any.ty().into()])
            .hint("the lengths multiply to the number of elements; one may be -1, and is inferred")
    };
    let mut shape = Shape::new(&[1; MAX_RANK][..lengths.len()]);
    let mut open = None;
    for (axis, &length) in lengths.iter().enumerate() {
        shape[axis] = match (length, keep.and_then(|keep| keep.get(axis))) {
            (-1, _) if open.is_some() => return Err(error("two lengths are -1")),
            (-1, _) => {
                open = Some(axis);
                1
            }
            (0, Some(&kept)) => kept,
            (0.., _) => length as usize,
            _ => return Err(error("a length is negative")),
        };
    }
    let rest = shape.checked_num_elements();
    if let Some(axis) = open {
        match rest {
            Some(rest) if rest != 0 && total.is_multiple_of(rest) => shape[axis] = total / rest,
            _ => return Err(error(&format!("{total} elements do not divide into the other lengths"))),
        }
    }
    Ok(shape)
}
