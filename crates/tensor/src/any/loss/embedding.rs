//! Losses of embeddings: cosine, triplet and contrastive.

use super::Reduction;
use crate::any::formula::at_least_zero;
use crate::{AnyTensor, Result};
use alloc::format;
use kiln_ir::{Op, Reduction as Combine, TensorType, Var};

/// Options of [`triplet_margin`](crate::loss::triplet_margin).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TripletOptions {
    /// The minimum difference between the negative and the positive distance. Default: 1.
    pub margin: f64,
    /// The norm of the difference: `(Σ |d|^p)^(1/p)`, or the maximum for infinity. Default: 2.
    pub p: f64,
    /// Added to the differences, so that the norm of equal vectors has a gradient. Default: 1e-6.
    pub epsilon: f64,
    /// Whether the distance from the positive to the negative is used where it is the lesser ([Balntas et al.
    /// 2016](https://bmva-archive.org.uk/bmvc/2016/papers/paper119/index.html)). Default: no.
    pub swap: bool,
    /// The reduction of the losses. Default: the mean.
    pub reduction: Reduction,
}

impl Default for TripletOptions {
    fn default() -> TripletOptions {
        TripletOptions { margin: 1.0, p: 2.0, epsilon: 1e-6, swap: false, reduction: Reduction::Mean }
    }
}

impl AnyTensor {
    /// Computes the cosine embedding loss: 1 minus the cosine where the target is 1, the cosine above a margin where it
    /// is -1. Vectors are along the last axis. See [`loss::cosine_embedding`](crate::loss::cosine_embedding).
    ///
    /// # Errors
    /// When the vectors are not of one shape and float dtype, have no axes, or the targets do not have the shape of the
    /// axes before the last.
    pub fn cosine_embedding_loss(
        self,
        other: AnyTensor,
        target: AnyTensor,
        margin: f64,
        reduction: Reduction,
    ) -> Result<AnyTensor> {
        const OP: &str = "cosine_embedding";
        self.check_float(OP)?;
        self.check_same(OP, &other)?;
        self.check_rank(OP, 1, "[.., dim]")?;
        self.in_same_domain(OP, &target)?;
        let last = self.rank() - 1;
        let rows = self.shape().without(last);
        if *target.shape() != rows {
            let problem = format!("the targets must be {rows}");
            return Err(self
                .unlike(OP, problem, &target)
                .hint("there is one target, 1 or -1, for each vector"));
        }
        let dtype = self.dtype();
        let losses = self.wide_expression([other, target.cast(dtype)?], |a, [b, t]| {
            let lengths = (squared_length(&a) * squared_length(&b)).sqrt();
            let cosine = ((a * b).sum(&[last]) / lengths).reshape(rows);
            let zero = cosine.scalar(0.0);
            let together = t.equal(&t.scalar(1.0)).select(&(1.0 - &cosine), &zero);
            let apart = at_least_zero(&(cosine - margin));
            together + t.equal(&t.scalar(-1.0)).select(&apart, &zero)
        });
        reduction.of(losses)?.cast(dtype)
    }

    /// Computes the triplet margin loss, `max(0, d(self, positive) - d(self, negative) + margin)`. See
    /// [`loss::triplet_margin`](crate::loss::triplet_margin).
    ///
    /// # Errors
    /// When the vectors are not of one shape and float dtype, have no axes, or `p` is not positive.
    pub fn triplet_margin_loss(
        self,
        positive: AnyTensor,
        negative: AnyTensor,
        options: TripletOptions,
    ) -> Result<AnyTensor> {
        const OP: &str = "triplet_margin";
        self.check_float(OP)?;
        self.check_same(OP, &positive)?;
        self.check_same(OP, &negative)?;
        self.check_rank(OP, 1, "[.., dim]")?;
        let TripletOptions { margin, p, epsilon, swap, reduction } = options;
        if p.is_nan() || p <= 0.0 {
            return Err(self.wrong(OP, format!("the norm has p = {p}")).hint("use a number above 0"));
        }
        let rows = self.shape().without(self.rank() - 1);
        let distance = |a: AnyTensor, b: AnyTensor| {
            Ok(a.wide_expression([b], |a, [b]| norm(&(a - b + epsilon), p).reshape(rows)))
        };
        let dtype = self.dtype();
        self.triplet_margin_loss_with(positive, negative, distance, margin, swap, reduction)?.cast(dtype)
    }

