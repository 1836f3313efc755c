//! Dropout.

use crate::{AnyTensor, Distribution, Result, Shape};
use alloc::format;

/// The magnitude of a dropped element before mean and variance are restored: the limit of SELU.
const ALPHA: f64 = 1.758_099_340_847_376_7;

impl AnyTensor {
    /// Applies dropout: in training, elements become 0 with this probability, and the others are divided by
    /// `1 - probability`. See [`module::dropout`](crate::module::dropout).
    ///
    /// # Errors
    /// When the dtype is not a float, or the probability is not between 0 and 1.
    pub fn dropout(self, probability: f64, training: bool) -> Result<AnyTensor> {
        let shape = *self.shape();
        self.dropped("dropout", probability, training, shape)
    }

    /// Applies [`dropout`](AnyTensor::dropout) to whole channels of `[batch, channels, ..]`. See
    /// [`module::dropout2d`](crate::module::dropout2d).
    ///
    /// # Errors
    /// As [`dropout`](AnyTensor::dropout), and when there are fewer than two axes.
    pub fn dropout_channels(self, probability: f64, training: bool) -> Result<AnyTensor> {
        self.check_rank("dropout_channels", 2, "[batch, channels, ..]")?;
        let shape: Shape =
            self.shape().iter().enumerate().map(|(axis, &len)| if axis < 2 { len } else { 1 }).collect();
        self.dropped("dropout_channels", probability, training, shape)
    }

    /// Applies alpha dropout, which keeps mean and variance after SELU. See
    /// [`module::alpha_dropout`](crate::module::alpha_dropout).
    ///
    /// # Errors
    /// As [`dropout`](AnyTensor::dropout).
    pub fn alpha_dropout(self, probability: f64, training: bool) -> Result<AnyTensor> {
        self.check_probability("alpha_dropout", probability)?;
        if !training || probability == 0.0 {
            return Ok(self);
        }
        if probability == 1.0 {
            return self.dropout(1.0, true);
        }
        let scale = 1.0 / libm::sqrt((ALPHA * ALPHA * probability + 1.0) * (1.0 - probability));
        let shift = ALPHA * scale * probability;
        let dropped = AnyTensor::random(
            self.ty().with_dtype(crate::DType::Bool),
            Distribution::Bernoulli(probability),
            self.stack(),
        )?;
        Ok(self.expression_with([dropped], |x, [dropped]| {
            let wide = x.cast(x.dtype().accumulator());
            (dropped.select(&wide.scalar(-ALPHA), &wide) * scale + shift).cast(x.dtype())
        }))
    }

    /// Drops with a mask of this shape, which broadcasts.
    fn dropped(self, op: &str, probability: f64, training: bool, shape: Shape) -> Result<AnyTensor> {
        self.check_probability(op, probability)?;
        if !training || probability == 0.0 {
            return Ok(self);
        }
        let ty = crate::TensorType::new(shape, crate::DType::Bool);
        let dropped = AnyTensor::random(ty, Distribution::Bernoulli(probability), self.stack())?;
        let kept = dropped.if_else_number(0, self)?;
        if probability == 1.0 {
            return Ok(kept);
        }
        // In 16 bits the factor itself would be rounded, to 1 for small probabilities.
        let dtype = kept.dtype();
        kept.cast(dtype.accumulator())?.mul_scalar(1.0 / (1.0 - probability))?.cast(dtype)
    }

    fn check_probability(&self, op: &str, probability: f64) -> Result<()> {
        self.check_float(op)?;
        if (0.0..=1.0).contains(&probability) {
            return Ok(());
        }
        Err(self.wrong(op, format!("the probability {probability} is not between 0 and 1")))
    }
}
