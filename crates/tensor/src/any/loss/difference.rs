//! Regression losses.

use super::Reduction;
use crate::{AnyTensor, Result};
use alloc::format;
use kiln_ir::Var;

impl AnyTensor {
    /// Computes the squared error, `(x - target)²`. See [`loss::mse`](crate::loss::mse).
    ///
    /// # Errors
    /// When the dtype is not a float, or the targets differ in dtype or shape.
    pub fn mse_loss(self, target: AnyTensor, reduction: Reduction) -> Result<AnyTensor> {
        self.compared("mse", target, reduction, |x, t| (x - t).square())
    }

    /// Computes the absolute error, `|x - target|`. See [`loss::l1`](crate::loss::l1).
    ///
    /// # Errors
    /// As [`mse_loss`](AnyTensor::mse_loss).
    pub fn l1_loss(self, target: AnyTensor, reduction: Reduction) -> Result<AnyTensor> {
        self.compared("l1", target, reduction, |x, t| (x - t).abs())
    }

    /// Computes a power of the absolute error, `|x - target|^p`. See [`loss::lp`](crate::loss::lp).
    ///
    /// # Errors
    /// As [`mse_loss`](AnyTensor::mse_loss), and when `p` is not finite and positive.
    pub fn lp_loss(self, target: AnyTensor, p: f64, reduction: Reduction) -> Result<AnyTensor> {
        if !(p > 0.0 && p.is_finite()) {
            return Err(self.wrong("lp", format!("p is {p}")).hint("use a finite number above 0"));
        }
        if p == 1.0 {
            return self.compared("lp", target, reduction, |x, t| (x - t).abs());
        }
        if p == 2.0 {
            return self.compared("lp", target, reduction, |x, t| (x - t).square());
        }
        self.compared("lp", target, reduction, |x, t| power((x - t).abs(), p))
    }

    /// Computes the smooth L1 loss: quadratic below `beta`, linear above. See
    /// [`loss::smooth_l1`](crate::loss::smooth_l1).
    ///
    /// # Errors
    /// As [`mse_loss`](AnyTensor::mse_loss), and when `beta` is negative or NaN.
    pub fn smooth_l1_loss(self, target: AnyTensor, beta: f64, reduction: Reduction) -> Result<AnyTensor> {
        if beta.is_nan() || beta < 0.0 {
            return Err(self
                .wrong("smooth_l1", format!("beta is {beta}"))
                .hint("use a number of at least 0"));
        }
        if beta == 0.0 {
            return self.compared("smooth_l1", target, reduction, |x, t| (x - t).abs());
        }
        self.compared("smooth_l1", target, reduction, |x, t| bend(x - t, beta) / beta)
    }

    /// Computes the Huber loss: quadratic up to `delta`, linear above. See [`loss::huber`](crate::loss::huber).
    ///
    /// # Errors
    /// As [`mse_loss`](AnyTensor::mse_loss), and when `delta` is not positive.
    pub fn huber_loss(self, target: AnyTensor, delta: f64, reduction: Reduction) -> Result<AnyTensor> {
        if delta.is_nan() || delta <= 0.0 {
            return Err(self.wrong("huber", format!("delta is {delta}")).hint("use a number above 0"));
        }
        self.compared("huber", target, reduction, |x, t| bend(x - t, delta))
    }
}

/// Computes `d² / 2` where `|d|` is at most `limit`, `limit (|d| - limit / 2)` beyond, without overflow of the square.
fn bend<'e>(difference: Var<'e>, limit: f64) -> Var<'e> {
    let distance = difference.abs();
    let near = distance.min(&distance.scalar(limit));
    &near * (distance - &near * 0.5)
}

/// Computes `distance^p` of distances of at least 0; the gradient at 0 is 0.
fn power<'e>(distance: Var<'e>, p: f64) -> Var<'e> {
    let none = distance.equal(&distance.scalar(0.0));
    let held = none.select(&distance.scalar(1.0), &distance);
    none.select(&held.scalar(0.0), &held.pow(&held.scalar(p)))
}
