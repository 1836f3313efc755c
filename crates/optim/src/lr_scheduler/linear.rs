//! Linear and polynomial interpolation.

pub use super::config::{LinearLrScheduler, LinearLrSchedulerConfig};

use super::LearningRate;
use crate::error::{Result, at_least_one, not_negative, positive};

/// Linear interpolation from `start` to `end` over a number of steps, then `end`: warm-up or decay.
///
/// `torch.optim.lr_scheduler.LinearLR` with rate `r` is `Linear::new(r * start_factor, r * end_factor, total_iters)`;
/// its defaults are 1/3, 1 and 5.
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

/// Polynomial decay: `end + (start - end) (1 - step / steps)^power`, then `end`.
///
/// The formula is that of `torch.optim.lr_scheduler.PolynomialLR`, where `end` is 0, `steps` is `total_iters` (default
/// 5) and `power` is 1 by default.
///
/// ```
/// use kiln_optim::lr_scheduler::{LearningRate, Polynomial};
///
/// let schedule = Polynomial::new(0.4, 0.0, 4, 2.0)?;
/// assert_eq!([0, 2, 4, 9].map(|step| schedule.at(step)), [0.4, 0.1, 0.0, 0.0]);
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Polynomial {
    start: f64,
    end: f64,
    steps: u64,
    power: f64,
}

impl Polynomial {
    /// Returns a schedule from `start` at step 0 to `end` at step `steps`.
    ///
    /// # Errors
    /// When a rate is negative or not finite, `steps` is 0, or `power` is not a finite number greater than 0.
    pub fn new(start: f64, end: f64, steps: u64, power: f64) -> Result<Polynomial> {
        not_negative("polynomial", "start", start)?;
        not_negative("polynomial", "end", end)?;
        let steps = at_least_one("polynomial", "steps", steps)?;
        Ok(Polynomial { start, end, steps, power: positive("polynomial", "power", power)? })
    }
}

impl LearningRate for Polynomial {
    fn at(&self, step: u64) -> f64 {
        if step >= self.steps {
            return self.end;
        }
        let rest = 1.0 - step as f64 / self.steps as f64;
        self.end + (self.start - self.end) * libm::pow(rest, self.power)
    }
}
