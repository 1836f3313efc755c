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
mod forward;
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
/// Cloning is cheap and shares the elements. Methods take `self` by value so that an engine can reuse the memory
/// of a tensor that nothing else uses; clone, or use operators on references, to keep it.
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
    /// The typed tensor of one whose rank and kind are known at run time.
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

    /// Forgets backend, rank and kind.
    #[inline]
    pub fn into_any(self) -> AnyTensor {
        self.any
    }

    /// The tensor without backend, rank and kind.
    #[inline]
    pub fn as_any(&self) -> &AnyTensor {
        &self.any
    }

    /// The stack of engines that runs this tensor's ops.
    pub fn engine_stack(&self) -> &Stack {
        self.any.stack()
    }

    /// The device. Of a result computed from tensors on several devices, the one where it was computed.
    pub fn device(&self) -> B::Device {
        B::device(&self.any.stack().stack_of(self.any.value()))
    }

    /// A human-readable report of the kernels that produced this tensor, and why each fusion region ended. Runs pending
    /// ops. See [`AnyTensor::explain`].
    pub fn explain(&self) -> alloc::string::String {
        self.any.explain()
    }

    /// The lengths of the axes.
    pub fn dims(&self) -> [usize; D] {
        let mut dims = [0; D];
        dims.copy_from_slice(self.any.shape());
        dims
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        *self.any.shape()
    }

    /// The dtype of the elements.
    pub fn dtype(&self) -> DType {
        self.any.dtype()
    }

    /// The number of elements.
    #[doc(alias = "numel")]
    pub fn num_elements(&self) -> usize {
        self.any.shape().num_elements()
    }

    /// The same elements on another device of the backend. Waits for this one, unless both are on one engine. Gradients
    /// flow back through the move, and the error of a failed computation moves along with the tensor, to come back when that is
    /// read. See [`AnyTensor::to_stack`].
    ///
    /// # Panics
    /// When a gradient flows through the tensor and the device has no automatic differentiation: [`detach`](Tensor::detach) it
    /// first.
    #[doc(alias = "to")]
    #[doc(alias = "device_put")]
    #[track_caller]
    pub fn to_device(self, device: &B::Device) -> Self {
        ok(self.try_to_device(device))
    }

    /// As [`to_device`](Tensor::to_device), with an error instead of a panic.
    ///
    /// # Errors
    /// When a gradient flows through the tensor and the device has no automatic differentiation: [`detach`](Tensor::detach) it
    /// first.
    pub fn try_to_device(self, device: &B::Device) -> Result<Self> {
        let any = self.any.to_stack(&B::stack(device))?;
        Ok(Tensor { any, marker: PhantomData })
    }

    /// Moves the tensor out and leaves one without elements, which only its owner's next assignment may follow.
    pub(crate) fn take_out(&mut self) -> Self {
        let absent = AnyTensor::new(self.any.stack().clone(), kiln_ir::Value::absent(*self.any.ty()));
        Tensor { any: core::mem::replace(&mut self.any, absent), marker: PhantomData }
    }

    /// Applies a function of `AnyTensor`s that keeps rank and kind; extensions build on it.
    #[inline]
    #[track_caller]
    pub fn map(self, f: impl FnOnce(AnyTensor) -> Result<AnyTensor>) -> Self {
        self.convert(f)
    }

    /// Applies a function of `AnyTensor`s that returns rank `D2` and kind `K2`; for extensions.
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
    /// As [`convert`](Tensor::convert), for functions whose caller names the rank of the result: the op is in the message
    /// where it is another.
    #[inline]
    #[track_caller]
    pub(crate) fn ranked<const D2: usize, K2: Kind>(
        self,
        op: &str,
        f: impl FnOnce(AnyTensor) -> Result<AnyTensor>,
    ) -> Tensor<B, D2, K2> {
        Tensor::from_ranked(op, ok(f(self.any)))
    }

    /// The typed result of an op.
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

/// The result, or a panic with the error at the caller's line.
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

/// The error of a tensor that is not of the rank or kind that a type names.
pub(crate) fn mismatch<const D: usize, K: Kind>(ty: &TensorType) -> Error {
    Error::type_error("tensor", format!("is no {} tensor with {D} axes", K::NAME), &[ty.into()])
        .hint("`reshape` changes the number of axes, `float`, `int` and `bool` the kind")
}

#[cold]
fn wrong_rank(op: &str, wanted: usize, ty: &TensorType) -> Error {
    Error::type_error(op, format!("the result has {} axes, not {wanted}", ty.rank()), &[ty.into()])
        .hint("the number of axes of the result is part of its type: name the one that it has")
}
