//! Tensors from nothing and from the host. A device is a [`Device`](crate::Device) or the [`Stack`] of another tensor.

mod join;
mod like;
mod one_hot;
mod sequence;

use crate::{AnyTensor, Distribution, Number, Result, Scalar, Stack, TensorData, TensorType};
use kiln_ir::{Binary, Comparison, Op, Operand, RandomKind, Unary};

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

    /// Random numbers, with the next key of the device; see [`Distribution`].
    pub fn random(
        ty: TensorType,
        distribution: Distribution,
        device: &impl AsRef<Stack>,
    ) -> Result<AnyTensor> {
        AnyTensor::draw(ty, distribution, device.as_ref())
    }

    fn from_nothing(op: &Op, x: Option<Scalar>, stack: &Stack) -> Result<AnyTensor> {
        let results = AnyTensor::emit(stack, op, x.into_iter().map(Operand::Scalar).collect())?;
        AnyTensor::only(stack.clone(), op, results)
    }

    fn draw(ty: TensorType, distribution: Distribution, stack: &Stack) -> Result<AnyTensor> {
        let draw = |ty: TensorType, distribution: RandomKind| {
            let key = Scalar::UInt(stack.keys().next_key());
            AnyTensor::from_nothing(&Op::Random { ty, distribution }, Some(key), stack)
        };
        let float = if ty.dtype.is_float() { ty } else { ty.with_dtype(stack.float_dtype()) };
        let drawn = match distribution {
            Distribution::Default if ty.dtype.is_int() => return draw(ty, RandomKind::Bits),
            Distribution::Default if ty.dtype.is_float() => return draw(ty, RandomKind::Uniform),
            Distribution::Default => draw(float, RandomKind::Uniform)?.compare_scalar(Comparison::Lt, 0.5)?,
            Distribution::Bernoulli(p) => {
                draw(float, RandomKind::Uniform)?.compare_scalar(Comparison::Lt, p)?
            }
            Distribution::Uniform(low, high) => draw(float, RandomKind::Uniform)?
                .binary_scalar(Binary::Mul, high - low)?
                .binary_scalar(Binary::Add, low)?,
            Distribution::Normal(mean, deviation) => draw(float, RandomKind::Normal)?
                .binary_scalar(Binary::Mul, deviation)?
                .binary_scalar(Binary::Add, mean)?,
        };
        let floors = ty.dtype.is_int() && drawn.dtype().is_float();
        let drawn = if floors { drawn.unary(Unary::Floor)? } else { drawn };
        drawn.cast(ty.dtype)
    }
}
