//! Margin losses.

use super::Reduction;
use crate::any::formula::at_least_zero;
use crate::{AnyTensor, Result};
use alloc::format;
use kiln_ir::{DType, Reduction as Combine, TensorType, Var};

impl AnyTensor {
    /// Computes the margin ranking loss, `max(0, margin - target (self - other))`. See
    /// [`loss::margin_ranking`](crate::loss::margin_ranking).
    ///
    /// # Errors
    /// When the three tensors are not of one shape and float dtype.
    pub fn margin_ranking_loss(
        self,
        other: AnyTensor,
        target: AnyTensor,
        margin: f64,
        reduction: Reduction,
    ) -> Result<AnyTensor> {
        self.check_float("margin_ranking")?;
        self.check_same("margin_ranking", &other)?;
        self.check_same("margin_ranking", &target)?;
        let losses =
            self.expression_with([other, target], |a, [b, t]| at_least_zero(&(t * (b - a) + margin)));
        reduction.of(losses)
    }

    /// Computes the hinge embedding loss: `x` where the target is 1, `max(0, margin - x)` where it is -1. See
    /// [`loss::hinge_embedding`](crate::loss::hinge_embedding).
    ///
    /// # Errors
    /// As [`mse_loss`](AnyTensor::mse_loss).
    pub fn hinge_embedding_loss(
        self,
        target: AnyTensor,
        margin: f64,
        reduction: Reduction,
    ) -> Result<AnyTensor> {
        self.compared("hinge_embedding", target, reduction, |x, t| {
            let apart = at_least_zero(&(margin - &x));
            let (one, minus) = (t.equal(&t.scalar(1.0)), t.equal(&t.scalar(-1.0)));
            // As in PyTorch, a target that is neither 1 nor -1 adds both terms.
            one.select(&x.scalar(0.0), &apart) + minus.select(&x.scalar(0.0), &x)
        })
    }

    /// Computes the multi-class margin loss; scores are `[batch, classes]`, targets `[batch]`. See
    /// [`loss::multi_margin`](crate::loss::multi_margin).
    ///
    /// # Errors
    /// When scores, targets or class weights are not of these shapes, the scores are not floats, the targets are not
    /// integers, the weights differ from the scores in dtype, or `power` is not 1 or 2.
    pub fn multi_margin_loss(
        self,
        target: AnyTensor,
        power: i32,
        margin: f64,
        weight: Option<AnyTensor>,
        reduction: Reduction,
    ) -> Result<AnyTensor> {
        const OP: &str = "multi_margin";
        self.check_float(OP)?;
        self.in_same_domain(OP, &target)?;
        let suits = self.rank() == 2 && target.rank() == 1 && target.shape()[0] == self.shape()[0];
        if !suits || !target.dtype().is_int() {
            return Err(self
                .unlike(OP, "scores and targets do not suit", &target)
                .hint("scores are [batch, classes], targets integers [batch]"));
        }
        if power != 1 && power != 2 {
            return Err(self.wrong(OP, format!("the power is {power}")).hint("use 1 or 2"));
        }
        let (batch, classes) = (self.shape()[0], self.shape()[1]);
        let weights = match weight {
            Some(weight) => {
                self.check_alike(OP, &weight)?;
                if weight.rank() != 1 || weight.shape()[0] != classes {
                    return Err(self
                        .unlike(OP, format!("the class weights must be [{classes}]"), &weight)
                        .hint("there is one weight for each class"));
                }
                Some(weight.take(0, target.clone())?)
            }
            None => None,
        };
        let dtype = self.dtype();
        let sums = self.wide_expression([target.reshape([batch, 1])?], |x, [target]| {
            let right = x.gather(1, &target);
            let hinge = hinge(&(margin - right + &x));
            let hinge = if power == 2 { hinge.square() } else { hinge };
            let class = Var::iota(x.engine(), TensorType::new([1, classes], target.dtype()), 1);
            let others = class.equal(&target).select(&hinge.scalar(0.0), &hinge);
            others.sum(&[1]).reshape([batch]) / classes.max(1) as f64
        });
        let weights = weights.map(AnyTensor::widened).transpose()?;
        reduction.of(sums.weighted(OP, weights)?)?.cast(dtype)
    }

    /// Computes the multi-label margin loss. Both operands are `[batch, classes]` or `[classes]`; the targets list
    /// class indices up to the first -1. See [`loss::multilabel_margin`](crate::loss::multilabel_margin).
    ///
    /// # Errors
    /// When the operands are not of one of these shapes, the scores are not floats, or the targets are not integers.
    pub fn multilabel_margin_loss(self, target: AnyTensor, reduction: Reduction) -> Result<AnyTensor> {
        const OP: &str = "multilabel_margin";
        self.check_float(OP)?;
        self.in_same_domain(OP, &target)?;
        let suits = matches!(self.rank(), 1 | 2) && self.shape() == target.shape();
        if !suits || !target.dtype().is_int() {
            return Err(self
                .unlike(OP, "scores and targets do not suit", &target)
                .hint("scores are [batch, classes], targets integers of the same shape, ended by -1"));
        }
        let classes = self.shape()[self.rank() - 1];
        let batch = if self.rank() == 2 { self.shape()[0] } else { 1 };
        let (x, target) = (self.reshape([batch, classes])?, target.reshape([batch, classes])?);
        let dtype = x.dtype();
        let sums = x.wide_expression([target], |x, [target]| {
            let losses = label_hinges(&x, &target);
            losses.sum(&[1, 2]).reshape([batch]) / classes.max(1) as f64
        });
        reduction.of(sums)?.cast(dtype)
    }
}

/// Computes the hinge of each absent class (last axis) against each entry of the list (axis 1), for `[batch, classes]`.
fn label_hinges<'e>(x: &Var<'e>, target: &Var<'e>) -> Var<'e> {
    let (batch, classes) = (x.shape()[0], x.shape()[1]);
    // An entry is valid if no entry up to it is negative.
    let named = target.scalar(0).compare(kiln_ir::Comparison::Le, target).cast(DType::I32);
    let listed = named.scan(Combine::Min, 1, false, false).equal(&named.scalar(1));
    let index = listed.select(target, &target.scalar(0));
    let present = x.gather(1, &index).reshape([batch, classes, 1]);
    let class = Var::iota(x.engine(), TensorType::new([1, 1, classes], target.dtype()), 2);
    let listed = listed.reshape([batch, classes, 1]);
    let among = index.reshape([batch, classes, 1]).equal(&class).and(&listed);
    let among = among.reduce(Combine::Max, &[1]);
    let counts = listed.and(&among.unary(kiln_ir::Unary::Not));
    let hinges = hinge(&(1.0 - present + x.reshape([batch, 1, classes])));
    counts.select(&hinges, &hinges.scalar(0.0))
}

/// Computes `max(x, 0)` with gradient 0 at 0.
fn hinge<'e>(x: &Var<'e>) -> Var<'e> {
    x.max(&x.scalar(0.0))
}
