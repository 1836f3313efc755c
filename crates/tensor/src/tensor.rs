//! [`Tensor`], one file per family of methods.

mod arithmetic;
mod autodiff;
mod bits;
mod bool;
mod compare;
mod contraction;
mod create;
mod data;
mod elementwise;
mod float;
pub(crate) mod forward;
mod from;
mod grid;
mod index;
mod int;
mod join;
mod operators;
mod order;
mod random;
mod reduce;
mod sequence;
mod special;
mod stats;
mod view;

pub use autodiff::{Gradients, NodeId, checkpoint};
pub(crate) use autodiff::{backward, detach, require_grad};
pub use index::Unique;
pub use view::ReshapeArgs;

use crate::{AnyTensor, Backend, DType, Error, Float, Kind, Result, Shape, Stack, TensorType};
use alloc::format;
use core::fmt;
use core::marker::PhantomData;

/// A tensor on backend `B` with `D` axes and elements of kind `K`.
///
/// Cloning is cheap and shares the elements. Methods take `self` by value so that an engine can reuse the memory of a
/// tensor that nothing else uses. To keep a tensor, clone it, or use operators on references.
///
/// # Panics
/// Methods panic, at the caller's line, when shapes or dtypes are incompatible, or axes are out of range. Nothing else
/// panics: errors of data and devices come back from [`try_into_data`](Tensor::try_into_data), and the methods
/// that read a tensor without `try_` in their name panic with them.
pub struct Tensor<B: Backend, const D: usize, K: Kind = Float> {
    any: AnyTensor,
    marker: PhantomData<fn() -> (B, K)>,
}

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// Converts an [`AnyTensor`] to a typed tensor.
    ///
    /// # Panics
    /// When rank or kind differ.
    #[inline]
    #[track_caller]
    pub fn from_any(any: AnyTensor) -> Self {
        if any.shape().rank() != D || !K::holds(any.dtype()) {
            panic!("{}", mismatch::<D, K>(any.ty()));
        }
        Tensor { any, marker: PhantomData }
    }

    /// Converts to an [`AnyTensor`], whose backend, rank and kind are known at run time.
    #[inline]
    pub fn into_any(self) -> AnyTensor {
        self.any
    }

    /// Returns a reference to the [`AnyTensor`].
    #[inline]
    pub fn as_any(&self) -> &AnyTensor {
        &self.any
    }

    /// Returns the stack of engines and layers that runs this tensor's ops.
    pub fn engine_stack(&self) -> &Stack {
        self.any.stack()
    }

    /// Returns the device of the tensor.
    pub fn device(&self) -> B::Device {
        B::device(&self.any.stack().stack_of(self.any.value()))
    }

    /// Returns a human-readable report of the kernels that produced this tensor, and why each fused region ended. Runs
    /// pending ops. See [`AnyTensor::explain`].
    pub fn explain(&self) -> alloc::string::String {
        self.any.explain()
    }

    /// Returns the lengths of the axes.
    pub fn dims(&self) -> [usize; D] {
        let mut dims = [0; D];
        dims.copy_from_slice(self.any.shape());
        dims
    }

    /// Returns the number of axes, `D`.
    pub fn rank(&self) -> usize {
        D
    }

    /// Returns the shape.
    pub fn shape(&self) -> Shape {
        *self.any.shape()
    }

    /// Returns the dtype of the elements.
    pub fn dtype(&self) -> DType {
        self.any.dtype()
    }

    /// Returns the number of elements.
    #[doc(alias = "numel")]
    pub fn num_elements(&self) -> usize {
        self.any.shape().num_elements()
    }

    /// Copies the elements to another device of the backend. Waits for the current device, unless both devices are on
    /// one engine. Gradients flow back through the copy. If the computation failed, its error moves with the tensor and
    /// is reported when the tensor is read. See [`AnyTensor::to_stack`].
    ///
    /// ```
    /// use kiln_backends::{Device, Dyn};
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], &Device::flex()).to_device(&Device::cpu());
    /// assert_eq!(x.device(), Device::cpu());
    /// ```
    ///
    /// # Panics
    /// When the tensor is tracked by automatic differentiation and the target device does not support it:
    /// [`detach`](Tensor::detach) it first.
    #[doc(alias = "to")]
    #[doc(alias = "device_put")]
    #[track_caller]
    pub fn to_device(self, device: &B::Device) -> Self {
        ok(self.try_to_device(device))
    }

    /// Like [`to_device`](Tensor::to_device), but returns an error instead of panicking.
    ///
    /// # Errors
    /// When the tensor is tracked by automatic differentiation and the target device does not support it:
    /// [`detach`](Tensor::detach) it first.
    pub fn try_to_device(self, device: &B::Device) -> Result<Self> {
        let any = self.any.to_stack(&B::stack(device))?;
        Ok(Tensor { any, marker: PhantomData })
    }

    /// Moves the tensor out and leaves one without elements. The owner must assign a new tensor before any other use.
    pub(crate) fn take_out(&mut self) -> Self {
        let absent = AnyTensor::new(self.any.stack().clone(), kiln_ir::Value::absent(*self.any.ty()));
        Tensor { any: core::mem::replace(&mut self.any, absent), marker: PhantomData }
    }

    /// Applies a function of `AnyTensor`s that keeps rank and kind; for extensions.
    ///
    /// # Panics
    /// When the function returns an error, or a tensor of another rank or kind.
    #[inline]
    #[track_caller]
    pub fn map(self, f: impl FnOnce(AnyTensor) -> Result<AnyTensor>) -> Self {
        self.convert(f)
    }

    /// Applies a function of `AnyTensor`s that returns rank `D2` and kind `K2`; for extensions.
    ///
    /// # Panics
    /// When the function returns an error, or a tensor of another rank or kind.
    #[inline]
    #[track_caller]
    pub fn convert<const D2: usize, K2: Kind>(
        self,
        f: impl FnOnce(AnyTensor) -> Result<AnyTensor>,
    ) -> Tensor<B, D2, K2> {
        Tensor::from_any(ok(f(self.any)))
    }
}

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// Like [`convert`](Tensor::convert), for functions whose caller names the rank of the result. The error of a wrong
    /// rank names the op.
    #[inline]
    #[track_caller]
    pub(crate) fn ranked<const D2: usize, K2: Kind>(
        self,
        op: &str,
        f: impl FnOnce(AnyTensor) -> Result<AnyTensor>,
    ) -> Tensor<B, D2, K2> {
        Tensor::from_ranked(op, ok(f(self.any)))
    }

    /// Returns the typed result of an op.
    #[track_caller]
    pub(crate) fn from_ranked(op: &str, any: AnyTensor) -> Self {
        if any.rank() != D {
            fail(&wrong_rank(op, D, any.ty()));
        }
        Tensor::from_any(any)
    }
}

