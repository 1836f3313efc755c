//! Tensors from nothing and from the host. A device is a [`Device`](crate::Device) or the [`Stack`] of another tensor.

mod join;
mod like;
mod one_hot;
mod sequence;

use crate::{AnyTensor, Number, Result, Scalar, Stack, TensorData, TensorType};
use kiln_ir::{Op, Operand};

impl AnyTensor {
    /// Data of the host on a device, in its own dtype.
    pub fn from_data(data: impl Into<TensorData>, device: &impl AsRef<Stack>) -> AnyTensor {
        let stack = device.as_ref();
        AnyTensor::new(stack.clone(), stack.engine().write(data.into()))
    }

    /// A tensor filled with a number.
    pub fn full(ty: TensorType, x: impl Number, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        AnyTensor::from_nothing(&Op::Full(ty), Some(x.scalar()), device.as_ref())
    }

    /// Zeros (`false`).
    pub fn zeros(ty: TensorType, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        AnyTensor::full(ty, if ty.dtype.is_bool() { Scalar::Bool(false) } else { Scalar::Int(0) }, device)
    }

    /// Ones (`true`).
    pub fn ones(ty: TensorType, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        AnyTensor::full(ty, if ty.dtype.is_bool() { Scalar::Bool(true) } else { Scalar::Int(1) }, device)
    }

    /// A tensor whose elements are to be overwritten: zeros, which no program should rely on.
    pub fn empty(ty: TensorType, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        AnyTensor::zeros(ty, device)
    }

    /// Each element is its own index along an axis.
    pub fn iota(ty: TensorType, axis: usize, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        AnyTensor::from_nothing(&Op::Iota { ty, axis }, None, device.as_ref())
    }

    fn from_nothing(op: &Op, x: Option<Scalar>, stack: &Stack) -> Result<AnyTensor> {
        let results = AnyTensor::emit(stack, op, x.into_iter().map(Operand::Scalar).collect())?;
        AnyTensor::only(stack.clone(), op, results)
    }
}
