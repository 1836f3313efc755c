//! Warm-up: around any schedule, before cosine annealing, and before a constant rate with a final decay.

use super::{Cosine, LearningRate};
use crate::config::{check_ranges, init};
use crate::error::{OptimError, Result, at_least_one, not_negative};
use core::f64::consts::PI;
use kiln_nn::Config;

/// Linear warm-up of another schedule: its rates in the first `steps` steps are multiplied by a factor that rises from
/// `start_factor` at step 0 to 1 at step `steps`.
///
/// The other schedule counts its steps from the start of the warm-up and receives all metrics. A
/// [`Sequential`](super::Sequential) instead starts it after the warm-up.
///
/// ```
/// use kiln_optim::lr_scheduler::{LearningRate, ReduceOnPlateauConfig, Warmup};
///
/// let mut schedule = Warmup::new(ReduceOnPlateauConfig::new(0.1).with_patience(0).init(), 0.0, 4)?;
/// assert_eq!([0, 2, 4, 9].map(|step| schedule.at(step)), [0.0, 0.05, 0.1, 0.1]);
/// schedule.observe(9, 1.0);
/// schedule.observe(10, 1.0);
/// assert!((schedule.at(10) - 0.01).abs() < 1e-15);
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Warmup<L> {
    schedule: L,
    start_factor: f64,
    steps: u64,
}

impl<L: LearningRate> Warmup<L> {
    /// Returns the schedule with a warm-up.
    ///
    /// # Errors
    /// When `start_factor` is negative or not finite, or `steps` is 0.
    pub fn new(schedule: L, start_factor: f64, steps: u64) -> Result<Warmup<L>> {
        not_negative("warmup", "start_factor", start_factor)?;
        Ok(Warmup { schedule, start_factor, steps: at_least_one("warmup", "steps", steps)? })
    }
}

impl<L: LearningRate> LearningRate for Warmup<L> {
    fn at(&self, step: u64) -> f64 {
        let rate = self.schedule.at(step);
        if step >= self.steps { rate } else { rate * ramp(self.start_factor, 1.0, step, self.steps) }
    }

    forward_state!(|this| this.schedule);
}

fn ramp(start: f64, end: f64, step: u64, steps: u64) -> f64 {
    start + (end - start) * (step as f64 / steps as f64)
}

/// Linear warm-up from `start` to `peak`, then cosine annealing to `end`
/// ([Goyal et al. 2017](https://arxiv.org/abs/1706.02677), [Loshchilov and Hutter 2017](https://arxiv.org/abs/1608.03983)).
///
/// ```
/// use kiln_optim::lr_scheduler::{LearningRate, WarmupCosine};
///
/// // 100 of 1000 steps are warm-up.
/// let schedule = WarmupCosine::new(1e-3, 100, 1000)?.with_end(1e-5)?;
/// assert_eq!([0, 50, 100, 1000].map(|step| schedule.at(step)), [0.0, 5e-4, 1e-3, 1e-5]);
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WarmupCosine {
    start: f64,
    peak: f64,
    end: f64,
    warmup_steps: u64,
    cosine_steps: u64,
}

impl WarmupCosine {
    /// Returns a schedule from 0 at step 0 over `peak` at step `warmup_steps` to 0 at step `total_steps`.
    ///
    /// # Errors
    /// When `peak` is negative or not finite, or `total_steps` is not greater than `warmup_steps`.
    pub fn new(peak: f64, warmup_steps: u64, total_steps: u64) -> Result<WarmupCosine> {
        not_negative("warmup_cosine", "peak", peak)?;
        if total_steps <= warmup_steps {
            let requirement = "greater than warmup_steps";
            return Err(OptimError::option("warmup_cosine", "total_steps", total_steps, requirement));
        }
        let cosine_steps = total_steps - warmup_steps;
        Ok(WarmupCosine { start: 0.0, peak, end: 0.0, warmup_steps, cosine_steps })
    }

