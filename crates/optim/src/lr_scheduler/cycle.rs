//! Cyclical schedules.

use super::LearningRate;
use crate::config::{check_ranges, init};
use crate::error::Result;
use core::f64::consts::PI;
use kiln_nn::Config;

/// The shape of an interpolation between two rates.
#[derive(Config, Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnealStrategy {
    /// Half a period of a cosine.
    Cosine,
    /// A straight line.
    Linear,
}

impl AnnealStrategy {
    /// Returns the share of the end value at a position in `[0, 1]`.
    pub(super) fn share(self, position: f64) -> f64 {
        match self {
            AnnealStrategy::Cosine => (1.0 - libm::cos(PI * position)) / 2.0,
            AnnealStrategy::Linear => position,
        }
    }
}

/// Options of [`OneCycle`], with the defaults of `torch.optim.lr_scheduler.OneCycleLR`.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct OneCycleConfig {
    /// The greatest rate.
    #[config(range = "[0, inf)")]
    pub max_lr: f64,
    /// The number of steps.
    #[config(range = "[1, inf]")]
    pub total_steps: u64,
    /// The fraction of the steps in which the rate rises. Default: 0.3.
    #[config(range = "[0, 1]", default = 0.3)]
    pub pct_start: f64,
    /// The shape of rise and fall. Default: cosine.
    #[config(default = AnnealStrategy::Cosine)]
    pub anneal_strategy: AnnealStrategy,
    /// The initial rate is `max_lr / div_factor`. Default: 25.
    #[config(range = "(0, inf)", default = 25.0)]
    pub div_factor: f64,
    /// The final rate is `max_lr / div_factor / final_div_factor`. Default: 10000.
    #[config(range = "(0, inf)", default = 1e4)]
    pub final_div_factor: f64,
    /// Whether the fall to the initial rate takes as many steps as the rise, and a third phase falls to the final rate.
    /// Otherwise one phase falls from the greatest to the final rate. Default: no.
    #[config(default = false)]
    pub three_phase: bool,
    /// Whether the momentum cycles inversely to the rate, between `max_momentum` and `base_momentum`: that of
    /// [`Optimizer::set_momentum`](crate::Optimizer::set_momentum). Default: no (PyTorch: yes).
    #[config(default = false)]
    pub cycle_momentum: bool,
    /// The momentum at the greatest rate. Default: 0.85.
    #[config(range = "[0, 1)", default = 0.85)]
    pub base_momentum: f64,
    /// The momentum at the least rate. Default: 0.95.
    #[config(range = "[0, 1)", default = 0.95)]
    pub max_momentum: f64,
}

init!(OneCycleConfig, OneCycle, "schedule");

impl OneCycleConfig {
    /// Returns the schedule, or the error of an invalid option.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn try_init(&self) -> Result<OneCycle> {
        check_ranges("one_cycle", self)?;
        let (peak, last) = (self.max_lr, self.total_steps - 1);
        let initial = peak / self.div_factor;
        let end = initial / self.final_div_factor;
        let (low, high) = (self.base_momentum, self.max_momentum);
        let rise = self.pct_start * self.total_steps as f64;
        let first = Phase { end: rise - 1.0, rate: [initial, peak], momentum: [high, low] };
        let last_step = last as f64;
        let (middle, fall) = match self.three_phase {
            true => (
                Phase { end: 2.0 * rise - 2.0, rate: [peak, initial], momentum: [low, high] },
                Phase { end: last_step, rate: [initial, end], momentum: [high, high] },
            ),
            false => (
                Phase { end: first.end, rate: [peak, peak], momentum: [low, low] },
                Phase { end: last_step, rate: [peak, end], momentum: [low, high] },
            ),
        };
        let phases = [first, middle, fall];
        Ok(OneCycle { phases, last, anneal: self.anneal_strategy, cycles_momentum: self.cycle_momentum })
    }
}

/// The 1cycle policy ([Smith and Topin 2018](https://arxiv.org/abs/1708.07120)): the rate rises to a maximum, then falls
/// far below its initial value. Created by [`OneCycleConfig`].
///
/// The formula is that of `torch.optim.lr_scheduler.OneCycleLR`. After the last step the rate stays at its final value.
/// With [`cycle_momentum`](OneCycleConfig::cycle_momentum) the momentum falls while the rate rises; see
/// [`momentum_at`](LearningRate::momentum_at).
///
/// ```
/// use kiln_optim::lr_scheduler::{LearningRate, OneCycleConfig};
///
/// let schedule = OneCycleConfig::new(0.1, 100).init();
/// assert_eq!((schedule.at(0), schedule.at(29)), (0.1 / 25.0, 0.1));
/// assert!((schedule.at(99) - 0.1 / 25.0 / 1e4).abs() < 1e-15);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct OneCycle {
    phases: [Phase; 3],
    last: u64,
    anneal: AnnealStrategy,
    cycles_momentum: bool,
}

/// A part of a cycle that begins where the previous one ends.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Phase {
    /// The last step, a fraction.
    end: f64,
    /// The rates at its start and end.
    rate: [f64; 2],
    /// The momenta at its start and end.
    momentum: [f64; 2],
}

