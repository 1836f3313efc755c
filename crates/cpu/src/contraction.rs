//! Matrix products, convolution and pooling.

use crate::Cpu;
use kiln_ir::{ConvPass, ConvSpec, Error, Operands, PoolSpec, Result, TensorType, Values};

pub(crate) fn matmul(_: &Cpu, _: Operands, _: &[TensorType]) -> Result<Values> {
    Err(Error::unsupported("cpu", "matmul"))
}

pub(crate) fn conv(_: &Cpu, _: &ConvSpec, _: &ConvPass, _: Operands, _: &[TensorType]) -> Result<Values> {
    Err(Error::unsupported("cpu", "conv"))
}

pub(crate) fn pool(_: &Cpu, _: &PoolSpec, _: Operands, _: &[TensorType]) -> Result<Values> {
    Err(Error::unsupported("cpu", "pool"))
}

pub(crate) fn pool_grad(_: &Cpu, _: &PoolSpec, _: &[usize], _: Operands, _: &[TensorType]) -> Result<Values> {
    Err(Error::unsupported("cpu", "pool_grad"))
}
