//! Normalisation layers.

use crate::{AnyTensor, Result, Shape};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Binary, DType, NormKind, Op, Operand, PadAxis, Real};

/// Options of [`batch_norm`](crate::module::batch_norm).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormOptions {
    /// Whether to normalise by the statistics of the batch and update the running statistics; otherwise the running
    /// statistics normalise.
    pub training: bool,
    /// The weight of the batch in the new running statistics. Default: 0.1.
    pub momentum: f64,
    /// Added to the variance for numerical stability. Default: 1e-5.
    pub epsilon: f64,
}

impl Default for BatchNormOptions {
    fn default() -> BatchNormOptions {
        BatchNormOptions { training: false, momentum: 0.1, epsilon: 1e-5 }
    }
}

/// Mean and (biased) variance of each channel of a batch, `[1, channels, 1, ..]`, in at least `f32`.
#[derive(Clone, Debug)]
pub struct BatchStatistics {
    mean: AnyTensor,
    variance: AnyTensor,
    /// The number of elements per channel.
    count: usize,
}

impl BatchStatistics {
    /// Returns the statistics without a tape.
    #[doc(alias = "stop_gradient")]
    #[must_use]
    pub fn detach(self) -> BatchStatistics {
        BatchStatistics { mean: self.mean.detach(), variance: self.variance.detach(), ..self }
    }

    /// Returns the statistics as constants in every layer of differentiation.
    fn constant(self) -> BatchStatistics {
        BatchStatistics { mean: self.mean.constant(), variance: self.variance.constant(), ..self }
    }

    /// Updates running mean and variance, `[channels]`: `(1 - momentum) running + momentum batch`, with the unbiased
    /// variance of the batch.
    ///
    /// # Errors
    /// When the shape of a running statistic is not `[channels]`.
    pub fn moved(self, running: (AnyTensor, AnyTensor), momentum: f64) -> Result<(AnyTensor, AnyTensor)> {
        let unbiased = self.variance.mul_scalar(self.count as f64 / (self.count - 1) as f64)?;
        let blend = |old: AnyTensor, new: AnyTensor| -> Result<AnyTensor> {
            let channels = new.shape().num_elements();
            let new = new.reshape([channels])?.cast(old.dtype())?;
            old.check_same("batch_norm", &new)?;
            Ok(old.expression_with([new], |old, [new]| old * (1.0 - momentum) + new * momentum))
        };
        Ok((blend(running.0, self.mean)?, blend(running.1, unbiased)?))
    }
}

impl AnyTensor {
    /// Applies layer normalisation: normalises the last `axes` axes to mean 0 and variance 1, then scales and shifts.
    /// Weight and bias have the shape of these axes. See [`module::layer_norm`](crate::module::layer_norm).
    ///
    /// # Errors
    /// When the dtype is not a float, `axes` is 0 or above the rank, or weight or bias do not have the shape of these
    /// axes and the same dtype.
    pub fn layer_norm(
        self,
        axes: usize,
        weight: Option<AnyTensor>,
        bias: Option<AnyTensor>,
        epsilon: f64,
    ) -> Result<AnyTensor> {
        self.normalized("layer_norm", NormKind::Layer, axes, [weight, bias], epsilon)
    }

    /// Applies RMS normalisation: divides the last `axes` axes by the root of their mean square, then scales. The
    /// weight has the shape of these axes. See [`module::rms_norm`](crate::module::rms_norm).
    ///
    /// # Errors
    /// As [`layer_norm`](AnyTensor::layer_norm).
    pub fn rms_norm(self, axes: usize, weight: Option<AnyTensor>, epsilon: f64) -> Result<AnyTensor> {
        self.normalized("rms_norm", NormKind::Rms, axes, [weight, None], epsilon)
    }

    fn normalized(
        self,
        op: &str,
        kind: NormKind,
        axes: usize,
        [weight, bias]: [Option<AnyTensor>; 2],
        epsilon: f64,
    ) -> Result<AnyTensor> {
        for other in [&weight, &bias].into_iter().flatten() {
            self.in_same_domain(op, other)?;
        }
        // A bias without a weight: the op's operands have a fixed order, so the weight is ones.
        let weight = match (weight, &bias) {
            (None, Some(bias)) => Some(AnyTensor::ones(*bias.ty(), bias.stack())?),
            (weight, _) => weight,
        };
        let op = Op::Norm { kind, axes, epsilon: Real(epsilon) };
        let operands: Vec<Operand> =
            [weight, bias].into_iter().flatten().map(|any| any.into_value().into()).collect();
        self.apply_with(&op, operands)
    }