    /// Computes the [`triplet_margin_loss`](AnyTensor::triplet_margin_loss) with any distance. See
    /// [`loss::triplet_margin_with`](crate::loss::triplet_margin_with).
    ///
    /// # Errors
    /// Those of `distance`, and when the distances are not of one shape and float dtype.
    pub fn triplet_margin_loss_with(
        self,
        positive: AnyTensor,
        negative: AnyTensor,
        distance: impl Fn(AnyTensor, AnyTensor) -> Result<AnyTensor>,
        margin: f64,
        swap: bool,
        reduction: Reduction,
    ) -> Result<AnyTensor> {
        let near = distance(self.clone(), positive.clone())?;
        let far = distance(self, negative.clone())?;
        let far = if swap { far.binary(kiln_ir::Binary::Min, distance(positive, negative)?)? } else { far };
        near.check_float("triplet_margin")?;
        near.check_same("triplet_margin", &far)?;
        reduction.of(near.expression_with([far], |near, [far]| at_least_zero(&(near - far + margin))))
    }

    /// Computes the InfoNCE contrastive loss; queries and keys are `[batch, dim]`. See
    /// [`loss::info_nce`](crate::loss::info_nce).
    ///
    /// # Errors
    /// When queries and keys are not matrices of one shape and float dtype, or the temperature is not finite and
    /// positive.
    pub fn info_nce_loss(self, keys: AnyTensor, temperature: f64, reduction: Reduction) -> Result<AnyTensor> {
        const OP: &str = "info_nce";
        self.check_float(OP)?;
        self.check_same(OP, &keys)?;
        if self.rank() != 2 {
            return Err(self.wrong(OP, "needs 2 axes").hint("the axes are [batch, dim]"));
        }
        if !(temperature > 0.0 && temperature.is_finite()) {
            return Err(self
                .wrong(OP, format!("the temperature is {temperature}"))
                .hint("use a finite number above 0"));
        }
        let batch = self.shape()[0];
        let index = self.stack().int_dtype();
        let dtype = self.dtype();
        let losses = self.wide_expression([keys], |queries, [keys]| {
            let queries = &queries * squared_length(&queries).rsqrt();
            let keys = &keys * squared_length(&keys).rsqrt();
            let scores = queries.matmul(&keys.transpose()) / temperature;
            let log = scores.apply(Op::Softmax { axis: 1, log: true }, &[]);
            let diagonal = Var::iota(log.engine(), TensorType::new([batch, 1], index), 0);
            -log.gather(1, &diagonal).reshape([batch])
        });
        reduction.of(losses)?.cast(dtype)
    }
}

/// Computes the squared norm along the last axis, plus PyTorch's constant, so that zero vectors have a cosine.
fn squared_length<'e>(x: &Var<'e>) -> Var<'e> {
    x.square().sum(&[x.rank() - 1]) + 1e-12
}

/// Computes `(Σ |x|^p)^(1/p)` along the last axis, which is kept with length 1; the gradient of a zero vector is 0.
fn norm<'e>(x: &Var<'e>, p: f64) -> Var<'e> {
    let axes = [x.rank() - 1];
    if p == f64::INFINITY {
        return x.abs().reduce(Combine::Max, &axes);
    }
    if p == 1.0 {
        return x.abs().sum(&axes);
    }
    let sum = if p == 2.0 { x.square().sum(&axes) } else { x.abs().pow(&x.scalar(p)).sum(&axes) };
    let nothing = sum.equal(&sum.scalar(0.0));
    let held = nothing.select(&sum.scalar(1.0), &sum);
    let root = if p == 2.0 { held.sqrt() } else { held.pow(&held.scalar(1.0 / p)) };
    nothing.select(&root.scalar(0.0), &root)
}
