//! Reduction on a plateau of a metric.

use super::{LearningRate, ScheduleState};
use crate::config::{check_ranges, init};
use crate::error::{OptimError, Result, not_negative};
use kiln_nn::Config;

const NAME: &str = "reduce_on_plateau";

/// The direction in which a metric improves.
#[derive(Config, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlateauMode {
    /// Lower is better, as for a loss.
    Min,
    /// Higher is better, as for an accuracy.
    Max,
}

/// The meaning of the threshold of [`ReduceOnPlateauConfig`].
#[derive(Config, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdMode {
    /// An improvement is a value below `best (1 - threshold)`, or above `best (1 + threshold)`.
    Relative,
    /// An improvement is a value below `best - threshold`, or above `best + threshold`.
    Absolute,
}

/// Options of [`ReduceOnPlateau`], with the defaults of `torch.optim.lr_scheduler.ReduceLROnPlateau`.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct ReduceOnPlateauConfig {
    /// The initial rate.
    #[config(range = "[0, inf)")]
    pub initial_lr: f64,
    /// The direction in which the metric improves. Default: min.
    #[config(default = PlateauMode::Min)]
    pub mode: PlateauMode,
    /// The factor of the rate. Default: 0.1.
    #[config(range = "[0, 1)", default = 0.1)]
    pub factor: f64,
    /// The number of metrics without improvement that do not reduce the rate. Default: 10.
    #[config(default = 10)]
    pub patience: u64,
    /// The least change that is an improvement. Default: 1e-4.
    #[config(range = "[0, inf)", default = 1e-4)]
    pub threshold: f64,
    /// The meaning of the threshold. Default: relative.
    #[config(default = ThresholdMode::Relative)]
    pub threshold_mode: ThresholdMode,
    /// The number of metrics after a reduction that do not count as without improvement. Default: 0.
    #[config(default = 0)]
    pub cooldown: u64,
    /// The lower bound of the rate. Default: 0.
    #[config(range = "[0, inf)", default = 0.0)]
    pub min_lr: f64,
    /// The rate does not change if it would change by at most this. Default: 1e-8.
    #[config(range = "[0, inf)", default = 1e-8)]
    pub epsilon: f64,
}

init!(ReduceOnPlateauConfig, ReduceOnPlateau, "schedule");

impl ReduceOnPlateauConfig {
    /// Returns the schedule, or the error of an invalid option.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn try_init(&self) -> Result<ReduceOnPlateau> {
        check_ranges(NAME, self)?;
        let best = match self.mode {
            PlateauMode::Min => f64::INFINITY,
            PlateauMode::Max => f64::NEG_INFINITY,
        };
        let progress = Progress { learning_rate: self.initial_lr, best, num_bad: 0, cooldown: 0 };
        Ok(ReduceOnPlateau { options: self.clone(), progress })
    }
}

/// Multiplies the rate by a factor when a metric has not improved for a number of
/// [observations](LearningRate::observe). Created by [`ReduceOnPlateauConfig`].
///
/// The algorithm is that of `torch.optim.lr_scheduler.ReduceLROnPlateau`. A NaN is no improvement. A
/// [`Scheduler`](super::Scheduler) passes metrics by [`observe`](super::Scheduler::observe); a learner passes the
/// validation loss after each epoch.
///
/// ```
/// use kiln_optim::lr_scheduler::{LearningRate, ReduceOnPlateauConfig};
///
/// let mut schedule = ReduceOnPlateauConfig::new(0.4).with_factor(0.5).with_patience(0).init();
/// for (step, loss) in [2.0, 1.0, 1.0, 1.5].into_iter().enumerate() {
///     schedule.observe(step as u64, loss);
/// }
/// assert_eq!(schedule.at(4), 0.1);
/// ```
///
/// With rate 1 it is a factor of another schedule in a [`Composed`](super::Composed) product.
#[derive(Clone, Debug, PartialEq)]
pub struct ReduceOnPlateau {
    options: ReduceOnPlateauConfig,
    progress: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Progress {
    learning_rate: f64,
    best: f64,
    /// The number of metrics without improvement since the last improvement or reduction.
    num_bad: u64,
    /// The remaining number of metrics that are ignored.
    cooldown: u64,
}

impl ReduceOnPlateau {
    fn is_better(&self, metric: f64) -> bool {
        let ReduceOnPlateauConfig { mode, threshold, threshold_mode, .. } = self.options;
        let best = self.progress.best;
        match (mode, threshold_mode) {
            (PlateauMode::Min, ThresholdMode::Relative) => metric < best * (1.0 - threshold),
            (PlateauMode::Min, ThresholdMode::Absolute) => metric < best - threshold,
            (PlateauMode::Max, ThresholdMode::Relative) => metric > best * (1.0 + threshold),
            (PlateauMode::Max, ThresholdMode::Absolute) => metric > best + threshold,
        }
    }

    fn reduce(&mut self) {
        let ReduceOnPlateauConfig { factor, min_lr, epsilon, cooldown, .. } = self.options;
        let Progress { learning_rate, .. } = self.progress;
        let reduced = (learning_rate * factor).max(min_lr);
        if learning_rate - reduced > epsilon {
            self.progress.learning_rate = reduced;
        }
        self.progress.cooldown = cooldown;
        self.progress.num_bad = 0;
    }
}

impl LearningRate for ReduceOnPlateau {
    fn at(&self, _step: u64) -> f64 {
        self.progress.learning_rate
    }

    fn observe(&mut self, _step: u64, metric: f64) {
        if self.is_better(metric) {
            self.progress.best = metric;
            self.progress.num_bad = 0;
        } else {
            self.progress.num_bad += 1;
        }
        if self.progress.cooldown > 0 {
            self.progress.cooldown -= 1;
            self.progress.num_bad = 0;
        }
        if self.progress.num_bad > self.options.patience {
            self.reduce();
        }
    }

    fn state(&self) -> ScheduleState {
        let Progress { learning_rate, best, num_bad, cooldown } = self.progress;
        ScheduleState::new()
            .with_value("learning_rate", learning_rate)
            .with_value("best", best)
            .with_value("num_bad_epochs", num_bad as f64)
            .with_value("cooldown_counter", cooldown as f64)
    }

    fn load_state(&mut self, state: &ScheduleState) -> Result<()> {
        let learning_rate = state.require(NAME, "learning_rate")?;
        if not_negative(NAME, "learning_rate", learning_rate).is_err() {
            let problem = alloc::format!("the learning rate of the state is {learning_rate}");
            return Err(OptimError::schedule_state(NAME, problem));
        }
        let best = state.require(NAME, "best")?;
        let num_bad = count(state, "num_bad_epochs")?;
        self.progress =
            Progress { learning_rate, best, num_bad, cooldown: count(state, "cooldown_counter")? };
        Ok(())
    }
}

fn count(state: &ScheduleState, name: &str) -> Result<u64> {
    let value = state.require(NAME, name)?;
    if value >= 0.0 && libm::trunc(value) == value {
        return Ok(value as u64);
    }
    Err(OptimError::schedule_state(
        NAME,
        alloc::format!("`{name}` of the state is {value}, expected a count"),
    ))
}
