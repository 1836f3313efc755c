//! The schedule of stochastic weight averaging.

use super::{AnnealStrategy, LearningRate};
use crate::error::{Result, not_negative};

/// Anneals to a constant rate for [stochastic weight averaging](crate::ModelAverage)
/// ([Izmailov et al. 2018](https://arxiv.org/abs/1803.05407)): from `start` to `swa_lr` over a number of steps, then
/// `swa_lr`.
///
/// The formula is that of `torch.optim.swa_utils.SWALR`; its defaults are 10 steps and a cosine.
///
/// ```
/// use kiln_optim::lr_scheduler::{AnnealStrategy, Exponential, LearningRate, Sequential, SwaLr};
///
/// let decay = Exponential::new(0.1, 0.5)?;
/// let start = decay.at(3);
/// let schedule = Sequential::new().then(decay, 3).finally(SwaLr::new(start, 0.05, 10, AnnealStrategy::Cosine)?);
/// assert_eq!((schedule.at(3), schedule.at(13)), (0.0125, 0.05));
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwaLr {
    start: f64,
    swa_lr: f64,
    steps: u64,
    anneal: AnnealStrategy,
}

impl SwaLr {
    /// Returns the schedule. With 0 steps, all rates are `swa_lr`.
    ///
    /// # Errors
    /// When a rate is negative or not finite.
    pub fn new(start: f64, swa_lr: f64, steps: u64, anneal: AnnealStrategy) -> Result<SwaLr> {
        not_negative("swa_lr", "start", start)?;
        not_negative("swa_lr", "swa_lr", swa_lr)?;
        Ok(SwaLr { start, swa_lr, steps, anneal })
    }
}

impl LearningRate for SwaLr {
    fn at(&self, step: u64) -> f64 {
        if step >= self.steps {
            return self.swa_lr;
        }
        let share = self.anneal.share(step as f64 / self.steps as f64);
        self.swa_lr * share + self.start * (1.0 - share)
    }
}