impl<B: Backend, const D: usize, K: Kind> Clone for Tensor<B, D, K> {
    #[inline]
    fn clone(&self) -> Self {
        Tensor { any: self.any.clone(), marker: PhantomData }
    }
}

impl<B: Backend, const D: usize, K: Kind> fmt::Debug for Tensor<B, D, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({}, {:?})", self.any.ty(), self.any.stack())
    }
}

/// Returns the result, or panics with the error at the caller's line.
#[inline]
#[track_caller]
pub(crate) fn ok<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => fail(&error),
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn fail(error: &Error) -> ! {
    panic!("{error}")
}

/// Returns the error of a tensor that is not of the rank or kind that a type names.
pub(crate) fn mismatch<const D: usize, K: Kind>(ty: &TensorType) -> Error {
    Error::type_error("tensor", format!("is not a tensor of kind {} with {D} axes", K::NAME), &[ty.into()])
        .hint("`reshape` changes the number of axes, `float`, `int` and `bool` the kind")
}

#[cold]
fn wrong_rank(op: &str, wanted: usize, ty: &TensorType) -> Error {
    Error::type_error(op, format!("the result has {} axes, not {wanted}", ty.rank()), &[ty.into()])
        .hint("the number of axes of the result is part of its type: name the one that it has")
}
