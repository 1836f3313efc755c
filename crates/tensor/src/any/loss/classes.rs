//! Classification losses.

use super::Reduction;
use crate::{AnyTensor, Result};
use alloc::format;
use kiln_ir::{IndexUser, Op, Shape, Var};

/// Options of [`cross_entropy`](crate::loss::cross_entropy) and [`nll`](crate::loss::nll).
#[derive(Clone, Debug, Default)]
pub struct ClassOptions {
    /// The weight of each class, `[classes]`. Default (`None`): 1.
    pub weight: Option<AnyTensor>,
    /// The class index of targets to ignore. Default (`None`): no target is ignored.
    pub ignore_index: Option<i64>,
    /// The share of the target distribution that is spread over all classes, from 0 to 1; `cross_entropy` only.
    /// Default: 0.
    pub label_smoothing: f64,
    /// The reduction of the losses. The mean divides by the sum of the weights of the targets that are not ignored.
    /// Default: the mean.
    pub reduction: Reduction,
}

impl AnyTensor {
    /// Computes the cross-entropy of logits `[batch, classes, space..]` and targets: class indices `[batch, space..]`,
    /// or probabilities with the shape of the logits. See [`loss::cross_entropy`](crate::loss::cross_entropy).
    ///
    /// # Errors
    /// When logits, targets or class weights are not of these shapes, the logits are not floats, the weights or
    /// probabilities differ from them in dtype, the targets are `bool`, the label smoothing is not from 0 to 1, or
    /// `ignore_index` is set for probabilities.
    pub fn cross_entropy_loss(self, target: AnyTensor, options: &ClassOptions) -> Result<AnyTensor> {
        const OP: &str = "cross_entropy";
        self.check_classes(OP, options)?;
        let smoothing = options.label_smoothing;
        if !(0.0..=1.0).contains(&smoothing) {
            let problem = format!("the label smoothing {smoothing} is not between 0 and 1");
            return Err(self.wrong(OP, problem));
        }
        if target.dtype().is_float() {
            return self.soft_targets(target, options);
        }
        self.check_targets(OP, &target)?;
        self.log_softmax(1)?.class_losses(target, IndexUser::CrossEntropy, options)
    }

    /// Computes the negative log-likelihood of targets `[batch, space..]`, given log-probabilities
    /// `[batch, classes, space..]`. See [`loss::nll`](crate::loss::nll).
    ///
    /// # Errors
    /// When log-probabilities, targets or class weights are not of these shapes, the log-probabilities are not floats,
    /// the weights differ from them in dtype, the targets are not integers, or the label smoothing is not 0.
    pub fn nll_loss(self, target: AnyTensor, options: &ClassOptions) -> Result<AnyTensor> {
        self.check_classes("nll", options)?;
        self.check_targets("nll", &target)?;
        if options.label_smoothing != 0.0 {
            return Err(self.wrong("nll", "has no label smoothing").hint("use `cross_entropy` on logits"));
        }
        self.class_losses(target, IndexUser::Nll, options)
    }

    fn check_classes(&self, op: &str, options: &ClassOptions) -> Result<()> {
        self.check_float(op)?;
        self.check_rank(op, 2, "[batch, classes, ..]")?;
        let Some(weight) = &options.weight else { return Ok(()) };
        self.check_alike(op, weight)?;
        if weight.rank() == 1 && weight.shape()[0] == self.shape()[1] {
            return Ok(());
        }
        let problem = format!("the class weights must be [{}]", self.shape()[1]);
        Err(self.unlike(op, problem, weight).hint("there is one weight for each class"))
    }

    fn check_targets(&self, op: &str, target: &AnyTensor) -> Result<()> {
        self.in_same_domain(op, target)?;
        if target.dtype().is_int() && *target.shape() == self.shape().without(1) {
            return Ok(());
        }
        Err(self
            .unlike(op, "logits [batch, classes, ..] and targets [batch, ..] do not suit", target)
            .hint(self.targets_hint(target)))
    }

