//! Schedules from closures.

use super::LearningRate;
use crate::error::{Result, not_negative};
use core::fmt;
use spin::Mutex;

/// A rate times a function of the step: `initial · f(step)`, as `torch.optim.lr_scheduler.LambdaLR` computes.
///
/// ```
/// use kiln_optim::lr_scheduler::{Lambda, LearningRate};
///
/// let schedule = Lambda::new(0.1, |step| 1.0 / (1.0 + step as f64))?;
/// assert_eq!([0, 1, 3].map(|step| schedule.at(step)), [0.1, 0.05, 0.025]);
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Clone)]
pub struct Lambda<F> {
    initial: f64,
    factor: F,
}

impl<F: Fn(u64) -> f64 + Send + Sync> Lambda<F> {
    /// Returns the schedule `initial · factor(step)`. An optimizer rejects rates that are negative or not finite.
    ///
    /// # Errors
    /// When `initial` is negative or not finite.
    pub fn new(initial: f64, factor: F) -> Result<Lambda<F>> {
        Ok(Lambda { initial: not_negative("lambda", "initial", initial)?, factor })
    }
}

impl<F: Fn(u64) -> f64 + Send + Sync> LearningRate for Lambda<F> {
    fn at(&self, step: u64) -> f64 {
        self.initial * (self.factor)(step)
    }
}

impl<F> fmt::Debug for Lambda<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lambda").field("initial", &self.initial).finish_non_exhaustive()
    }
}

/// A product of factors: `initial · f(1) · f(2) ⋯ f(step)`, as `torch.optim.lr_scheduler.MultiplicativeLR` computes.
///
/// The function must return the same factor for the same step. The product of the latest step is cached, so that a
/// step calls the function once.
///
/// ```
/// use kiln_optim::lr_scheduler::{LearningRate, Multiplicative};
///
/// let schedule = Multiplicative::new(1.0, |step| if step % 10 == 0 { 0.5 } else { 1.0 })?;
/// assert_eq!([0, 9, 10, 20].map(|step| schedule.at(step)), [1.0, 1.0, 0.5, 0.25]);
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
pub struct Multiplicative<F> {
    initial: f64,
    factor: F,
    /// A step and its rate.
    latest: Mutex<(u64, f64)>,
}

impl<F: Fn(u64) -> f64 + Send + Sync> Multiplicative<F> {
    /// Returns the schedule. An optimizer rejects rates that are negative or not finite.
    ///
    /// # Errors
    /// When `initial` is negative or not finite.
    pub fn new(initial: f64, factor: F) -> Result<Multiplicative<F>> {
        not_negative("multiplicative", "initial", initial)?;
        Ok(Multiplicative { initial, factor, latest: Mutex::new((0, initial)) })
    }
}

impl<F: Fn(u64) -> f64 + Send + Sync> LearningRate for Multiplicative<F> {
    fn at(&self, step: u64) -> f64 {
        let latest = *self.latest.lock();
        let (known, rate) = if latest.0 <= step { latest } else { (0, self.initial) };
        // The order of the factors does not depend on the cache, so that results are equal bit for bit.
        let rate = (known + 1..=step).fold(rate, |rate, step| rate * (self.factor)(step));
        *self.latest.lock() = (step, rate);
        rate
    }
}

impl<F: Clone> Clone for Multiplicative<F> {
    fn clone(&self) -> Multiplicative<F> {
        let latest = Mutex::new(*self.latest.lock());
        Multiplicative { initial: self.initial, factor: self.factor.clone(), latest }
    }
}

impl<F> fmt::Debug for Multiplicative<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multiplicative").field("initial", &self.initial).finish_non_exhaustive()
    }
}
