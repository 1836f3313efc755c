//! Decay by a factor.

use super::LearningRate;
use crate::error::{OptimError, Result, at_least_one, not_negative, positive};
use alloc::vec::Vec;

/// Step decay: multiplies the rate by `gamma` every `every` steps, as `torch.optim.lr_scheduler.StepLR` does (`gamma` is
/// 0.1 by default there).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    initial: f64,
    gamma: f64,
    every: u64,
}

impl Step {
    /// Returns the schedule `initial · gamma^floor(step / every)`.
    ///
    /// # Errors
    /// When `initial` is negative or not finite, `gamma` is not a finite value greater than 0, or `every` is 0.
    pub fn new(initial: f64, gamma: f64, every: u64) -> Result<Step> {
        not_negative("step", "initial", initial)?;
        positive("step", "gamma", gamma)?;
        Ok(Step { initial, gamma, every: at_least_one("step", "every", every)? })
    }
}

impl LearningRate for Step {
    fn at(&self, step: u64) -> f64 {
        self.initial * libm::pow(self.gamma, (step / self.every) as f64)
    }
}

/// Step decay at given steps: multiplies the rate by `gamma` at each milestone, as
/// `torch.optim.lr_scheduler.MultiStepLR` does (`gamma` is 0.1 by default there).
///
/// ```
/// use kiln_optim::lr_scheduler::{LearningRate, MultiStep};
///
/// let schedule = MultiStep::new(1.0, 0.5, [30, 80])?;
/// assert_eq!([29, 30, 79, 80].map(|step| schedule.at(step)), [1.0, 0.5, 0.5, 0.25]);
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MultiStep {
    initial: f64,
    gamma: f64,
    milestones: Vec<u64>,
}

impl MultiStep {
    /// Returns the schedule `initial · gamma^n` with `n` milestones at or before the step. A milestone that occurs twice
    /// counts twice.
    ///
    /// # Errors
    /// When `initial` is negative or not finite, `gamma` is not a finite value greater than 0, or the milestones are not
    /// in increasing order.
    pub fn new(initial: f64, gamma: f64, milestones: impl Into<Vec<u64>>) -> Result<MultiStep> {
        not_negative("multi_step", "initial", initial)?;
        positive("multi_step", "gamma", gamma)?;
        let milestones = milestones.into();
        if !milestones.is_sorted() {
            let value = alloc::format!("{milestones:?}");
            return Err(OptimError::option("multi_step", "milestones", value, "in increasing order"));
        }
        Ok(MultiStep { initial, gamma, milestones })
    }
}

impl LearningRate for MultiStep {
    fn at(&self, step: u64) -> f64 {
        let passed = self.milestones.partition_point(|&milestone| milestone <= step);
        self.initial * libm::pow(self.gamma, passed as f64)
    }
}

/// Exponential decay: multiplies the rate by `gamma` at every step, as `torch.optim.lr_scheduler.ExponentialLR` does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exponential {
    initial: f64,
    gamma: f64,
}

impl Exponential {
    /// Returns the schedule `initial · gamma^step`.
    ///
    /// # Errors
    /// When `initial` is negative or not finite, or `gamma` is not a finite value greater than 0.
    pub fn new(initial: f64, gamma: f64) -> Result<Exponential> {
        not_negative("exponential", "initial", initial)?;
        Ok(Exponential { initial, gamma: positive("exponential", "gamma", gamma)? })
    }
}

impl LearningRate for Exponential {
    fn at(&self, step: u64) -> f64 {
        self.initial * libm::pow(self.gamma, step as f64)
    }
}
