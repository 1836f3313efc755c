//! Clamping by a scalar.

use super::Result;
use crate::{AnyTensor, Number};
use alloc::vec::Vec;
use kiln_ir::{Binary, Comparison, Custom, CustomOp, Op, OperandType, ResultTypes, Saved, Var, infer};

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
    Custom::register(CLAMP_MIN.name, |_| Ok(Custom::new(&CLAMP_MIN)));
    Custom::register(CLAMP_MAX.name, |_| Ok(Custom::new(&CLAMP_MAX)));
}

impl AnyTensor {
    /// Clamps a float tensor by a bound.
    pub(crate) fn bound(self, bound: &'static Bound, number: impl Number) -> Result<AnyTensor> {
        self.apply_with(&Op::Custom(Custom::new(bound)), [number.scalar().into()])
    }
}

impl CustomOp for &'static Bound {
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

    fn batched(&self) -> Option<Custom> {
        Some(Custom::new(*self))
    }

    fn is_expression(&self) -> bool {
        true
    }

    fn is_cheap(&self) -> bool {
        true
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        Some(alloc::vec![inputs[0].binary(self.function, &inputs[1])])
    }

    fn equivalent(&self) -> Option<Op> {
        Some(Op::Binary(self.function))
    }

    fn saved(&self) -> Saved {
        Saved { inputs: 1, outputs: 0 }
    }

    fn vjp<'e>(
        &self,
        inputs: &[Var<'e>],
        _: &[Var<'e>],
        gradients: &[Option<Var<'e>>],
    ) -> Option<Result<Vec<Option<Var<'e>>>>> {
        let (x, number) = (&inputs[0], &inputs[1]);
        let gradient = |g: &Var<'e>| {
            let (low, high) = if self.function == Binary::Max { (number, x) } else { (x, number) };
            low.compare(Comparison::Le, high).select(g, &g.scalar(0.0))
        };
        Some(Ok(alloc::vec![gradients[0].as_ref().map(gradient), None]))
    }
}
