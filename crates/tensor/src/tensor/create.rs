//! Constructors: constants, random tensors and host data.

use super::ok;
use crate::{
    AnyTensor, Backend, Bool, DType, Distribution, Float, Int, Kind, Number, Shape, Tensor, TensorData,
    TensorType,
};

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// Creates a tensor of host data, converted to the default dtype of the kind (`f32`, `i32`, `bool`). Accepts nested
    /// arrays, a `Vec` (one axis) and [`TensorData`].
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

    /// Creates a tensor of host data, converted to this dtype.
    ///
    /// # Panics
    /// When the data does not have `D` axes, or the dtype is not of the kind.
    #[track_caller]
    pub fn from_data_dtype(data: impl Into<TensorData>, dtype: DType, device: &B::Device) -> Self {
        Tensor::from_any(AnyTensor::from_data(data.into().convert(dtype), &B::stack(device)))
    }

    /// Creates a tensor filled with a scalar.
    ///
    /// # Panics
    /// When the tensor has integer elements and `x` is fractional or out of the range of the dtype.
    #[track_caller]
    pub fn full(shape: impl Into<Shape>, x: impl Number, device: &B::Device) -> Self {
        let stack = B::stack(device);
        let ty = TensorType::new(shape, K::default_dtype(&stack));
        Tensor::from_any(ok(AnyTensor::full(ty, x.scalar(), &stack)))
    }

    /// Creates a tensor of zeros (`false`).
    #[track_caller]
    pub fn zeros(shape: impl Into<Shape>, device: &B::Device) -> Self {
        let stack = B::stack(device);
        let ty = TensorType::new(shape, K::default_dtype(&stack));
        Tensor::from_any(ok(AnyTensor::zeros(ty, &stack)))
    }

    /// Creates a tensor with unspecified elements, to be overwritten.
    #[track_caller]
    pub fn empty(shape: impl Into<Shape>, device: &B::Device) -> Self {
        Tensor::zeros(shape, device)
    }

    /// Creates a tensor of ones (`true`).
    #[track_caller]
    pub fn ones(shape: impl Into<Shape>, device: &B::Device) -> Self {
        let stack = B::stack(device);
        let ty = TensorType::new(shape, K::default_dtype(&stack));
        Tensor::from_any(ok(AnyTensor::ones(ty, &stack)))
    }

    /// Creates a tensor of the same shape, dtype and device, filled with a scalar.
    ///
    /// # Panics
    /// When the tensor has integer elements and `x` is fractional or out of the range of the dtype.
    #[track_caller]
    pub fn full_like(&self, x: impl Number) -> Self {
        Tensor::from_any(ok(self.as_any().full_like(x)))
    }

    /// Creates a tensor of zeros with the same shape, dtype and device.
    #[track_caller]
    pub fn zeros_like(&self) -> Self {
        Tensor::from_any(ok(self.as_any().zeros_like()))
    }

    /// Creates a tensor with unspecified elements and the same shape, dtype and device, to be overwritten.
    #[track_caller]
    pub fn empty_like(&self) -> Self {
        Tensor::from_any(ok(self.as_any().empty_like()))
    }

    /// Creates a tensor of ones with the same shape, dtype and device.
    #[track_caller]
    pub fn ones_like(&self) -> Self {
        Tensor::from_any(ok(self.as_any().ones_like()))
    }

    /// Creates a tensor of random elements; see [`Distribution`] and [`Backend::seed`].
    ///
    /// # Panics
    /// When a parameter of the distribution is invalid ([`Distribution::check`]).
    #[doc(alias = "rand")]
    #[doc(alias = "randn")]
    #[track_caller]
    pub fn random(shape: impl Into<Shape>, distribution: Distribution, device: &B::Device) -> Self {
        let stack = B::stack(device);
        let ty = TensorType::new(shape, K::default_dtype(&stack));
        Tensor::from_any(ok(AnyTensor::random(ty, distribution, &stack)))
    }

    /// Creates a tensor of random elements with the same shape, dtype and device.
    ///
    /// # Panics
    /// When a parameter of the distribution is invalid ([`Distribution::check`]).
    #[doc(alias = "rand_like")]
    #[doc(alias = "randn_like")]
    #[track_caller]
    pub fn random_like(&self, distribution: Distribution) -> Self {
        Tensor::from_any(ok(AnyTensor::random(*self.as_any().ty(), distribution, self.as_any().stack())))
    }
}

impl<B: Backend, const D: usize> Tensor<B, D, Float> {
    /// Creates a float tensor of host data.
    ///
    /// # Panics
    /// When the data does not have `D` axes.
    #[track_caller]
    pub fn from_floats(data: impl Into<TensorData>, device: &B::Device) -> Self {
        Tensor::from_data(data, device)
    }
}

impl<B: Backend, const D: usize> Tensor<B, D, Int> {
    /// Creates an integer tensor of host data.
    ///
    /// # Panics
    /// When the data does not have `D` axes.
    #[track_caller]
    pub fn from_ints(data: impl Into<TensorData>, device: &B::Device) -> Self {
        Tensor::from_data(data, device)
    }
}

impl<B: Backend, const D: usize> Tensor<B, D, Bool> {
    /// Creates a boolean tensor of host data.
    ///
    /// # Panics
    /// When the data does not have `D` axes.
    #[track_caller]
    pub fn from_bools(data: impl Into<TensorData>, device: &B::Device) -> Self {
        Tensor::from_data(data, device)
    }

    /// [`from_bools`](Tensor::from_bools) under the name that Burn uses.
    ///
    /// # Panics
    /// When the data does not have `D` axes.
    #[track_caller]
    pub fn from_bool(data: TensorData, device: &B::Device) -> Self {
        Tensor::from_data(data, device)
    }
}
