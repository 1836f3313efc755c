//! Gated linear units: the second half of an axis gates the first.

use super::{rectified, sigmoid};
use crate::special::{GELU, SILU};
use crate::{AnyTensor, Axis, Result};
use alloc::format;
use kiln_ir::{SliceAxis, Var};

/// The activation of the second half of the axis.
#[derive(Clone, Copy, Debug)]
enum Gate {
    Sigmoid,
    Relu,
    Gelu,
    Silu,
}

impl Gate {
    fn of<'e>(self, x: &Var<'e>) -> Var<'e> {
        match self {
            Gate::Sigmoid => sigmoid(x),
            Gate::Relu => rectified(x),
            Gate::Gelu => GELU.of(x),
            Gate::Silu => SILU.of(x),
        }
    }
}

impl AnyTensor {
    /// Applies GLU: `a sigmoid(b)` for the halves `a` and `b` of an axis. See
    /// [`activation::glu`](crate::activation::glu).
    ///
    /// # Errors
    /// When the dtype is not a float, the axis is out of range, or its length is odd.
    pub fn glu(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.gated_linear("glu", Gate::Sigmoid, axis.into())
    }

    /// Applies ReGLU: `a relu(b)` for the halves `a` and `b` of an axis. See
    /// [`activation::reglu`](crate::activation::reglu).
    ///
    /// # Errors
    /// As [`glu`](AnyTensor::glu).
    pub fn reglu(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.gated_linear("reglu", Gate::Relu, axis.into())
    }

    /// Applies GEGLU: `a gelu(b)` for the halves `a` and `b` of an axis. See
    /// [`activation::geglu`](crate::activation::geglu).
    ///
    /// # Errors
    /// As [`glu`](AnyTensor::glu).
    pub fn geglu(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.gated_linear("geglu", Gate::Gelu, axis.into())
    }

    /// Applies SwiGLU: `a silu(b)` for the halves `a` and `b` of an axis. See
    /// [`activation::swiglu`](crate::activation::swiglu).
    ///
    /// # Errors
    /// As [`glu`](AnyTensor::glu).
    pub fn swiglu(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.gated_linear("swiglu", Gate::Silu, axis.into())
    }

    fn gated_linear(self, op: &str, gate: Gate, axis: Axis) -> Result<AnyTensor> {
        self.check_float(op)?;
        let axis = axis.of(op, self.ty())?;
        let len = self.shape()[axis];
        if !len.is_multiple_of(2) {
            return Err(
                self.wrong(op, format!("axis {axis} does not split into two halves: its length is {len}"))
            );
        }
        Ok(self.expression(|x| {
            let half = |start| x.slice_axis(axis, SliceAxis { start, len: len / 2, step: 1 });
            half(0) * gate.of(&half(len / 2))
        }))
    }
}
