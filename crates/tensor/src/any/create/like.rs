//! Tensors of the type of another.

use crate::{AnyTensor, Number, Result};

impl AnyTensor {
    /// A tensor like this one, filled with a number. See [`Tensor::full_like`](crate::Tensor::full_like).
    pub fn full_like(&self, x: impl Number) -> Result<AnyTensor> {
        AnyTensor::full(*self.ty(), x, self.stack())
    }

    /// A tensor like this one, of zeros. See [`Tensor::zeros_like`](crate::Tensor::zeros_like).
    pub fn zeros_like(&self) -> Result<AnyTensor> {
        AnyTensor::zeros(*self.ty(), self.stack())
    }

    /// A tensor like this one, of ones. See [`Tensor::ones_like`](crate::Tensor::ones_like).
    pub fn ones_like(&self) -> Result<AnyTensor> {
        AnyTensor::ones(*self.ty(), self.stack())
    }

    /// A tensor like this one, to be overwritten. See [`Tensor::empty_like`](crate::Tensor::empty_like).
    pub fn empty_like(&self) -> Result<AnyTensor> {
        AnyTensor::empty(*self.ty(), self.stack())
    }
}
