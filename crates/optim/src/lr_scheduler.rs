//! Learning-rate schedules.
//!
//! A [`LearningRate`] is a function of the step index, so resuming from a checkpoint needs only that index.
//!
//! ```
//! use kiln_optim::lr_scheduler::{Cosine, LearningRate, Linear, Sequential};
//!
//! // 100 steps of warm-up, then cosine decay over 900 steps.
//! let schedule = Sequential::new()
//!     .then(Linear::new(0.0, 1e-3, 100)?, 100)
//!     .finally(Cosine::new(1e-3, 1e-5, 900)?);
//! assert_eq!(schedule.at(0), 0.0);
//! assert_eq!(schedule.at(50), 5e-4);
//! assert_eq!(schedule.at(100), 1e-3);
//! assert_eq!(schedule.at(5000), 1e-5);
//! # Ok::<(), kiln_optim::OptimError>(())
//! ```

use crate::error::{OptimError, Result, not_negative, positive};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::f64::consts::PI;
use core::fmt::Debug;

/// A learning-rate schedule: the rate of each step. A plain `f64` is a constant rate.
pub trait LearningRate: Debug + Send + Sync {
    /// Returns the learning rate of step `step`, counted from 0.
    fn at(&self, step: u64) -> f64;
}

impl LearningRate for f64 {
    fn at(&self, _step: u64) -> f64 {
        *self
    }
}

impl<L: LearningRate + ?Sized> LearningRate for Box<L> {
    fn at(&self, step: u64) -> f64 {
        (**self).at(step)
    }
}

impl<L: LearningRate + ?Sized> LearningRate for Arc<L> {
    fn at(&self, step: u64) -> f64 {
        (**self).at(step)
    }
}

/// A constant learning rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constant(f64);

impl Constant {
    /// Returns a schedule with a constant rate.
    ///
    /// # Errors
    /// When the rate is negative or not finite.
    pub fn new(rate: f64) -> Result<Constant> {
        not_negative("constant", "the learning rate", rate).map(Constant)
    }
}

impl LearningRate for Constant {
    fn at(&self, _step: u64) -> f64 {
        self.0
    }
}

/// Linear interpolation from `start` to `end` over a number of steps, then `end`: warm-up or decay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    start: f64,
    end: f64,
    steps: u64,
}

impl Linear {
    /// Returns a schedule from `start` at step 0 to `end` at step `steps`.
    ///
    /// # Errors
    /// When a rate is negative or not finite, or `steps` is 0.
    pub fn new(start: f64, end: f64, steps: u64) -> Result<Linear> {
        not_negative("linear", "start", start)?;
        not_negative("linear", "end", end)?;
        Ok(Linear { start, end, steps: at_least_one("linear", "steps", steps)? })
    }
}

impl LearningRate for Linear {
    fn at(&self, step: u64) -> f64 {
        if step >= self.steps {
            return self.end;
        }
        self.start + (self.end - self.start) * (step as f64 / self.steps as f64)
    }
}

/// Cosine annealing from `start` to `end` over a number of steps, then `end`
/// ([Loshchilov and Hutter 2017](https://arxiv.org/abs/1608.03983), without restarts).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cosine {
    start: f64,
    end: f64,
    steps: u64,
}

impl Cosine {
    /// Returns a schedule from `start` at step 0 to `end` at step `steps`.
    ///
    /// # Errors
    /// When a rate is negative or not finite, or `steps` is 0.
    pub fn new(start: f64, end: f64, steps: u64) -> Result<Cosine> {
        not_negative("cosine", "start", start)?;
        not_negative("cosine", "end", end)?;
        Ok(Cosine { start, end, steps: at_least_one("cosine", "steps", steps)? })
    }
}

impl LearningRate for Cosine {
    fn at(&self, step: u64) -> f64 {
        match step {
            0 => self.start,
            step if step >= self.steps => self.end,
            step => {
                let wave = libm::cos(PI * step as f64 / self.steps as f64);
                self.end + (self.start - self.end) * (1.0 + wave) / 2.0
            }
        }
    }
}

/// Step decay: multiplies the rate by `gamma` every `every` steps.
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

/// Exponential decay: multiplies the rate by `gamma` at every step.
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

/// Runs schedules in sequence; each counts its steps from 0.
#[derive(Debug, Default)]
pub struct Sequential {
    parts: Vec<(u64, Box<dyn LearningRate>)>,
}

