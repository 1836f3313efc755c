//! The named composites: softmax, norms, attention, resizing, Fourier transforms, quantisation.

use crate::Cpu;
use kiln_ir::{AttentionSpec, DType, Error, NormKind, Operands, ResizeMode, Result, TensorType, Values};

pub(crate) fn softmax(_: &Cpu, _: usize, _: bool, _: Operands, _: &[TensorType]) -> Result<Values> {
    Err(Error::unsupported("cpu", "softmax"))
}

pub(crate) fn norm(_: &Cpu, _: NormKind, _: usize, _: f64, _: Operands, _: &[TensorType]) -> Result<Values> {
    Err(Error::unsupported("cpu", "norm"))
}

pub(crate) fn attention(_: &Cpu, _: &AttentionSpec, _: Operands, _: &[TensorType]) -> Result<Values> {
    Err(Error::unsupported("cpu", "attention"))
}

pub(crate) fn attention_grad(_: &Cpu, _: &AttentionSpec, _: Operands, _: &[TensorType]) -> Result<Values> {
    Err(Error::unsupported("cpu", "attention_grad"))
}

pub(crate) fn resize(
    _: &Cpu,
    _: ResizeMode,
    _: &[usize],
    _: bool,
    _: Operands,
    _: &[TensorType],
) -> Result<Values> {
    Err(Error::unsupported("cpu", "resize"))
}

pub(crate) fn fft(_: &Cpu, _: usize, _: bool, _: Operands, _: &[TensorType]) -> Result<Values> {
    Err(Error::unsupported("cpu", "fft"))
}

pub(crate) fn quantize(_: &Cpu, _: DType, _: Operands, _: &[TensorType]) -> Result<Values> {
    Err(Error::unsupported("cpu", "quantize"))
}

pub(crate) fn dequantize(_: &Cpu, _: Operands, _: &[TensorType]) -> Result<Values> {
    Err(Error::unsupported("cpu", "dequantize"))
}