    /// Sets the rate of step 0. Default: 0.
    ///
    /// # Errors
    /// When the rate is negative or not finite.
    pub fn with_start(self, start: f64) -> Result<WarmupCosine> {
        Ok(WarmupCosine { start: not_negative("warmup_cosine", "start", start)?, ..self })
    }

    /// Sets the final rate. Default: 0.
    ///
    /// # Errors
    /// When the rate is negative or not finite.
    pub fn with_end(self, end: f64) -> Result<WarmupCosine> {
        Ok(WarmupCosine { end: not_negative("warmup_cosine", "end", end)?, ..self })
    }
}

impl LearningRate for WarmupCosine {
    fn at(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            return ramp(self.start, self.peak, step, self.warmup_steps);
        }
        Cosine::fixed(self.peak, self.end, self.cosine_steps).at(step - self.warmup_steps)
    }
}

/// The shape of the final decay of [`WarmupStableDecay`]: the share of the peak rate at the fraction `x` of the decay.
#[derive(Config, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecayShape {
    /// `1 - x`.
    Linear,
    /// `(1 + cos(π x)) / 2`.
    Cosine,
    /// `1 - √x` ([Hägele et al. 2024](https://arxiv.org/abs/2405.18392)).
    OneMinusSqrt,
}

impl DecayShape {
    fn share(self, x: f64) -> f64 {
        match self {
            DecayShape::Linear => 1.0 - x,
            DecayShape::Cosine => (1.0 + libm::cos(PI * x)) / 2.0,
            DecayShape::OneMinusSqrt => 1.0 - libm::sqrt(x),
        }
    }
}

/// Options of [`WarmupStableDecay`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct WarmupStableDecayConfig {
    /// The rate after warm-up.
    #[config(range = "[0, inf)")]
    pub peak: f64,
    /// The number of steps of linear warm-up from 0.
    pub warmup_steps: u64,
    /// The number of steps at the peak rate.
    pub stable_steps: u64,
    /// The number of steps of the final decay. About 10 to 20 % of all steps are common.
    #[config(range = "[1, inf]")]
    pub decay_steps: u64,
    /// The final rate. Default: 0.
    #[config(range = "[0, inf)", default = 0.0)]
    pub end: f64,
    /// The shape of the decay. Default: `1 - √x`.
    #[config(default = DecayShape::OneMinusSqrt)]
    pub shape: DecayShape,
}

init!(WarmupStableDecayConfig, WarmupStableDecay, "schedule");

impl WarmupStableDecayConfig {
    /// Returns the schedule, or the error of an invalid option.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn try_init(&self) -> Result<WarmupStableDecay> {
        check_ranges("warmup_stable_decay", self)?;
        Ok(WarmupStableDecay { options: self.clone() })
    }
}

/// Warm-up, a long constant phase, and a short decay: WSD, from MiniCPM
/// ([Hu et al. 2024](https://arxiv.org/abs/2404.06395)). Training can continue from before the decay without a length
/// that is known in advance. Created by [`WarmupStableDecayConfig`].
///
/// ```
/// use kiln_optim::lr_scheduler::{LearningRate, WarmupStableDecayConfig};
///
/// let schedule = WarmupStableDecayConfig::new(1e-3, 10, 80, 10).init();
/// assert_eq!([0, 10, 90, 100].map(|step| schedule.at(step)), [0.0, 1e-3, 1e-3, 0.0]);
/// ```
#[doc(alias = "wsd")]
#[derive(Clone, Debug, PartialEq)]
pub struct WarmupStableDecay {
    options: WarmupStableDecayConfig,
}

impl LearningRate for WarmupStableDecay {
    fn at(&self, step: u64) -> f64 {
        let WarmupStableDecayConfig { peak, warmup_steps, stable_steps, decay_steps, end, shape } =
            self.options;
        if step < warmup_steps {
            return ramp(0.0, peak, step, warmup_steps);
        }
        let decayed = (step - warmup_steps).saturating_sub(stable_steps);
        match decayed >= decay_steps {
            true => end,
            false => end + (peak - end) * shape.share(decayed as f64 / decay_steps as f64),
        }
    }
}
