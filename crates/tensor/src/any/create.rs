//! Constructors: constants and host data. The device argument is a `Device` or the [`Stack`] of another tensor.

mod join;
mod like;
mod one_hot;
mod sequence;

use crate::{AnyTensor, Number, Result, Scalar, Stack, TensorData, TensorType};
use kiln_ir::{Op, Operand, SharedBytes};

impl AnyTensor {
    /// Creates a tensor of host data, in the data's dtype.
    #[doc(alias = "tensor")]
    #[doc(alias = "array")]
    #[doc(alias = "asarray")]
    pub fn from_data(data: impl Into<TensorData>, device: &impl AsRef<Stack>) -> AnyTensor {
        let stack = device.as_ref();
        AnyTensor::new(stack.clone(), stack.place(stack.engine().write(data.into())))
    }

    /// Creates a tensor of elements in shared memory, such as a memory-mapped file. A device that uses the same memory
    /// reads aligned elements in place and never writes to them. Any other device, or a misaligned tensor, gets a copy.
    /// Bytes that are invalid for the type are an error of the tensor, reported when it is read.
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

    /// Creates a tensor filled with a scalar.
    ///
    /// # Errors
    /// When the number is not a value of the dtype: see [`Scalar::fits`](kiln_ir::Scalar::fits).
    pub fn full(ty: TensorType, x: impl Number, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        AnyTensor::from_nothing(&Op::Full(ty), Some(x.scalar()), device.as_ref())
    }

    /// Creates a tensor of zeros (`false`).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn zeros(ty: TensorType, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        AnyTensor::full(ty, if ty.dtype.is_bool() { Scalar::Bool(false) } else { Scalar::Int(0) }, device)
    }

    /// Creates a tensor of ones (`true`).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn ones(ty: TensorType, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        AnyTensor::full(ty, if ty.dtype.is_bool() { Scalar::Bool(true) } else { Scalar::Int(1) }, device)
    }

    /// Creates a tensor whose elements are to be overwritten. They are zeros, which no program should rely on.
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn empty(ty: TensorType, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        AnyTensor::zeros(ty, device)
    }

    /// Creates a tensor whose elements are their own indices along an axis.
    ///
    /// # Errors
    /// When the dtype is `bool`, or the axis is out of range.
    pub fn iota(ty: TensorType, axis: usize, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        AnyTensor::from_nothing(&Op::Iota { ty, axis }, None, device.as_ref())
    }

    fn from_nothing(op: &Op, x: Option<Scalar>, stack: &Stack) -> Result<AnyTensor> {
        let results = AnyTensor::emit(stack, op, x.into_iter().map(Operand::Scalar).collect())?;
        AnyTensor::only(stack.clone(), op, results)
    }
}
