//! Clamping by a scalar.

use super::{Function, Result};
use crate::{AnyTensor, Number};
use alloc::vec::Vec;
use kiln_ir::{Binary, Comparison, Op, OperandType, ResultTypes, Saved, Var, infer};

/// The maximum or minimum of a tensor and a scalar, with the gradient of PyTorch's `clamp`. The gradient passes at the
/// bound too, and not where the tensor is NaN.
#[derive(Debug)]
pub(crate) struct Bound {
    name: &'static str,
    function: Binary,
}

/// `max(x, low)`.
pub(crate) static CLAMP_MIN: Bound = Bound { name: "clamp_min", function: Binary::Max };

/// `min(x, high)`.
pub(crate) static CLAMP_MAX: Bound = Bound { name: "clamp_max", function: Binary::Min };

/// Registers the bounds by name.
#[cfg(feature = "std")]
pub(super) fn register() {
    kiln_ir::Custom::register(CLAMP_MIN.name, |_| Ok(CLAMP_MIN.custom()));
    kiln_ir::Custom::register(CLAMP_MAX.name, |_| Ok(CLAMP_MAX.custom()));
}

impl AnyTensor {
    /// Clamps a float tensor by a bound.
    pub(crate) fn bound(self, bound: &'static Bound, number: impl Number) -> Result<AnyTensor> {
        self.apply_with(&bound.op(), [number.scalar().into()])
    }
}

impl Function for &'static Bound {
    const IS_EXPRESSION: bool = true;
    const IS_CHEAP: bool = true;
    const SAVED: Saved = Saved { inputs: 1, outputs: 0 };

    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        match inputs {
            [OperandType::Tensor(ty), OperandType::Scalar(number)] if ty.dtype.is_float() => {
                // The op that it replaces defines those scalars.
                infer(&Op::Binary(self.function), &[OperandType::Tensor(ty), OperandType::Scalar(*number)])
            }
            _ => {
                Err(kiln_ir::Error::type_error(self.name, "expects a tensor of floats and a number", inputs))
            }
        }
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Var<'e> {
        inputs[0].binary(self.function, &inputs[1])
    }

    fn equivalent(&self) -> Option<Op> {
        Some(Op::Binary(self.function))
    }

    fn gradients<'e>(&self, inputs: &[Var<'e>], _: &Var<'e>, g: &Var<'e>) -> Vec<Option<Var<'e>>> {
        let (x, number) = (&inputs[0], &inputs[1]);
        let (low, high) = if self.function == Binary::Max { (number, x) } else { (x, number) };
        alloc::vec![Some(low.compare(Comparison::Le, high).select(g, &g.scalar(0.0))), None]
    }
}
