//! Constants with the shape, dtype and stack of another tensor.

use crate::{AnyTensor, Number, Result};

impl AnyTensor {
    /// Creates a tensor of the same shape and dtype, filled with a scalar. See
    /// [`Tensor::full_like`](crate::Tensor::full_like).
    ///
    /// # Errors
    /// As [`full`](AnyTensor::full).
    pub fn full_like(&self, x: impl Number) -> Result<AnyTensor> {
        AnyTensor::full(*self.ty(), x, self.stack())
    }

    /// Creates a tensor of zeros with the same shape and dtype. See [`Tensor::zeros_like`](crate::Tensor::zeros_like).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn zeros_like(&self) -> Result<AnyTensor> {
        AnyTensor::zeros(*self.ty(), self.stack())
    }

    /// Creates a tensor of ones with the same shape and dtype. See [`Tensor::ones_like`](crate::Tensor::ones_like).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn ones_like(&self) -> Result<AnyTensor> {
        AnyTensor::ones(*self.ty(), self.stack())
    }

    /// Creates a tensor of the same shape and dtype, to be overwritten. See
    /// [`Tensor::empty_like`](crate::Tensor::empty_like).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn empty_like(&self) -> Result<AnyTensor> {
        AnyTensor::empty(*self.ty(), self.stack())
    }
}
