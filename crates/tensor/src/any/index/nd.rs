//! Indexing by coordinates of several axes.

use super::index_dtype;
use crate::{AnyTensor, Error, Result, Shape};
use alloc::format;
use kiln_ir::{Binary, Comparison, DType, UpdateMode};

impl AnyTensor {
    /// Gathers elements, or slices, by coordinates. See [`Tensor::gather_nd`](crate::Tensor::gather_nd).
    ///
    /// # Errors
    /// When the coordinates are not integers with at least one axis, or are more than the axes of the tensor.
    pub fn gather_nd(self, places: AnyTensor) -> Result<AnyTensor> {
        self.in_same_domain("gather_nd", &places)?;
        let depth = self.depth("gather_nd", &places)?;
        let places = places.flat_places(&self.shape()[..depth])?;
        let flat = self.join_first(depth)?;
        flat.take(0, places)
    }

    /// Combines values, or slices, with the elements at the given coordinates. See
    /// [`Tensor::scatter_nd`](crate::Tensor::scatter_nd).
    ///
    /// # Errors
    /// As [`gather_nd`](AnyTensor::gather_nd), and when the values differ from the written elements in shape or dtype,
    /// or a mode other than [`Set`](UpdateMode::Set) combines `bool`.
    pub fn scatter_nd(self, places: AnyTensor, values: AnyTensor, mode: UpdateMode) -> Result<AnyTensor> {
        self.in_same_domain("scatter_nd", &places)?;
        self.in_same_domain("scatter_nd", &values)?;
        let depth = self.depth("scatter_nd", &places)?;
        let shape = *self.shape();
        let last = places.rank() - 1;
        let expected: Shape = places.shape()[..last].iter().chain(&shape[depth..]).copied().collect();
        if *values.shape() != expected {
            let problem = format!("the values must have shape {expected}");
            let types = [self.ty().into(), places.ty().into(), values.ty().into()];
            return Err(Error::type_error("scatter_nd", problem, &types));
        }
        let places = places.flat_places(&shape[..depth])?;
        self.join_first(depth)?.put(0, places, values, mode)?.reshape(shape)
    }

    /// Returns the number of coordinates of a point.
    fn depth(&self, op: &str, places: &AnyTensor) -> Result<usize> {
        let wrong =
            |problem: &str| Err(Error::type_error(op, problem, &[self.ty().into(), places.ty().into()]));
        match places.shape().last() {
            None => wrong("the places need at least 1 axis, that of the coordinates"),
            Some(_) if !places.dtype().is_int() => wrong("the places must be integers"),
            Some(&depth) if depth > self.rank() => {
                wrong(&format!("places of {depth} coordinates for {} axes", self.rank()))
            }
            Some(&depth) => {
                self.fits_rank(op, places.rank() - 1 + self.rank() - depth)?;
                Ok(depth)
            }
        }
    }

    fn join_first(self, depth: usize) -> Result<AnyTensor> {
        let joined: usize = self.shape()[..depth].iter().product();
        let shape = core::iter::once(joined).chain(self.shape()[depth..].iter().copied());
        let shape = shape.collect::<Shape>();
        self.reshape(shape)
    }

    /// Converts coordinates along the last axis to row-major indices; -1 where a coordinate is out of range.
    fn flat_places(self, lengths: &[usize]) -> Result<AnyTensor> {
        let last = self.rank() - 1;
        let shape = self.shape().without(last);
        let stack = self.stack().clone();
        let dtype = place_dtype(self.dtype(), lengths);
        let any = self.cast(dtype)?;
        let mut flat = AnyTensor::zeros(any.ty().with_shape(shape), &stack)?;
        let mut outside = AnyTensor::zeros(flat.ty().with_dtype(DType::Bool), &stack)?;
        for (axis, &length) in lengths.iter().enumerate() {
            let place = any.clone().narrow(last, axis, 1)?.reshape(shape)?;
            let below = place.clone().compare_scalar(Comparison::Lt, 0)?;
            let above = place.clone().scalar_compare(length, Comparison::Le)?;
            outside = outside.binary(Binary::Or, below)?.binary(Binary::Or, above)?;
            flat = flat.binary_scalar(Binary::Mul, length)?.binary(Binary::Add, place)?;
        }
        outside.if_else_number(-1, flat)
    }
}

/// Returns a signed dtype that represents the coordinates, and every row-major index of axes of these lengths.
fn place_dtype(coordinates: DType, lengths: &[usize]) -> DType {
    let total = lengths.iter().fold(1usize, |total, &length| total.saturating_mul(length));
    let is_narrow = coordinates.size() < 4 || coordinates == DType::I32;
    if is_narrow { index_dtype(total) } else { DType::I64 }
}
