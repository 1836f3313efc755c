//! Tensors from nothing and from the host.

use super::ok;
use crate::{
    AnyTensor, Backend, Bool, DType, Distribution, Float, Int, Kind, Number, Numeric, Result, Shape,
};
use crate::{Tensor, TensorData, TensorType};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Error, MAX_RANK};

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// A tensor of data on the host, converted to the default dtype of the kind (`f32`, `i32`, `bool`).
    /// Accepts nested arrays, a `Vec` (one axis) and [`TensorData`].
    ///
    /// # Panics
    /// When the data does not have `D` axes.
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
        Tensor::from_any(ok(AnyTensor::full(*self.as_any().ty(), x.scalar(), self.as_any().stack())))
    }

    /// A tensor like this one, of zeros.
    #[track_caller]
    pub fn zeros_like(&self) -> Self {
        Tensor::from_any(ok(AnyTensor::zeros(*self.as_any().ty(), self.as_any().stack())))
    }

    /// A tensor like this one, of ones.
    #[track_caller]
    pub fn ones_like(&self) -> Self {
        let ty = *self.as_any().ty();
        Tensor::from_any(ok(AnyTensor::ones(ty, self.as_any().stack())))
    }

    /// A tensor of random numbers; see [`Distribution`] and [`Backend::seed`].
    #[track_caller]
    pub fn random(shape: impl Into<Shape>, distribution: Distribution, device: &B::Device) -> Self {
        let stack = B::stack(device);
        let ty = TensorType::new(shape, K::default_dtype(&stack));
        Tensor::from_any(ok(AnyTensor::random(ty, distribution, &stack)))
    }

    /// A tensor like this one, of random numbers.
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

impl<B: Backend> Tensor<B, 1, Int> {
    /// The integers of a range: `arange(0..5, &device)`.
    #[track_caller]
    pub fn arange(range: core::ops::Range<i64>, device: &B::Device) -> Self {
        Tensor::arange_step(range, 1, device)
    }

    /// Every `step`th integer of a range.
    ///
    /// # Panics
    /// When the step is 0.
    #[track_caller]
    pub fn arange_step(range: core::ops::Range<i64>, step: usize, device: &B::Device) -> Self {
        assert!(step > 0, "[arange] the step must be at least 1");
        let count = (range.end.saturating_sub(range.start).max(0) as u64).div_ceil(step as u64) as usize;
        let stack = B::stack(device);
        let ty = TensorType::new([count], stack.int_dtype());
        let iota: Tensor<B, 1, Int> = Tensor::from_any(ok(AnyTensor::iota(ty, 0, &stack)));
        iota * step + range.start
    }
}

impl<B: Backend, K: Numeric> Tensor<B, 2, K> {
    /// The identity matrix of that size.
    #[track_caller]
    pub fn eye(size: usize, device: &B::Device) -> Self {
        let stack = B::stack(device);
        let dtype = K::default_dtype(&stack);
        Tensor::from_any(ok(eye(&stack, size).and_then(|mask| mask.cast(dtype))))
    }
}

fn eye(stack: &crate::Stack, size: usize) -> Result<AnyTensor> {
    let ty = TensorType::new([size, size], stack.int_dtype());
    AnyTensor::iota(ty, 0, stack)?.compare(kiln_ir::Comparison::Eq, AnyTensor::iota(ty, 1, stack)?)
}

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// Tensors of one shape along a new axis.
    ///
    /// # Panics
    /// Without tensors, when their shapes differ, or when `D2` is not `D + 1`.
    #[track_caller]
    pub fn stack<const D2: usize>(tensors: Vec<Tensor<B, D, K>>, axis: usize) -> Tensor<B, D2, K> {
        if D2 != D + 1 || axis > D || D2 > MAX_RANK {
            let problem = format!("stacking along axis {axis} turns {D} axes into {}, not {D2}", D + 1);
            super::fail(&Error::type_error("stack", problem, &[]));
        }
        let parts = tensors.into_iter().map(|tensor| tensor.unsqueeze_dim::<D2>(axis)).collect();
        Tensor::cat(parts, axis)
    }

    /// Tensors one after the other along an axis.
    ///
    /// # Panics
    /// Without tensors, or when their shapes differ outside the axis.
    #[track_caller]
    pub fn cat(tensors: Vec<Tensor<B, D, K>>, axis: usize) -> Self {
        Tensor::from_any(ok(AnyTensor::cat(tensors.into_iter().map(Tensor::into_any).collect(), axis)))
    }
}
