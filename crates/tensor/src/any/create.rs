//! Tensors from nothing and from the host. A device is a `Device` or the [`Stack`] of another tensor.

mod join;
mod like;
mod one_hot;
mod sequence;

use crate::{AnyTensor, Number, Result, Scalar, Stack, TensorData, TensorType};
use kiln_ir::{Op, Operand, SharedBytes};

impl AnyTensor {
    /// Data of the host on a device, in its own dtype.
    pub fn from_data(data: impl Into<TensorData>, device: &impl AsRef<Stack>) -> AnyTensor {
        let stack = device.as_ref();
        AnyTensor::new(stack.clone(), stack.place(stack.engine().write(data.into())))
    }

    /// Elements that are in memory already, of a mapped file for instance. A device that computes in the same memory
    /// reads them there and never writes to them, if they are aligned for their type; any other gets a copy. Bytes that
    /// are not those of the type are an error of the tensor, which surfaces when it is read.
    ///
    /// ```
    /// use kiln_backends::Device;
    /// use kiln_tensor::{AnyTensor, DType, SharedBytes, TensorType};
    /// use std::sync::Arc;
    ///
    /// let bytes = SharedBytes::new(Arc::new(vec![1u8, 2, 3, 4]), 0..4)?;
    /// let x = AnyTensor::from_shared(bytes, TensorType::new([2, 2], DType::U8), &Device::cpu());
    /// assert_eq!(x.into_data()?.to_vec::<u8>(), [1, 2, 3, 4]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    pub fn from_shared(bytes: SharedBytes, ty: TensorType, device: &impl AsRef<Stack>) -> AnyTensor {
        let stack = device.as_ref();
        AnyTensor::new(stack.clone(), stack.place(stack.engine().write_shared(bytes, ty)))
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