    /// Applies group normalisation: normalises each group of channels of each example of `[batch, channels, ..]`, then
    /// scales and shifts each channel. See [`module::group_norm`](crate::module::group_norm).
    ///
    /// # Errors
    /// When the dtype is not a float, there are fewer than two axes, `groups` is 0 or does not divide the channels, or
    /// weight or bias are not `[channels]` of the same dtype.
    pub fn group_norm(
        self,
        groups: usize,
        weight: Option<AnyTensor>,
        bias: Option<AnyTensor>,
        epsilon: f64,
    ) -> Result<AnyTensor> {
        const OP: &str = "group_norm";
        self.check_float(OP)?;
        self.check_rank(OP, 2, "[batch, channels, ..]")?;
        let (shape, channels) = (*self.shape(), self.shape()[1]);
        if groups == 0 || !channels.is_multiple_of(groups) {
            return Err(self.wrong(OP, format!("{channels} channels do not divide into {groups} groups")));
        }
        let row: usize = (channels / groups) * shape[2..].iter().product::<usize>();
        let rows = self.reshape([shape[0], groups, row])?;
        let normal = rows.normalized(OP, NormKind::Layer, 1, [None, None], epsilon)?.reshape(shape)?;
        normal.by_channel(OP, Binary::Mul, weight)?.by_channel(OP, Binary::Add, bias)
    }

    /// Applies instance normalisation: normalises each channel of each example of `[batch, channels, space..]`, then
    /// scales and shifts it. See [`module::instance_norm`](crate::module::instance_norm).
    ///
    /// # Errors
    /// As [`group_norm`](AnyTensor::group_norm), and when there are fewer than three axes.
    pub fn instance_norm(
        self,
        weight: Option<AnyTensor>,
        bias: Option<AnyTensor>,
        epsilon: f64,
    ) -> Result<AnyTensor> {
        self.check_rank("instance_norm", 3, "[batch, channels, space..]")?;
        let groups = self.shape()[1];
        if groups == 0 {
            return Ok(self);
        }
        self.group_norm(groups, weight, bias, epsilon)
    }

    /// Applies batch normalisation: normalises each channel of `[batch, channels, ..]` over all examples, then scales
    /// and shifts it. Also returns the new running mean and (unbiased) variance, `[channels]`, if there are running
    /// statistics. See [`module::batch_norm`](crate::module::batch_norm).
    ///
    /// # Errors
    /// When the dtype is not a float, there are fewer than two axes, or weight, bias or running statistics are not
    /// `[channels]` of the same dtype. When there are fewer than two values per channel in training, or no running
    /// statistics otherwise.
    pub fn batch_norm(
        self,
        running: Option<(AnyTensor, AnyTensor)>,
        weight: Option<AnyTensor>,
        bias: Option<AnyTensor>,
        options: BatchNormOptions,
    ) -> Result<(AnyTensor, Option<(AnyTensor, AnyTensor)>)> {
        const OP: &str = "batch_norm";
        self.check_float(OP)?;
        self.check_rank(OP, 2, "[batch, channels, ..]")?;
        if options.training {
            if let Some((mean, variance)) = &running {
                self.check_alike(OP, mean)?;
                self.check_alike(OP, variance)?;
            }
            let mut moved = None;
            let y = self.batch_norm_by_batch(weight, bias, options.epsilon, |batch| {
                if let Some(running) = running {
                    moved = Some(batch.constant().moved(running, options.momentum)?);
                }
                Ok(())
            })?;
            return Ok((y, moved));
        }
        let Some((mean, variance)) = running else {
            return Err(self.wrong(OP, "has no running statistics").hint("train, or pass mean and variance"));
        };
        let by_mean = self.channels(OP, mean.clone())?.widened()?;
        let by_variance = self.channels(OP, variance.clone())?.widened()?;
        let (like, dtype) = (self.held(), self.dtype());
        let centred = self.widened()?.binary(Binary::Sub, by_mean)?;
        let y = centred.scaled(by_variance, [weight, bias], options.epsilon, like, dtype)?;
        Ok((y, Some((mean, variance))))
    }

