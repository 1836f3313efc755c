//! Activations that draw random numbers.

use crate::any::formula::constant;
use crate::{AnyTensor, Axis, Distribution, Result};
use alloc::format;
use kiln_ir::{Extremum, Op, TensorType, Var};

impl AnyTensor {
    /// Applies randomized leaky ReLU: slopes are drawn from `[lower, upper)` in training, and are their mean otherwise.
    /// See [`activation::rrelu`](crate::activation::rrelu).
    ///
    /// # Errors
    /// When the dtype is not a float, a slope is not finite, `lower` is above `upper`, or the dtype has no number
    /// between them.
    pub fn rrelu(self, lower: f64, upper: f64, training: bool) -> Result<AnyTensor> {
        self.check_float("rrelu")?;
        if !(lower <= upper && upper.is_finite() && lower.is_finite()) {
            return Err(self.wrong("rrelu", format!("the slopes from {lower} to {upper} are not a range")));
        }
        if !training || lower == upper {
            return self.leaky_relu((lower + upper) / 2.0);
        }
        let slopes = AnyTensor::random(*self.ty(), Distribution::Uniform(lower, upper), self.stack())?;
        Ok(self.expression_with([slopes], |x, [slopes]| {
            let positive = x.scalar(0.0).less(&x);
            positive.select(&x, &(&x * slopes))
        }))
    }

    /// Draws a differentiable (relaxed) sample of the categorical distribution with these unnormalised
    /// log-probabilities. See [`activation::gumbel_softmax`](crate::activation::gumbel_softmax).
    ///
    /// # Errors
    /// When the dtype is not a float, the axis is out of range, the temperature is not finite and positive, or the axis
    /// is empty with `hard`.
    pub fn gumbel_softmax(self, temperature: f64, hard: bool, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.check_float("gumbel_softmax")?;
        let axis = axis.into().of("gumbel_softmax", self.ty())?;
        if !(temperature > 0.0 && temperature.is_finite()) {
            return Err(self.wrong("gumbel_softmax", format!("the temperature is {temperature}")));
        }
        if hard && self.shape()[axis] == 0 {
            return Err(self.wrong("gumbel_softmax", format!("axis {axis} is empty")));
        }
        let dtype = self.dtype();
        let ty = self.ty().with_dtype(dtype.accumulator());
        let uniform = AnyTensor::random(ty, Distribution::Default, self.stack())?;
        let index = self.stack().int_dtype();
        let sample = self.cast(ty.dtype)?.expression_with([uniform], |x, [uniform]| {
            let sum = (x + gumbel(&uniform)) / temperature;
            let soft = sum.apply(Op::Softmax { axis, log: false }, &[]);
            if !hard {
                return soft;
            }
            let arg = Op::ArgReduce { extremum: Extremum::Max, axis, index };
            let greatest = soft.apply(arg, &[]);
            let places = Var::iota(soft.engine(), TensorType::new(soft.shape(), index), axis);
            // The value is one-hot, the gradient that of the soft weights: their difference to themselves is 0.
            let choice = places.equal(&greatest).cast(soft.dtype());
            choice + (&soft - constant(&soft))
        });
        sample.cast(dtype)
    }
}

/// Computes Gumbel noise `-ln(-ln(u))` from uniform numbers in `[0, 1)`; 0 is replaced by the least other number drawn.
fn gumbel<'e>(uniform: &Var<'e>) -> Var<'e> {
    let least = 1.0 / 16_777_216.0;
    -(-uniform.max(&uniform.scalar(least)).ln()).ln()
}
