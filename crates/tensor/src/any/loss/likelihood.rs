//! Negative log-likelihoods of distributions other than the categorical, and the Kullback-Leibler divergence.

use super::Reduction;
use crate::any::formula::constant;
use crate::{AnyTensor, Result};
use alloc::format;
use core::f64::consts::PI;
use kiln_ir::{Comparison, Var};

impl AnyTensor {
    /// Computes the Kullback-Leibler divergence of log-probabilities `self` from probabilities (or their logarithms).
    /// See [`loss::kl_div`](crate::loss::kl_div).
    ///
    /// # Errors
    /// As [`mse_loss`](AnyTensor::mse_loss).
    pub fn kl_div_loss(self, target: AnyTensor, log_target: bool, reduction: Reduction) -> Result<AnyTensor> {
        self.compared("kl_div", target, reduction.or(Reduction::BatchMean), |x, t| {
            let nothing = if log_target { f64::NEG_INFINITY } else { 0.0 };
            // Classes of target probability 0 contribute 0, whatever the prediction.
            let absent = t.equal(&t.scalar(nothing));
            let (held, x) = (absent.select(&t.scalar(1.0), &t), absent.select(&x.scalar(0.0), &x));
            let losses = if log_target { held.exp() * (&held - x) } else { &held * (held.ln() - x) };
            absent.select(&losses.scalar(0.0), &losses)
        })
    }

    /// Computes the Poisson negative log-likelihood of counts. See [`loss::poisson_nll`](crate::loss::poisson_nll).
    ///
    /// # Errors
    /// As [`mse_loss`](AnyTensor::mse_loss).
    pub fn poisson_nll_loss(
        self,
        target: AnyTensor,
        log_input: bool,
        full: bool,
        epsilon: f64,
        reduction: Reduction,
    ) -> Result<AnyTensor> {
        self.compared("poisson_nll", target, reduction, |x, t| {
            let losses = if log_input { x.exp() - &t * x } else { &x - &t * (&x + epsilon).ln() };
            if full { losses + stirling(&t) } else { losses }
        })
    }

    /// Computes the negative log-likelihood of a normal distribution with mean `self`. See
    /// [`loss::gaussian_nll`](crate::loss::gaussian_nll).
    ///
    /// # Errors
    /// As [`mse_loss`](AnyTensor::mse_loss), and when the variances differ in dtype or do not broadcast to the
    /// predictions, or `epsilon` is not positive.
    pub fn gaussian_nll_loss(
        self,
        target: AnyTensor,
        variance: AnyTensor,
        full: bool,
        epsilon: f64,
        reduction: Reduction,
    ) -> Result<AnyTensor> {
        self.check_float("gaussian_nll")?;
        self.check_same("gaussian_nll", &target)?;
        self.check_alike("gaussian_nll", &variance)?;
        let fits = kiln_ir::infer::broadcast_shapes(self.shape(), variance.shape());
        if fits != Some(*self.shape()) {
            let problem = "the variance does not broadcast to the prediction";
            return Err(self
                .unlike("gaussian_nll", problem, &variance)
                .hint("a variance has the length of the prediction or 1 in each axis"));
        }
        if epsilon.is_nan() || epsilon <= 0.0 {
            return Err(self
                .wrong("gaussian_nll", format!("epsilon is {epsilon}"))
                .hint("use a number above 0"));
        }
        let dtype = self.dtype();
        let losses = self.wide_expression([target, variance], |x, [t, variance]| {
            // The value is clamped, the gradient is not, so that a variance can increase again.
            let small = variance.less(&variance.scalar(epsilon));
            let raised = (&variance - constant(&variance)) + epsilon;
            let variance = small.select(&raised, &variance);
            let losses = ((x - t).square() / &variance + variance.ln()) * 0.5;
            if full { losses + 0.5 * libm::log(2.0 * PI) } else { losses }
        });
        reduction.of(losses)?.cast(dtype)
    }
}

/// Computes Stirling's approximation of `ln(t!)` for `t` above 1, 0 elsewhere.
fn stirling<'e>(t: &Var<'e>) -> Var<'e> {
    let small = t.compare(Comparison::Le, &t.scalar(1.0));
    let held = small.select(&t.scalar(2.0), t);
    let value = &held * held.ln() - &held + (&held * (2.0 * PI)).ln() * 0.5;
    small.select(&value.scalar(0.0), &value)
}