    /// The likely mistake of targets that do not suit the logits.
    fn targets_hint(&self, target: &AnyTensor) -> &'static str {
        let (logits, targets) = (self.shape(), target.shape());
        let last = logits.rank() - 1;
        match () {
            () if last > 1 && *targets == logits.without(last) => {
                "the classes are axis 1 and not the last axis: move them with `logits.movedim(-1, 1)`, or flatten logits \
                 to [batch * .., classes] and targets to [batch * ..]"
            }
            () if target.dtype().is_float() && *targets == logits.without(1) => {
                "class indices are integers: convert them by `.int()`; float targets are probabilities with the shape \
                 of the logits"
            }
            () if target.dtype().is_int() && targets == logits => {
                "targets with one number for each class are probabilities: convert them by `.float()`, or reduce them \
                 to class indices by `argmax(1)` and `squeeze_dim(1)`"
            }
            () if targets.rank() == logits.rank() && *targets == logits.without(1).inserted(1, 1) => {
                "targets have no axis of classes: remove it with `squeeze_dim(1)`"
            }
            () => {
                "class indices are integers with the axes of the logits but for the classes, axis 1; probabilities are \
                 floats with the shape of the logits"
            }
        }
    }

    /// Computes the losses from log-probabilities.
    fn class_losses(self, target: AnyTensor, user: IndexUser, options: &ClassOptions) -> Result<AnyTensor> {
        let ignored = match options.ignore_index {
            Some(index) => Some(target.clone().compare_scalar(kiln_ir::Comparison::Eq, index)?),
            None => None,
        };
        let target = match &ignored {
            Some(ignored) => ignored.clone().if_else_number(0, target)?,
            None => target,
        };
        let target = target.checked_for(user, self.shape()[1])?;
        let weights = match &options.weight {
            Some(weight) => Some(weight.clone().take(0, target.clone())?),
            None => None,
        };
        let dtype = self.dtype();
        let losses = self.target_losses(target, weights.clone(), options)?.widened()?;
        let weights = weights.map(AnyTensor::widened).transpose()?;
        reduced(losses, weights, ignored, options.reduction.or(Reduction::Mean))?.cast(dtype)
    }

    /// Returns the loss of each target, `[batch, space..]`; `weights` are those of the target classes.
    fn target_losses(
        self,
        target: AnyTensor,
        weights: Option<AnyTensor>,
        options: &ClassOptions,
    ) -> Result<AnyTensor> {
        let shape = *target.shape();
        let index = target.reshape(shape.inserted(1, 1))?;
        let picked = self.clone().gather(1, index)?.reshape(shape)?.unary(kiln_ir::Unary::Neg)?;
        let picked = match weights {
            Some(weights) => picked.binary(kiln_ir::Binary::Mul, weights)?,
            None => picked,
        };
        let smoothing = options.label_smoothing;
        if smoothing == 0.0 {
            return Ok(picked);
        }
        let classes = self.shape()[1].max(1) as f64;
        let all = self.by_class_weight(options)?;
        Ok(all.wide_expression([picked], |all, [picked]| {
            picked * (1.0 - smoothing) - all.sum(&[1]).reshape(shape) * (smoothing / classes)
        }))
    }

    /// Multiplies each class by its weight.
    fn by_class_weight(self, options: &ClassOptions) -> Result<AnyTensor> {
        let Some(weight) = &options.weight else { return Ok(self) };
        let shape: Shape = (0..self.rank()).map(|axis| if axis == 1 { self.shape()[1] } else { 1 }).collect();
        self.binary(kiln_ir::Binary::Mul, weight.clone().reshape(shape)?)
    }

    fn soft_targets(self, target: AnyTensor, options: &ClassOptions) -> Result<AnyTensor> {
        const OP: &str = "cross_entropy";
        self.check_alike(OP, &target)?;
        if self.shape() != target.shape() {
            return Err(self
                .unlike(OP, "logits and probabilities differ in shape", &target)
                .hint(self.targets_hint(&target)));
        }
        if options.ignore_index.is_some() {
            return Err(self
                .wrong(OP, "`ignore_index` is not supported for probabilities")
                .hint("set the ignored rows to 0"));
        }
        let rows = self.shape().without(1);
        let spread = options.label_smoothing / self.shape()[1].max(1) as f64;
        let smoothing = options.label_smoothing;
        let shares =
            if smoothing == 0.0 { target } else { target.expression(|t| t * (1.0 - smoothing) + spread) };
        let dtype = self.dtype();
        let log = self.apply(&Op::Softmax { axis: 1, log: true })?;
        let products = log.expression_with([shares], |log, [shares]| product(&log, &shares));
        let products = products.by_class_weight(options)?;
        let losses = products.wide_expression([], |x, []| -x.sum(&[1]).reshape(rows));
        options.reduction.of(losses)?.cast(dtype)
    }
}

/// Reduces losses, some of which may be ignored. Their mean is over the weights of the others, or their number.
fn reduced(
    losses: AnyTensor,
    weights: Option<AnyTensor>,
    ignored: Option<AnyTensor>,
    reduction: Reduction,
) -> Result<AnyTensor> {
    let kept = |x: AnyTensor| match &ignored {
        Some(ignored) => ignored.clone().if_else_number(0, x),
        None => Ok(x),
    };
    let losses = kept(losses)?;
    if reduction != Reduction::Mean || (weights.is_none() && ignored.is_none()) {
        return reduction.of(losses);
    }
    let weights = match weights {
        Some(weights) => weights,
        None => AnyTensor::ones(*losses.ty(), losses.stack())?,
    };
    let counted = Reduction::Sum.of(kept(weights)?)?;
    Reduction::Sum.of(losses)?.binary(kiln_ir::Binary::Div, counted)
}

/// Computes `log * share`, where 0 times the logarithm of an impossible class is 0.
fn product<'e>(log: &Var<'e>, share: &Var<'e>) -> Var<'e> {
    let none = share.equal(&share.scalar(0.0)).and(&log.equal(&log.scalar(f64::NEG_INFINITY)));
    none.select(&log.scalar(0.0), log) * share
}
