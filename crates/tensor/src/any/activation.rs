//! Activation functions. The typed functions are in [`activation`](crate::activation).

mod gated;
mod random;
mod soft;

use super::formula::{log_sigmoid, sigmoid, softplus};
use crate::special::{GELU, GELU_APPROXIMATE, Gate, MISH, SILU};
use crate::{AnyTensor, Result};
use alloc::format;
use kiln_ir::{Comparison, Var};

impl AnyTensor {
    /// Applies ReLU, `max(x, 0)`. See [`activation::relu`](crate::activation::relu).
    ///
    /// # Errors
    /// When the tensor is `bool`.
    pub fn relu(self) -> Result<AnyTensor> {
        self.binary_scalar(kiln_ir::Binary::Max, 0)
    }

    /// Applies ReLU6, `min(max(x, 0), 6)`. See [`activation::relu6`](crate::activation::relu6).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn relu6(self) -> Result<AnyTensor> {
        self.hardtanh(0.0, 6.0)
    }

    /// Applies hard tanh, `min(max(x, min), max)`. See [`activation::hardtanh`](crate::activation::hardtanh).
    ///
    /// # Errors
    /// When the dtype is not a float, or `min` is above `max`.
    pub fn hardtanh(self, min: f64, max: f64) -> Result<AnyTensor> {
        self.check_float("hardtanh")?;
        if min > max {
            return Err(self.wrong("hardtanh", format!("the range from {min} to {max} is empty")));
        }
        Ok(self.expression(|x| x.max(&x.scalar(min)).min(&x.scalar(max))))
    }

    /// Applies tanh-shrink, `x - tanh(x)`. See [`activation::tanhshrink`](crate::activation::tanhshrink).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn tanhshrink(self) -> Result<AnyTensor> {
        self.check_float("tanhshrink")?;
        Ok(self.expression(|x| &x - x.tanh()))
    }

    /// Applies leaky ReLU: `x` where positive, `slope x` elsewhere. See
    /// [`activation::leaky_relu`](crate::activation::leaky_relu).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn leaky_relu(self, slope: f64) -> Result<AnyTensor> {
        self.check_float("leaky_relu")?;
        if slope == 0.0 {
            return self.relu();
        }
        Ok(self.expression(|x| {
            let positive = x.scalar(0.0).less(&x);
            positive.select(&x, &(&x * slope))
        }))
    }

    /// Applies [`leaky_relu`](AnyTensor::leaky_relu) with a learned slope: `weight` is `[1]`, or `[channels]` for
    /// `self` `[batch, channels, ..]`. See [`activation::prelu`](crate::activation::prelu).
    ///
    /// # Errors
    /// When the dtype is not a float, or the weight is not `[1]` or `[channels]` of the same dtype.
    pub fn prelu(self, weight: AnyTensor) -> Result<AnyTensor> {
        self.check_float("prelu")?;
        self.check_alike("prelu", &weight)?;
        let count = weight.shape().num_elements();
        let channels = if self.rank() >= 2 { self.shape()[1] } else { 1 };
        if weight.rank() != 1 || (count != 1 && count != channels) {
            let problem = format!("the weight must be [1] or [{channels}]");
            return Err(self
                .unlike("prelu", problem, &weight)
                .hint("channels are axis 1; a tensor of one axis has one"));
        }
        let mut shape = alloc::vec![1; self.rank()];
        if count != 1 {
            shape[1] = count;
        }
        let weight = weight.reshape(shape)?;
        Ok(self.expression_with([weight], |x, [weight]| {
            let positive = x.scalar(0.0).less(&x);
            // Positive elements must not reach the product: an infinite one would make the gradient of the weight NaN.
            let rest = positive.select(&x.scalar(0.0), &x);
            positive.select(&x, &(rest * weight))
        }))
    }

    fn gate(self, gate: &'static Gate) -> Result<AnyTensor> {
        self.check_float(gate.name)?;
        Ok(self.expression(|x| gate.of(&x)))
    }

    /// Applies GELU, `x Φ(x)`. See [`activation::gelu`](crate::activation::gelu).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn gelu(self) -> Result<AnyTensor> {
        self.gate(&GELU)
    }

    /// Applies the `tanh` approximation of [`gelu`](AnyTensor::gelu). See
    /// [`activation::gelu_approximate`](crate::activation::gelu_approximate).
    ///
    /// # Errors
    /// As [`gelu`](AnyTensor::gelu).
    #[doc(alias = "gelu")]
    pub fn gelu_approximate(self) -> Result<AnyTensor> {
        self.gate(&GELU_APPROXIMATE)
    }

    /// Applies log-sigmoid, `ln(sigmoid(x))`. See [`activation::log_sigmoid`](crate::activation::log_sigmoid).
    ///
    /// # Errors
    /// When the dtype is not a float.
    #[doc(alias = "logsigmoid")]
    pub fn log_sigmoid(self) -> Result<AnyTensor> {
        self.check_float("log_sigmoid")?;
        Ok(self.expression(|x| log_sigmoid(&x)))
    }

    /// Applies hard sigmoid, `min(max(alpha x + beta, 0), 1)`. See
    /// [`activation::hard_sigmoid`](crate::activation::hard_sigmoid).
    ///
    /// # Errors
    /// When the dtype is not a float.
    #[doc(alias = "hardsigmoid")]
    pub fn hard_sigmoid(self, alpha: f64, beta: f64) -> Result<AnyTensor> {
        self.check_float("hard_sigmoid")?;
        Ok(self.expression(|x| {
            let line = x * alpha + beta;
            line.max(&line.scalar(0.0)).min(&line.scalar(1.0))
        }))
    }

    /// Applies SiLU, `x sigmoid(x)`. See [`activation::silu`](crate::activation::silu).
    ///
    /// # Errors
    /// When the dtype is not a float.
    #[doc(alias = "swish")]
    pub fn silu(self) -> Result<AnyTensor> {
        self.gate(&SILU)
    }

    /// Applies hard swish, `x min(max(x + 3, 0), 6) / 6`. See
    /// [`activation::hard_swish`](crate::activation::hard_swish).
    ///
    /// # Errors
    /// When the dtype is not a float.
    #[doc(alias = "hardswish")]
    pub fn hard_swish(self) -> Result<AnyTensor> {
        self.check_float("hard_swish")?;
        Ok(self.expression(|x| {
            let near = x.max(&x.scalar(-3.0)).min(&x.scalar(3.0));
            let middle = &near * (&near + 3.0) / 6.0;
            let low = x.compare(Comparison::Le, &x.scalar(-3.0));
            let high = x.scalar(3.0).compare(Comparison::Le, &x);
            high.select(&x, &low.select(&x.scalar(0.0), &middle))
        }))
    }

    /// Applies Mish, `x tanh(softplus(x))`. See [`activation::mish`](crate::activation::mish).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn mish(self) -> Result<AnyTensor> {
        self.gate(&MISH)
    }

    /// Applies softplus, `ln(1 + exp(beta x)) / beta`. See [`activation::softplus`](crate::activation::softplus).
    ///
    /// # Errors
    /// As [`softplus_with_threshold`](AnyTensor::softplus_with_threshold).
    pub fn softplus(self, beta: f64) -> Result<AnyTensor> {
        self.softplus_with_threshold(beta, f64::INFINITY)
    }

    /// Applies [`softplus`](AnyTensor::softplus) where `beta x` is at most `threshold`, and the identity elsewhere. See
    /// [`activation::softplus_with_threshold`](crate::activation::softplus_with_threshold).
    ///
    /// # Errors
    /// When the dtype is not a float, or `beta` is 0 or not finite.
    pub fn softplus_with_threshold(self, beta: f64, threshold: f64) -> Result<AnyTensor> {
        self.check_float("softplus")?;
        if beta == 0.0 || !beta.is_finite() {
            return Err(self.wrong("softplus", format!("beta is {beta}")).hint("use a number other than 0"));
        }
        Ok(self.expression(|x| {
            let scaled = &x * beta;
            if threshold == f64::INFINITY {
                return softplus(&scaled) / beta;
            }
            let beyond = scaled.scalar(threshold).less(&scaled);
            beyond.select(&x, &(softplus(&scaled) / beta))
        }))
    }

    /// Applies ELU: `x` where positive, `alpha (exp(x) - 1)` elsewhere. See
    /// [`activation::elu`](crate::activation::elu).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn elu(self, alpha: f64) -> Result<AnyTensor> {
        self.exponential("elu", [alpha, 1.0, 1.0])
    }

    /// Applies CELU: `x` where positive, `alpha (exp(x / alpha) - 1)` elsewhere. See
    /// [`activation::celu`](crate::activation::celu).
    ///
    /// # Errors
    /// When the dtype is not a float, or `alpha` is 0.
    pub fn celu(self, alpha: f64) -> Result<AnyTensor> {
        if alpha == 0.0 {
            return Err(self.wrong("celu", "alpha is 0").hint("use a number other than 0"));
        }
        self.exponential("celu", [alpha, 1.0 / alpha, 1.0])
    }

    /// Applies SELU, a scaled [`elu`](AnyTensor::elu) that keeps mean and variance. See
    /// [`activation::selu`](crate::activation::selu).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn selu(self) -> Result<AnyTensor> {
        self.exponential("selu", [1.673_263_242_354_377_2, 1.0, 1.050_700_987_355_480_5])
    }

    /// Computes `scale x` where positive, `scale alpha (exp(rate x) - 1)` elsewhere, and at 0 the gradient of the
    /// latter.
    fn exponential(self, op: &str, [alpha, rate, scale]: [f64; 3]) -> Result<AnyTensor> {
        self.check_float(op)?;
        Ok(self.expression(|x| {
            let positive = x.scalar(0.0).less(&x);
            // The exponential of positive numbers may overflow; it is not needed.
            let rest = positive.select(&x.scalar(0.0), &x);
            let rest = if rate == 1.0 { rest } else { rest * rate };
            let y = positive.select(&x, &(rest.expm1() * alpha));
            if scale == 1.0 { y } else { y * scale }
        }))
    }

    /// Applies thresholded ReLU: `x` where greater than `alpha`, 0 elsewhere. See
    /// [`activation::thresholded_relu`](crate::activation::thresholded_relu).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn thresholded_relu(self, alpha: f64) -> Result<AnyTensor> {
        self.threshold(alpha, 0.0)
    }

    /// Applies a threshold: `x` where greater than `threshold`, `value` elsewhere. See
    /// [`activation::threshold`](crate::activation::threshold).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn threshold(self, threshold: f64, value: f64) -> Result<AnyTensor> {
        self.check_float("threshold")?;
        Ok(self.expression(|x| {
            // In this order of operands, NaN stays NaN.
            let low = x.compare(Comparison::Le, &x.scalar(threshold));
            low.select(&x.scalar(value), &x)
        }))
    }

    /// Applies softsign, `x / (1 + |x|)`. See [`activation::softsign`](crate::activation::softsign).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn softsign(self) -> Result<AnyTensor> {
        self.check_float("softsign")?;
        Ok(self.expression(|x| soft::softsign(&x)))
    }

    /// Applies hard shrinkage: `x` where `|x| > lambda`, 0 elsewhere. See
    /// [`activation::hard_shrink`](crate::activation::hard_shrink).
    ///
    /// # Errors
    /// As [`shrink`](AnyTensor::shrink).
    #[doc(alias = "hardshrink")]
    pub fn hard_shrink(self, lambda: f64) -> Result<AnyTensor> {
        self.shrink(lambda, 0.0)
    }

    /// Applies soft shrinkage: moves `x` towards 0 by `lambda`, 0 where `|x| <= lambda`. See
    /// [`activation::soft_shrink`](crate::activation::soft_shrink).
    ///
    /// # Errors
    /// As [`shrink`](AnyTensor::shrink).
    #[doc(alias = "softshrink")]
    pub fn soft_shrink(self, lambda: f64) -> Result<AnyTensor> {
        self.shrink(lambda, lambda)
    }

    /// Applies shrinkage with a bias: `x - bias` above `lambda`, `x + bias` below `-lambda`, 0 between. See
    /// [`activation::shrink`](crate::activation::shrink).
    ///
    /// # Errors
    /// When the dtype is not a float, or `lambda` is negative or NaN.
    pub fn shrink(self, lambda: f64, bias: f64) -> Result<AnyTensor> {
        self.check_float("shrink")?;
        if lambda.is_nan() || lambda < 0.0 {
            return Err(self
                .wrong("shrink", format!("lambda is {lambda}"))
                .hint("use a number of at least 0"));
        }
        Ok(self.expression(|x| {
            let between = x.abs().compare(Comparison::Le, &x.scalar(lambda));
            let moved = if bias == 0.0 { x.clone() } else { &x - x.sign() * bias };
            between.select(&x.scalar(0.0), &moved)
        }))
    }
}

/// Computes `max(x, 0)` with the gradient of [`relu`](AnyTensor::relu), for gates.
fn rectified<'e>(x: &Var<'e>) -> Var<'e> {
    x.max(&x.scalar(0.0))
}
