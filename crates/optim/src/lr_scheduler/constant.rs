//! A constant rate.

pub use super::config::ConstantLr;

use super::LearningRate;
use crate::error::{Result, not_negative};

/// A constant learning rate, optionally with another rate at the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constant {
    rate: f64,
    factor: f64,
    steps: u64,
}

impl Constant {
    /// Returns a schedule with a constant rate.
    ///
    /// # Errors
    /// When the rate is negative or not finite.
    pub fn new(rate: f64) -> Result<Constant> {
        Ok(Constant { rate: not_negative("constant", "the learning rate", rate)?, factor: 1.0, steps: 0 })
    }

    /// Multiplies the rate of the first `steps` steps by `factor`, as `torch.optim.lr_scheduler.ConstantLR` does. Its
    /// defaults are 1/3 and 5.
    ///
    /// ```
    /// use kiln_optim::lr_scheduler::{Constant, LearningRate};
    ///
    /// let schedule = Constant::new(0.1)?.with_factor(0.5, 2)?;
    /// assert_eq!([0, 1, 2].map(|step| schedule.at(step)), [0.05, 0.05, 0.1]);
    /// # Ok::<(), kiln_optim::OptimError>(())
    /// ```
    ///
    /// # Errors
    /// When the factor is negative or not finite.
    pub fn with_factor(self, factor: f64, steps: u64) -> Result<Constant> {
        Ok(Constant { factor: not_negative("constant", "factor", factor)?, steps, ..self })
    }
}

impl LearningRate for Constant {
    fn at(&self, step: u64) -> f64 {
        if step < self.steps { self.rate * self.factor } else { self.rate }
    }
}
