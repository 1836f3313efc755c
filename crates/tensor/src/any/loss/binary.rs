//! Binary classification losses.

use super::Reduction;
use crate::any::formula::{log_sigmoid, sigmoid, softplus};
use crate::{AnyTensor, Result};
use alloc::format;
use kiln_ir::{Binary, Comparison, Shape, Var};

impl AnyTensor {
    /// Computes the binary cross-entropy of probabilities `self` and targets. See
    /// [`loss::binary_cross_entropy`](crate::loss::binary_cross_entropy).
    ///
    /// # Errors
    /// When the dtype is not a float, the targets differ in dtype or shape, or the weights differ in dtype or do not
    /// broadcast to the predictions.
    pub fn binary_cross_entropy_loss(
        self,
        target: AnyTensor,
        weight: Option<AnyTensor>,
        reduction: Reduction,
    ) -> Result<AnyTensor> {
        let losses = self.compared("binary_cross_entropy", target, Reduction::None, |x, t| {
            -(&t * held_ln(&x) + (1.0 - &t) * held_ln(&(1.0 - &x)))
        })?;
        reduction.of(losses.weighted("binary_cross_entropy", weight)?)
    }

    /// Computes the binary cross-entropy of logits `self` and targets. See
    /// [`loss::binary_cross_entropy_with_logits`](crate::loss::binary_cross_entropy_with_logits).
    ///
    /// # Errors
    /// As [`binary_cross_entropy_loss`](AnyTensor::binary_cross_entropy_loss), of both kinds of weights.
    pub fn binary_cross_entropy_with_logits_loss(
        self,
        target: AnyTensor,
        weight: Option<AnyTensor>,
        pos_weight: Option<AnyTensor>,
        reduction: Reduction,
    ) -> Result<AnyTensor> {
        const OP: &str = "binary_cross_entropy_with_logits";
        let losses = match pos_weight {
            None => self.compared(OP, target, Reduction::None, |x, t| logit_losses(&x, &t, None))?,
            Some(weight) => {
                self.check_float(OP)?;
                self.check_same(OP, &target)?;
                self.check_alike(OP, &weight)?;
                self.check_fits(OP, &weight)?;
                self.expression_with([target, weight], |x, [t, weight]| logit_losses(&x, &t, Some(&weight)))
            }
        };
        reduction.of(losses.weighted(OP, weight)?)
    }

    /// Computes the focal loss, a binary cross-entropy of logits with less weight for easy examples. See
    /// [`loss::sigmoid_focal`](crate::loss::sigmoid_focal).
    ///
    /// # Errors
    /// As [`mse_loss`](AnyTensor::mse_loss), and when `gamma` is negative or NaN.
    pub fn sigmoid_focal_loss(
        self,
        target: AnyTensor,
        alpha: Option<f64>,
        gamma: f64,
        reduction: Reduction,
    ) -> Result<AnyTensor> {
        if gamma.is_nan() || gamma < 0.0 {
            return Err(self
                .wrong("sigmoid_focal", format!("gamma is {gamma}"))
                .hint("use a number of at least 0"));
        }
        self.compared("sigmoid_focal", target, reduction, |x, t| {
            // 1 minus the probability of the target.
            let wrong = sigmoid(&x) * (1.0 - &t) + sigmoid(&-&x) * &t;
            let losses = logit_losses(&x, &t, None);
            let losses = if gamma == 0.0 { losses } else { losses * wrong.pow(&wrong.scalar(gamma)) };
            match alpha {
                Some(alpha) => losses * (&t * (2.0 * alpha - 1.0) + (1.0 - alpha)),
                None => losses,
            }
        })
    }

