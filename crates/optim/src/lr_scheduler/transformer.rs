//! Schedules proportional to the inverse square root of the step.

use super::LearningRate;
use crate::error::{Result, at_least_one, not_negative};

/// The schedule of the Transformer ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)):
/// `factor · model_size^-0.5 · min(n^-0.5, n · warmup_steps^-1.5)` with `n = step + 1`.
///
/// ```
/// use kiln_optim::lr_scheduler::{LearningRate, Noam};
///
/// let schedule = Noam::new(1.0, 512, 4000)?;
/// assert!(schedule.at(3999) > schedule.at(3998) && schedule.at(3999) > schedule.at(4000));
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noam {
    scale: f64,
    warmup_steps: f64,
}

impl Noam {
    /// Returns the schedule. The paper uses factor 1, model size 512 and 4000 steps of warm-up.
    ///
    /// # Errors
    /// When `factor` is negative or not finite, or `model_size` or `warmup_steps` is 0.
    pub fn new(factor: f64, model_size: u64, warmup_steps: u64) -> Result<Noam> {
        not_negative("noam", "factor", factor)?;
        at_least_one("noam", "model_size", model_size)?;
        at_least_one("noam", "warmup_steps", warmup_steps)?;
        let scale = factor / libm::sqrt(model_size as f64);
        Ok(Noam { scale, warmup_steps: warmup_steps as f64 })
    }
}

impl LearningRate for Noam {
    fn at(&self, step: u64) -> f64 {
        let n = step as f64 + 1.0;
        let decay = 1.0 / libm::sqrt(n);
        let rise = n / (self.warmup_steps * libm::sqrt(self.warmup_steps));
        self.scale * decay.min(rise)
    }
}

/// Inverse square root decay after linear warm-up: `peak · step / warmup_steps`, then `peak · √(warmup_steps / step)`.
///
/// The decay is that of [Vaswani et al. 2017](https://arxiv.org/abs/1706.03762), by peak rate instead of model size.
/// T5 ([Raffel et al. 2020](https://arxiv.org/abs/1910.10683)) uses it without warm-up: `1 / √max(step, k)` is
/// `InverseSqrt::new(1.0 / k.sqrt(), k)?.without_warmup()`.
///
/// ```
/// use kiln_optim::lr_scheduler::{InverseSqrt, LearningRate};
///
/// let schedule = InverseSqrt::new(1e-3, 100)?;
/// assert_eq!([0, 50, 100, 400].map(|step| schedule.at(step)), [0.0, 5e-4, 1e-3, 5e-4]);
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InverseSqrt {
    peak: f64,
    warmup_steps: u64,
    warmup: bool,
}

impl InverseSqrt {
    /// Returns the schedule.
    ///
    /// # Errors
    /// When `peak` is negative or not finite, or `warmup_steps` is 0.
    pub fn new(peak: f64, warmup_steps: u64) -> Result<InverseSqrt> {
        not_negative("inverse_sqrt", "peak", peak)?;
        let warmup_steps = at_least_one("inverse_sqrt", "warmup_steps", warmup_steps)?;
        Ok(InverseSqrt { peak, warmup_steps, warmup: true })
    }

    /// Returns the schedule with the peak rate in the first `warmup_steps` steps.
    #[must_use]
    pub fn without_warmup(self) -> InverseSqrt {
        InverseSqrt { warmup: false, ..self }
    }
}

impl LearningRate for InverseSqrt {
    fn at(&self, step: u64) -> f64 {
        let ratio = step as f64 / self.warmup_steps as f64;
        match step >= self.warmup_steps {
            true => self.peak / libm::sqrt(ratio),
            false if self.warmup => self.peak * ratio,
            false => self.peak,
        }
    }
}