impl Sequential {
    /// Returns an empty sequence: a rate of 0.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// Adds a schedule for a number of steps. The last schedule continues beyond its steps.
    #[must_use]
    pub fn then(mut self, schedule: impl LearningRate + 'static, steps: u64) -> Sequential {
        self.parts.push((steps, Box::new(schedule)));
        self
    }

    /// Adds a schedule for all steps that follow.
    #[must_use]
    pub fn finally(self, schedule: impl LearningRate + 'static) -> Sequential {
        self.then(schedule, u64::MAX)
    }
}

impl LearningRate for Sequential {
    fn at(&self, step: u64) -> f64 {
        let mut local = step;
        for (place, (steps, schedule)) in self.parts.iter().enumerate() {
            if local < *steps || place + 1 == self.parts.len() {
                return schedule.at(local);
            }
            local -= steps;
        }
        0.0
    }
}

/// A scheduler that counts the steps, for manual training loops.
///
/// ```
/// use kiln_optim::lr_scheduler::{Exponential, Scheduler};
///
/// let mut scheduler = Scheduler::new(Exponential::new(1.0, 0.5)?);
/// assert_eq!([scheduler.step(), scheduler.step(), scheduler.step()], [1.0, 0.5, 0.25]);
///
/// // Resume from a checkpoint.
/// let mut resumed = Scheduler::new(Exponential::new(1.0, 0.5)?);
/// resumed.load_state(scheduler.state());
/// assert_eq!(resumed.step(), 0.125);
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Scheduler<L> {
    schedule: L,
    next: u64,
}

impl<L: LearningRate> Scheduler<L> {
    /// Returns a scheduler at step 0.
    pub fn new(schedule: L) -> Scheduler<L> {
        Scheduler { schedule, next: 0 }
    }

    /// Returns the rate of the current step and advances to the next step.
    pub fn step(&mut self) -> f64 {
        self.next += 1;
        self.schedule.at(self.next - 1)
    }

    /// Returns the index of the next step.
    pub fn state(&self) -> u64 {
        self.next
    }

    /// Sets the index of the next step.
    pub fn load_state(&mut self, next: u64) {
        self.next = next;
    }
}

fn at_least_one(owner: &'static str, option: &'static str, value: u64) -> Result<u64> {
    if value == 0 { Err(OptimError::option(owner, option, value, "at least 1")) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_and_cosine_schedules_reach_their_bounds() {
        let line = Linear::new(1.0, 0.0, 4).unwrap();
        assert_eq!([0, 1, 2, 3, 4, 99].map(|step| line.at(step)), [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]);
        let wave = Cosine::new(1.0, 0.1, 10).unwrap();
        assert_eq!(wave.at(0), 1.0);
        assert!((wave.at(5) - 0.55).abs() < 1e-12);
        assert_eq!(wave.at(10), 0.1);
    }

    #[test]
    fn step_exponential_and_constant_schedules() {
        let steps = Step::new(1.0, 0.5, 3).unwrap();
        assert_eq!([0, 2, 3, 5, 6].map(|step| steps.at(step)), [1.0, 1.0, 0.5, 0.5, 0.25]);
        assert_eq!(Exponential::new(2.0, 0.5).unwrap().at(3), 0.25);
        assert_eq!(Constant::new(0.3).unwrap().at(7), 0.3);
        assert_eq!(0.3.at(7), 0.3);
    }

    #[test]
    fn sequential_schedules_restart_their_step_count() {
        let schedule = Sequential::new()
            .then(Linear::new(0.0, 1.0, 2).unwrap(), 2)
            .then(Constant::new(1.0).unwrap(), 3)
            .finally(Exponential::new(1.0, 0.5).unwrap());
        let rates: Vec<f64> = (0..8).map(|step| schedule.at(step)).collect();
        assert_eq!(rates, [0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 0.5, 0.25]);
        let last_goes_on = Sequential::new().then(Linear::new(1.0, 0.0, 2).unwrap(), 1);
        assert_eq!(last_goes_on.at(2), 0.0);
        assert_eq!(Sequential::new().at(3), 0.0);
    }

    #[test]
    fn errors_name_options_out_of_range() {
        let error = Linear::new(0.1, f64::NAN, 3).unwrap_err();
        assert_eq!(
            alloc::format!("{error}"),
            "[linear] end is NaN\n  hint: it must be a finite number of at least 0"
        );
        assert!(Linear::new(0.1, 0.0, 0).is_err());
        assert!(Cosine::new(-1.0, 0.0, 3).is_err());
        assert!(Step::new(1.0, 0.0, 3).is_err());
        assert!(Exponential::new(f64::INFINITY, 0.5).is_err());
        assert!(Constant::new(-0.1).is_err());
    }
}