    /// Applies [`batch_norm`](AnyTensor::batch_norm) in training, for a caller that keeps the running statistics:
    /// `seen` receives the statistics of the batch.
    ///
    /// # Errors
    /// As [`batch_norm`](AnyTensor::batch_norm), and the error of `seen`.
    pub fn batch_norm_by_batch(
        self,
        weight: Option<AnyTensor>,
        bias: Option<AnyTensor>,
        epsilon: f64,
        seen: impl FnOnce(BatchStatistics) -> Result<()>,
    ) -> Result<AnyTensor> {
        const OP: &str = "batch_norm";
        self.check_float(OP)?;
        self.check_rank(OP, 2, "[batch, channels, ..]")?;
        let axes: Vec<usize> = (0..self.rank()).filter(|&axis| axis != 1).collect();
        let count = self.shape().without(1).num_elements();
        if count < 2 {
            return Err(self
                .wrong(OP, "training needs more than one value per channel")
                .hint("use larger batches, or drop a last batch of one: `drop_last(true)` of the loader"));
        }
        let (like, dtype) = (self.held(), self.dtype());
        // The squares of 16-bit floats exceed their range.
        let x = self.cast(dtype.accumulator())?;
        let mean = x.clone().mean_over(&axes)?;
        let variance = x.clone().variance_about(mean.clone())?;
        let centred = x.binary(Binary::Sub, mean.clone())?;
        seen(BatchStatistics { mean, variance: variance.clone(), count })?;
        centred.scaled(variance, [weight, bias], epsilon, like, dtype)
    }

    /// Returns the tensor itself if its precision determines that of a result, otherwise `None`, since engines
    /// overwrite an operand that has no other owner.
    fn held(&self) -> Option<AnyTensor> {
        self.stack().engine().mixes_precision().then(|| self.clone())
    }

    /// Computes `self / √(variance + ε) * weight + bias`, in the precision of `like` and this dtype.
    fn scaled(
        self,
        variance: AnyTensor,
        [weight, bias]: [Option<AnyTensor>; 2],
        epsilon: f64,
        like: Option<AnyTensor>,
        dtype: DType,
    ) -> Result<AnyTensor> {
        const OP: &str = "batch_norm";
        let normal = self.expression_with([variance], |x, [variance]| x * (variance + epsilon).rsqrt());
        let y = normal.cast(dtype)?.by_channel(OP, Binary::Mul, weight)?.by_channel(OP, Binary::Add, bias)?;
        if let Some(like) = &like { y.match_precision(like) } else { Ok(y) }
    }

    /// Applies local response normalisation, `x / (k + alpha mean(x²))^beta`, where the mean is over `size` adjacent
    /// channels. See [`module::local_response_norm`](crate::module::local_response_norm).
    ///
    /// # Errors
    /// When the dtype is not a float, there are fewer than two axes, or `size` is 0.
    pub fn local_response_norm(self, size: usize, alpha: f64, beta: f64, k: f64) -> Result<AnyTensor> {
        const OP: &str = "local_response_norm";
        self.check_float(OP)?;
        self.check_rank(OP, 2, "[batch, channels, ..]")?;
        if size == 0 {
            return Err(self.wrong(OP, "the size is 0"));
        }
        let shape: Shape = *self.shape();
        let rank = shape.rank();
        if shape.num_elements() == 0 {
            return Ok(self);
        }
        let dtype = self.dtype();
        let y = self.wide_expression([], |x, []| {
            let mut pads = alloc::vec![PadAxis::default(); rank];
            pads[1] = PadAxis::new(size / 2, (size - 1) / 2);
            let windows = x.square().pad(pads, 0.0).windows(1, size, 1, 1);
            let mean = windows.sum(&[rank]).reshape(shape) / size as f64;
            let base = mean * alpha + k;
            x / base.pow(&base.scalar(beta))
        });
        y.cast(dtype)
    }
}
