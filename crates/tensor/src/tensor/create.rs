//! Tensors from nothing and from the host.

use super::ok;
use crate::{
    AnyTensor, Backend, Bool, DType, Distribution, Float, Int, Kind, Number, Shape, Tensor, TensorData,
    TensorType,
};

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// A tensor of data on the host, converted to the default dtype of the kind (`f32`, `i32`, `bool`).
    /// Accepts nested arrays, a `Vec` (one axis) and [`TensorData`].
    ///
    /// # Panics
    /// When the data does not have `D` axes.
    #[doc(alias = "tensor")]
    #[doc(alias = "array")]
    #[doc(alias = "asarray")]
    #[track_caller]
    pub fn from_data(data: impl Into<TensorData>, device: &B::Device) -> Self {
        let stack = B::stack(device);
        let dtype = K::default_dtype(&stack);
        Tensor::from_any(AnyTensor::from_data(data.into().convert(dtype), &stack))
    }

    /// A tensor of data on the host, converted to this dtype.
    ///
    /// # Panics
    /// When the data does not have `D` axes, or the dtype is not of the kind.
    #[track_caller]
    pub fn from_data_dtype(data: impl Into<TensorData>, dtype: DType, device: &B::Device) -> Self {
        Tensor::from_any(AnyTensor::from_data(data.into().convert(dtype), &B::stack(device)))
    }

    /// A tensor filled with a number.
    #[track_caller]
    pub fn full(shape: impl Into<Shape>, x: impl Number, device: &B::Device) -> Self {
        let stack = B::stack(device);
        let ty = TensorType::new(shape, K::default_dtype(&stack));
        Tensor::from_any(ok(AnyTensor::full(ty, x.scalar(), &stack)))
    }

    /// A tensor of zeros (`false`).
    #[track_caller]
    pub fn zeros(shape: impl Into<Shape>, device: &B::Device) -> Self {
        let stack = B::stack(device);
        let ty = TensorType::new(shape, K::default_dtype(&stack));
        Tensor::from_any(ok(AnyTensor::zeros(ty, &stack)))
    }

    /// A tensor with unspecified elements, to be overwritten.
    #[track_caller]
    pub fn empty(shape: impl Into<Shape>, device: &B::Device) -> Self {
        Tensor::zeros(shape, device)
    }

    /// A tensor of ones (`true`).
    #[track_caller]
    pub fn ones(shape: impl Into<Shape>, device: &B::Device) -> Self {
        let stack = B::stack(device);
        let ty = TensorType::new(shape, K::default_dtype(&stack));
        Tensor::from_any(ok(AnyTensor::ones(ty, &stack)))
    }

    /// A tensor like this one, filled with a number.
    #[track_caller]
    pub fn full_like(&self, x: impl Number) -> Self {
        Tensor::from_any(ok(self.as_any().full_like(x)))
    }

    /// A tensor like this one, of zeros.
    #[track_caller]
    pub fn zeros_like(&self) -> Self {
        Tensor::from_any(ok(self.as_any().zeros_like()))
    }

    /// A tensor like this one, to be overwritten.
    #[track_caller]
    pub fn empty_like(&self) -> Self {
        Tensor::from_any(ok(self.as_any().empty_like()))
    }

    /// A tensor like this one, of ones.
    #[track_caller]
    pub fn ones_like(&self) -> Self {
        Tensor::from_any(ok(self.as_any().ones_like()))
    }

    /// A tensor of random numbers; see [`Distribution`] and [`Backend::seed`].
    #[doc(alias = "rand")]
    #[doc(alias = "randn")]
    #[track_caller]
    pub fn random(shape: impl Into<Shape>, distribution: Distribution, device: &B::Device) -> Self {
        let stack = B::stack(device);
        let ty = TensorType::new(shape, K::default_dtype(&stack));
        Tensor::from_any(ok(AnyTensor::random(ty, distribution, &stack)))
    }

    /// A tensor like this one, of random numbers.
    #[doc(alias = "rand_like")]
    #[doc(alias = "randn_like")]
    #[track_caller]
    pub fn random_like(&self, distribution: Distribution) -> Self {
        Tensor::from_any(ok(AnyTensor::random(*self.as_any().ty(), distribution, self.as_any().stack())))
    }
}

impl<B: Backend, const D: usize> Tensor<B, D, Float> {
    /// A tensor of numbers on the host.
    ///
    /// # Panics
    /// When the data does not have `D` axes.
    #[track_caller]
    pub fn from_floats(data: impl Into<TensorData>, device: &B::Device) -> Self {
        Tensor::from_data(data, device)
    }
}

impl<B: Backend, const D: usize> Tensor<B, D, Int> {
    /// A tensor of integers on the host.
    ///
    /// # Panics
    /// When the data does not have `D` axes.
    #[track_caller]
    pub fn from_ints(data: impl Into<TensorData>, device: &B::Device) -> Self {
        Tensor::from_data(data, device)
    }
}

impl<B: Backend, const D: usize> Tensor<B, D, Bool> {
    /// A tensor of truth values on the host.
    ///
    /// # Panics
    /// When the data does not have `D` axes.
    #[track_caller]
    pub fn from_bools(data: impl Into<TensorData>, device: &B::Device) -> Self {
        Tensor::from_data(data, device)
    }
}