impl OneCycle {
    /// The phase of a step, and the share of its end.
    fn place(&self, step: u64) -> (Phase, f64) {
        let step = step.min(self.last) as f64;
        let [first, middle, last] = self.phases;
        let (start, phase) = match () {
            () if step <= first.end => (0.0, first),
            () if step <= middle.end => (first.end, middle),
            () => (middle.end, last),
        };
        let length = phase.end - start;
        let position = if length > 0.0 { (step - start) / length } else { 1.0 };
        (phase, self.anneal.share(position))
    }
}

impl LearningRate for OneCycle {
    fn at(&self, step: u64) -> f64 {
        let (phase, share) = self.place(step);
        between(phase.rate, share)
    }

    fn momentum_at(&self, step: u64) -> Option<f64> {
        let (phase, share) = self.place(step);
        self.cycles_momentum.then(|| between(phase.momentum, share))
    }
}

fn between([from, to]: [f64; 2], share: f64) -> f64 {
    from + (to - from) * share
}

/// The change of a [`Cyclic`] schedule's amplitude.
#[derive(Config, Clone, Copy, Debug, PartialEq, Eq)]
pub enum CyclicMode {
    /// Constant.
    Triangular,
    /// Halved after each cycle.
    Triangular2,
    /// Multiplied by `gamma` at each step.
    ExpRange,
}

/// Options of [`Cyclic`], with the defaults of `torch.optim.lr_scheduler.CyclicLR`.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct CyclicConfig {
    /// The rate at the start of each cycle.
    #[config(range = "[0, inf)")]
    pub base_lr: f64,
    /// The greatest rate of the first cycle.
    #[config(range = "[0, inf)")]
    pub max_lr: f64,
    /// The number of steps in which the rate rises. Default: 2000.
    #[config(range = "[1, inf]", default = 2000)]
    pub step_size_up: u64,
    /// The number of steps in which the rate falls. Default: `step_size_up`.
    #[config(range = "[1, inf]")]
    pub step_size_down: Option<u64>,
    /// The change of the amplitude. Default: triangular.
    #[config(default = CyclicMode::Triangular)]
    pub mode: CyclicMode,
    /// The factor of [`CyclicMode::ExpRange`]. Default: 1.
    #[config(range = "(0, inf)", default = 1.0)]
    pub gamma: f64,
    /// Whether the momentum cycles inversely to the rate, between `max_momentum` and `base_momentum`: that of
    /// [`Optimizer::set_momentum`](crate::Optimizer::set_momentum). Default: no (PyTorch: yes).
    #[config(default = false)]
    pub cycle_momentum: bool,
    /// The momentum at the greatest rate of the first cycle. Default: 0.8.
    #[config(range = "[0, 1)", default = 0.8)]
    pub base_momentum: f64,
    /// The momentum at the least rate. Default: 0.9.
    #[config(range = "[0, 1)", default = 0.9)]
    pub max_momentum: f64,
}

init!(CyclicConfig, Cyclic, "schedule");

impl CyclicConfig {
    /// Returns the schedule, or the error of an invalid option.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn try_init(&self) -> Result<Cyclic> {
        check_ranges("cyclic", self)?;
        Ok(Cyclic {
            base: self.base_lr,
            max: self.max_lr,
            up: self.step_size_up,
            down: self.step_size_down.unwrap_or(self.step_size_up),
            mode: self.mode,
            gamma: self.gamma,
            momentum: self.cycle_momentum.then_some([self.max_momentum, self.base_momentum]),
        })
    }
}

/// A cyclical learning rate ([Smith 2017](https://arxiv.org/abs/1506.01186)): rises and falls linearly between two
/// bounds. Created by [`CyclicConfig`].
///
/// The formula is that of `torch.optim.lr_scheduler.CyclicLR`. With [`cycle_momentum`](CyclicConfig::cycle_momentum) the
/// momentum falls while the rate rises; see [`momentum_at`](LearningRate::momentum_at).
///
/// ```
/// use kiln_optim::lr_scheduler::{Cyclic, CyclicConfig, CyclicMode, LearningRate};
///
/// let schedule: Cyclic = CyclicConfig::new(0.0, 1.0).with_step_size_up(2).with_mode(CyclicMode::Triangular2).init();
/// assert_eq!([0, 1, 2, 3, 4, 6].map(|step| schedule.at(step)), [0.0, 0.5, 1.0, 0.5, 0.0, 0.5]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Cyclic {
    base: f64,
    max: f64,
    up: u64,
    down: u64,
    mode: CyclicMode,
    gamma: f64,
    /// The momenta at the least and the greatest rate.
    momentum: Option<[f64; 2]>,
}

impl Cyclic {
    /// The value of a step that rises and falls between two values.
    fn value(&self, [base, peak]: [f64; 2], step: u64) -> f64 {
        let total = self.up.saturating_add(self.down);
        let (cycle, place) = (step / total, step % total);
        let height = match place <= self.up {
            true => place as f64 / self.up as f64,
            false => (total - place) as f64 / self.down as f64,
        };
        let scale = match self.mode {
            CyclicMode::Triangular => 1.0,
            CyclicMode::Triangular2 => libm::pow(0.5, cycle as f64),
            CyclicMode::ExpRange => libm::pow(self.gamma, step as f64),
        };
        base + (peak - base) * height * scale
    }
}

impl LearningRate for Cyclic {
    fn at(&self, step: u64) -> f64 {
        self.value([self.base, self.max], step)
    }

    fn momentum_at(&self, step: u64) -> Option<f64> {
        Some(self.value(self.momentum?, step))
    }
}