    /// Computes the Dice loss, 1 minus the overlap of two sets, per example. See [`loss::dice`](crate::loss::dice).
    ///
    /// # Errors
    /// As [`mse_loss`](AnyTensor::mse_loss), and when there are no axes.
    pub fn dice_loss(self, target: AnyTensor, smooth: f64, reduction: Reduction) -> Result<AnyTensor> {
        self.check_rank("dice", 1, "[batch, ..]")?;
        let axes: alloc::vec::Vec<usize> = (1..self.rank()).collect();
        let batch = self.shape()[0];
        let losses = self.compared("dice", target, Reduction::None, |x, t| {
            let overlap = (&x * &t).sum(&axes) * 2.0 + smooth;
            let total = x.sum(&axes) + t.sum(&axes) + smooth;
            (1.0 - overlap / total).reshape([batch])
        })?;
        reduction.of(losses)
    }

    /// Computes the logistic loss `ln(1 + exp(-target x))`. See [`loss::soft_margin`](crate::loss::soft_margin).
    ///
    /// # Errors
    /// As [`mse_loss`](AnyTensor::mse_loss).
    pub fn soft_margin_loss(self, target: AnyTensor, reduction: Reduction) -> Result<AnyTensor> {
        self.compared("soft_margin", target, reduction, |x, t| softplus(&-(x * t)))
    }

    /// Computes the binary cross-entropy of logits, averaged over the last axis. See
    /// [`loss::multilabel_soft_margin`](crate::loss::multilabel_soft_margin).
    ///
    /// # Errors
    /// As [`binary_cross_entropy_loss`](AnyTensor::binary_cross_entropy_loss), and when there are no axes.
    pub fn multilabel_soft_margin_loss(
        self,
        target: AnyTensor,
        weight: Option<AnyTensor>,
        reduction: Reduction,
    ) -> Result<AnyTensor> {
        const OP: &str = "multilabel_soft_margin";
        self.check_rank(OP, 1, "[.., classes]")?;
        let losses = self.compared(OP, target, Reduction::None, |x, t| {
            -(&t * log_sigmoid(&x) + (1.0 - &t) * log_sigmoid(&-&x))
        })?;
        let losses = losses.weighted(OP, weight)?;
        let last = losses.rank() - 1;
        let rest = losses.shape().without(last);
        reduction.of(losses.mean_over(&[last])?.reshape(rest)?)
    }

    /// Multiplies losses by weights, if there are any.
    pub(super) fn weighted(self, op: &str, weight: Option<AnyTensor>) -> Result<AnyTensor> {
        let Some(weight) = weight else { return Ok(self) };
        self.check_alike(op, &weight)?;
        self.check_fits(op, &weight)?;
        self.binary(Binary::Mul, weight)
    }

    /// Returns an error unless the weight broadcasts to this shape.
    pub(super) fn check_fits(&self, op: &str, weight: &AnyTensor) -> Result<()> {
        let both: Option<Shape> = kiln_ir::infer::broadcast_shapes(self.shape(), weight.shape());
        if both == Some(*self.shape()) {
            return Ok(());
        }
        Err(self
            .unlike(op, "the weight does not broadcast to the prediction", weight)
            .hint("a weight has the length of the prediction or 1 in each axis, counted from the last"))
    }
}

/// Computes `max(ln(x), -100)`, as PyTorch clamps it; the gradient is 0 where it is clamped.
fn held_ln<'e>(x: &Var<'e>) -> Var<'e> {
    let low = x.compare(Comparison::Le, &x.scalar(libm::exp(-100.0)));
    low.select(&x.scalar(-100.0), &low.select(&x.scalar(1.0), x).ln())
}

/// Computes `(1 - t) x + (1 + (p - 1) t) softplus(-x)`.
fn logit_losses<'e>(x: &Var<'e>, t: &Var<'e>, pos_weight: Option<&Var<'e>>) -> Var<'e> {
    let rest = softplus(&-x);
    let rest = match pos_weight {
        Some(weight) => ((weight - 1.0) * t + 1.0) * rest,
        None => rest,
    };
    (1.0 - t) * x + rest
}
