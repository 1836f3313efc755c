//! One-hot encodings.

use crate::{AnyTensor, Axis, Error, Number, Result, Shape, TensorType};
use alloc::format;
use kiln_ir::{Comparison, IndexUser};

impl AnyTensor {
    /// Encodes class indices as one-hot vectors along a new last axis. A class index out of range is an error of the
    /// value, reported when it is read. See [`Tensor::one_hot`](crate::Tensor::one_hot).
    ///
    /// # Errors
    /// When the tensor is `bool`.
    pub fn one_hot(self, classes: usize) -> Result<AnyTensor> {
        let numbers = self.classes_below(classes)?;
        numbers.one_hot_fill(classes, 1, 0, -1)
    }

    /// Encodes class indices along a new axis, with `on` at the class and `off` elsewhere. See
    /// [`Tensor::one_hot_fill`](crate::Tensor::one_hot_fill).
    ///
    /// # Errors
    /// When the tensor is `bool`, the axis is out of range of the result, or `on` or `off` is not a value of the dtype.
    pub fn one_hot_fill(
        self,
        classes: usize,
        on: impl Number,
        off: impl Number,
        axis: impl Into<Axis>,
    ) -> Result<AnyTensor> {
        let here = self.classes_along(classes, axis.into())?;
        let off = AnyTensor::full(here.1, off, here.0.stack())?;
        here.0.if_else_number(on, off)
    }

    /// Returns whether each class index equals the index along a new axis, and the type of the result.
    fn classes_along(self, classes: usize, axis: Axis) -> Result<(AnyTensor, TensorType)> {
        if self.dtype().is_bool() {
            return Err(Error::type_error("one_hot", "needs numbers", &[self.ty().into()])
                .hint("cast truth values first: `int()`"));
        }
        let rank = self.rank() + 1;
        self.fits_rank("one_hot", rank)?;
        let Some(axis) = axis.within(rank) else {
            let problem = format!("the new axis is out of range for a result of {rank} axes");
            return Err(Error::type_error("one_hot", problem, &[self.ty().into()]));
        };
        let dtype = self.dtype();
        let mut along = Shape::new(&[1; crate::MAX_RANK][..rank]);
        along[axis] = classes;
        // A narrow dtype would wrap the class indices.
        let numbers = self.widened()?;
        let places = AnyTensor::iota(TensorType::new(along, numbers.dtype()), axis, numbers.stack())?;
        let here = numbers.unsqueeze_dim(axis)?.compare(Comparison::Eq, places)?;
        let ty = here.ty().with_dtype(dtype);
        Ok((here, ty))
    }

    /// Checks that the elements are class indices: an index out of range is an error of the value. A float that is not
    /// an integer becomes -1, which is never a class.
    fn classes_below(self, classes: usize) -> Result<AnyTensor> {
        if self.dtype().is_bool() {
            return Ok(self);
        }
        let dtype = self.dtype();
        let numbers = self.widened()?;
        let index = if numbers.dtype().is_int() {
            numbers
        } else {
            let index = numbers.clone().cast(numbers.stack().int_dtype())?;
            let is_whole = numbers.clone().compare(Comparison::Eq, index.clone().cast(numbers.dtype())?)?;
            let none = AnyTensor::full(index.ty().with_shape([]), -1, index.stack())?;
            is_whole.if_else(index, none)?
        };
        index.checked_for(IndexUser::OneHot, classes)?.cast(dtype)
    }
}
