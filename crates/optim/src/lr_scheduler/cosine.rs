//! Cosine annealing, without and with restarts.

pub use super::config::{CosineAnnealingLrScheduler, CosineAnnealingLrSchedulerConfig};

use super::LearningRate;
use crate::error::{Result, at_least_one, not_negative};
use core::f64::consts::PI;

/// Cosine annealing from `start` to `end` over a number of steps, then `end`
/// ([Loshchilov and Hutter 2017](https://arxiv.org/abs/1608.03983), without restarts):
/// `end + (start - end) (1 + cos(π step / steps)) / 2`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cosine {
    start: f64,
    end: f64,
    steps: u64,
    periodic: bool,
}

impl Cosine {
    /// Returns a schedule from `start` at step 0 to `end` at step `steps`.
    ///
    /// # Errors
    /// When a rate is negative or not finite, or `steps` is 0.
    pub fn new(start: f64, end: f64, steps: u64) -> Result<Cosine> {
        not_negative("cosine", "start", start)?;
        not_negative("cosine", "end", end)?;
        Ok(Cosine::fixed(start, end, at_least_one("cosine", "steps", steps)?))
    }

    /// The schedule of options that are known to be valid.
    pub(super) fn fixed(start: f64, end: f64, steps: u64) -> Cosine {
        Cosine { start, end, steps, periodic: false }
    }

    /// Continues the cosine after `steps`, where the rate rises again to `start`, as
    /// `torch.optim.lr_scheduler.CosineAnnealingLR` does. The period is `2 steps`.
    ///
    /// ```
    /// use kiln_optim::lr_scheduler::{Cosine, LearningRate};
    ///
    /// let schedule = Cosine::new(1.0, 0.0, 10)?.periodic();
    /// assert_eq!([10, 20, 30].map(|step| schedule.at(step)), [0.0, 1.0, 0.0]);
    /// # Ok::<(), kiln_optim::OptimError>(())
    /// ```
    #[must_use]
    pub fn periodic(self) -> Cosine {
        Cosine { periodic: true, ..self }
    }
}

impl LearningRate for Cosine {
    fn at(&self, step: u64) -> f64 {
        let step = match self.periodic {
            true => folded(step, self.steps),
            false => step.min(self.steps),
        };
        anneal(self.start, self.end, step, self.steps)
    }
}

/// The place in the falling half of a wave with the period `2 steps` that has the value of `step`.
fn folded(step: u64, steps: u64) -> u64 {
    let place = step % steps;
    if (step / steps).is_multiple_of(2) { place } else { steps - place }
}

/// The value at a step of `0..=steps`, exact at both ends.
fn anneal(start: f64, end: f64, step: u64, steps: u64) -> f64 {
    match step {
        0 => start,
        step if step >= steps => end,
        step => {
            let wave = libm::cos(PI * step as f64 / steps as f64);
            end + (start - end) * (1.0 + wave) / 2.0
        }
    }
}

/// Cosine annealing with warm restarts, SGDR ([Loshchilov and Hutter 2017](https://arxiv.org/abs/1608.03983)).
///
/// A cycle of `T` steps falls from `start` towards `end`: `end + (start - end) (1 + cos(π t / T)) / 2` at its step `t`.
/// The next cycle starts again at `start` and is longer by a factor. The formula is that of
/// `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`.
///
/// ```
/// use kiln_optim::lr_scheduler::{CosineWarmRestarts, LearningRate};
///
/// // Cycles of 10, 20, 40, … steps.
/// let schedule = CosineWarmRestarts::new(0.1, 0.0, 10)?.with_factor(2)?;
/// assert_eq!([0, 10, 30, 70].map(|step| schedule.at(step)), [0.1; 4]);
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CosineWarmRestarts {
    start: f64,
    end: f64,
    first: u64,
    factor: u64,
}

impl CosineWarmRestarts {
    /// Returns a schedule with cycles of `steps` steps (`T_0` in PyTorch).
    ///
    /// # Errors
    /// When a rate is negative or not finite, or `steps` is 0.
    pub fn new(start: f64, end: f64, steps: u64) -> Result<CosineWarmRestarts> {
        not_negative("cosine_warm_restarts", "start", start)?;
        not_negative("cosine_warm_restarts", "end", end)?;
        let first = at_least_one("cosine_warm_restarts", "steps", steps)?;
        Ok(CosineWarmRestarts { start, end, first, factor: 1 })
    }

    /// Sets the factor by which each cycle is longer than the previous one (`T_mult` in PyTorch): at least 1.
    /// Default: 1.
    ///
    /// # Errors
    /// When the factor is 0.
    pub fn with_factor(self, factor: u64) -> Result<CosineWarmRestarts> {
        Ok(CosineWarmRestarts { factor: at_least_one("cosine_warm_restarts", "factor", factor)?, ..self })
    }

    /// The step within its cycle, and the length of the cycle.
    fn place(&self, step: u64) -> (u64, u64) {
        if self.factor == 1 {
            return (step % self.first, self.first);
        }
        let (mut place, mut length) = (step, self.first);
        while place >= length {
            place -= length;
            length = length.saturating_mul(self.factor);
        }
        (place, length)
    }
}

impl LearningRate for CosineWarmRestarts {
    fn at(&self, step: u64) -> f64 {
        let (place, length) = self.place(step);
        anneal(self.start, self.end, place, length)
    }
}
