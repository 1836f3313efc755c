//! Configurations with Burn's names. Each `init` returns a [`Scheduler`].

use super::{
    Composed, Cosine, Exponential, LearningRate, Linear, Noam, Repeat, Scheduler, SchedulerReduction,
    Sequential, Step,
};
use crate::error::{OptimError, Result, at_least_one};
use alloc::boxed::Box;
use alloc::vec::Vec;
use kiln_nn::Config;

/// A scheduler that returns the rates of successive steps, for code that is generic over it.
///
/// ```
/// use kiln_optim::lr_scheduler::{Linear, LrScheduler, Scheduler};
///
/// fn last(mut scheduler: impl LrScheduler, steps: usize) -> f64 {
///     (0..steps).fold(0.0, |_, _| scheduler.step())
/// }
///
/// assert_eq!(last(Scheduler::new(Linear::new(1.0, 0.0, 4)?), 3), 0.5);
/// assert_eq!(last(0.1, 3), 0.1);
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
pub trait LrScheduler: Send + Sync {
    /// Returns the rate of the current step and advances to the next step.
    fn step(&mut self) -> f64;
}

impl<L: LearningRate> LrScheduler for Scheduler<L> {
    fn step(&mut self) -> f64 {
        Scheduler::step(self)
    }
}

impl LrScheduler for ConstantLr {
    fn step(&mut self) -> f64 {
        self.lr
    }
}

impl LrScheduler for f64 {
    fn step(&mut self) -> f64 {
        *self
    }
}

/// A constant learning rate. [`Constant`](super::Constant) is the same with a checked rate.
///
/// ```
/// use kiln_optim::lr_scheduler::ConstantLr;
///
/// assert_eq!(ConstantLr::new(0.1).step(), 0.1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConstantLr {
    lr: f64,
}

impl ConstantLr {
    /// Returns a schedule with a constant rate. An optimizer rejects a rate that is negative or not finite.
    pub fn new(lr: f64) -> ConstantLr {
        ConstantLr { lr }
    }

    /// Returns the rate.
    pub fn step(&mut self) -> f64 {
        self.lr
    }
}

impl From<f64> for ConstantLr {
    fn from(lr: f64) -> ConstantLr {
        ConstantLr { lr }
    }
}

impl LearningRate for ConstantLr {
    fn at(&self, _step: u64) -> f64 {
        self.lr
    }
}

/// The scheduler of [`LinearLrSchedulerConfig`].
pub type LinearLrScheduler = Scheduler<Linear>;

/// Options of a [`Linear`] schedule.
///
/// ```
/// use kiln_optim::lr_scheduler::LinearLrSchedulerConfig;
///
/// let mut scheduler = LinearLrSchedulerConfig::new(0.5, 0.1, 2).init()?;
/// assert_eq!([scheduler.step(), scheduler.step(), scheduler.step()], [0.5, 0.3, 0.1]);
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct LinearLrSchedulerConfig {
    /// The rate of the first step: finite and at least 0.
    pub initial_lr: f64,
    /// The final rate: finite and at least 0.
    pub final_lr: f64,
    /// The number of steps before the final rate: at least 1.
    pub num_iters: usize,
}

/// The scheduler of [`CosineAnnealingLrSchedulerConfig`].
pub type CosineAnnealingLrScheduler = Scheduler<Repeat<Cosine>>;

/// Options of [`Cosine`] annealing with restarts: the rates fall from `initial_lr` to `min_lr` in `num_iters + 1` steps,
/// again and again. [`CosineWarmRestarts`](super::CosineWarmRestarts) restarts as PyTorch does.
///
/// ```
/// use kiln_optim::lr_scheduler::CosineAnnealingLrSchedulerConfig;
///
/// let mut scheduler = CosineAnnealingLrSchedulerConfig::new(0.5, 2).with_min_lr(0.1).init()?;
/// let rates: Vec<f64> = (0..4).map(|_| scheduler.step()).collect();
/// assert_eq!([rates[0], rates[2], rates[3]], [0.5, 0.1, 0.5]);
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct CosineAnnealingLrSchedulerConfig {
    /// The greatest rate: finite and at least 0.
    pub initial_lr: f64,
    /// The least rate: finite and at least 0. Default: 0.
    #[config(default = 0.0)]
    pub min_lr: f64,
    /// The number of steps from the greatest to the least rate: at least 1.
    pub num_iters: usize,
}

/// The scheduler of [`ExponentialLrSchedulerConfig`].
pub type ExponentialLrScheduler = Scheduler<Exponential>;

/// Options of an [`Exponential`] schedule.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct ExponentialLrSchedulerConfig {
    /// The rate of the first step: finite and at least 0.
    pub initial_lr: f64,
    /// The factor of each step: finite and greater than 0.
    pub gamma: f64,
}

/// The scheduler of [`StepLrSchedulerConfig`].
pub type StepLrScheduler = Scheduler<Step>;

/// Options of a [`Step`] schedule.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct StepLrSchedulerConfig {
    /// The rate of the first step: finite and at least 0.
    pub initial_lr: f64,
    /// The number of steps between two changes: at least 1.
    pub step_size: usize,
    /// The factor of each change: finite and greater than 0. Default: 0.1.
    #[config(default = 0.1)]
    pub gamma: f64,
}

/// The scheduler of [`NoamLrSchedulerConfig`].
pub type NoamLrScheduler = Scheduler<Noam>;

/// Options of a [`Noam`] schedule.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct NoamLrSchedulerConfig {
    /// The factor of all rates: finite and at least 0.
    pub factor: f64,
    /// The number of steps of warm-up: at least 1. Default: 4000.
    #[config(default = 4000)]
    pub warmup_steps: usize,
    /// The width of the model: at least 1. Default: 512.
    #[config(default = 512)]
    pub model_size: usize,
}

/// The scheduler of [`ComposedLrSchedulerConfig`].
pub type ComposedLrScheduler = Scheduler<Composed>;

/// Options of a [`Composed`] schedule.
///
/// ```
/// use kiln_optim::lr_scheduler::{
///     ComposedLrSchedulerConfig, CosineAnnealingLrSchedulerConfig, LinearLrSchedulerConfig,
/// };
///
/// let mut scheduler = ComposedLrSchedulerConfig::new()
///     .cosine(CosineAnnealingLrSchedulerConfig::new(1.0, 2000))
///     .linear(LinearLrSchedulerConfig::new(1e-8, 1.0, 2000))
///     .init()?;
/// assert_eq!(scheduler.step(), 1e-8);
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct ComposedLrSchedulerConfig {
    /// The schedules. Default: none.
    #[config(default = Vec::new())]
    pub schedulers: Vec<LrSchedulerConfig>,
    /// The combination of their rates. Default: the product.
    #[config(default = SchedulerReduction::Prod)]
    pub reduction: SchedulerReduction,
}

impl ComposedLrSchedulerConfig {
    /// Adds a linear schedule.
    #[must_use]
    pub fn linear(self, config: LinearLrSchedulerConfig) -> Self {
        self.with(config)
    }

    /// Adds cosine annealing with restarts.
    #[must_use]
    pub fn cosine(self, config: CosineAnnealingLrSchedulerConfig) -> Self {
        self.with(config)
    }

    /// Adds an exponential schedule.
    #[must_use]
    pub fn exponential(self, config: ExponentialLrSchedulerConfig) -> Self {
        self.with(config)
    }

    /// Adds a Noam schedule.
    #[must_use]
    pub fn noam(self, config: NoamLrSchedulerConfig) -> Self {
        self.with(config)
    }

    /// Adds a schedule.
    #[must_use]
    pub fn with(mut self, config: impl Into<LrSchedulerConfig>) -> Self {
        self.schedulers.push(config.into());
        self
    }
}

impl Default for ComposedLrSchedulerConfig {
    fn default() -> ComposedLrSchedulerConfig {
        ComposedLrSchedulerConfig::new()
    }
}

/// The scheduler of [`SequentialLrSchedulerConfig`].
pub type SequentialLrScheduler = Scheduler<Sequential>;

/// Options of a [`Sequential`] schedule: `n` schedules and the `n - 1` steps at which the next one starts.
///
/// ```
/// use kiln_optim::lr_scheduler::{
///     CosineAnnealingLrSchedulerConfig, LinearLrSchedulerConfig, SequentialLrSchedulerConfig,
/// };
///
/// let mut scheduler = SequentialLrSchedulerConfig::new(
///     vec![
///         LinearLrSchedulerConfig::new(1e-5, 1e-2, 100).into(),
///         CosineAnnealingLrSchedulerConfig::new(1e-2, 900).into(),
///     ],
///     vec![100],
/// )
/// .init()?;
/// assert_eq!(scheduler.step(), 1e-5);
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct SequentialLrSchedulerConfig {
    /// The schedules: at least one. Each counts its steps from 0.
    pub schedulers: Vec<LrSchedulerConfig>,
    /// The first steps of the second and later schedules: greater than 0, and each greater than the previous one.
    pub milestones: Vec<usize>,
}

impl ComposedLrSchedulerConfig {
    fn schedule(&self) -> Result<Composed> {
        let add = |composed: Composed, config: &LrSchedulerConfig| Ok(composed.with(config.schedule()?));
        self.schedulers.iter().try_fold(Composed::new(self.reduction), add)
    }
}

impl SequentialLrSchedulerConfig {
    fn schedule(&self) -> Result<Sequential> {
        const NAME: &str = "sequential";
        at_least_one(NAME, "the number of schedulers", self.schedulers.len() as u64)?;
        if self.milestones.len() + 1 != self.schedulers.len() {
            let requirement = "one less than the number of schedulers";
            return Err(OptimError::option(
                NAME,
                "the number of milestones",
                self.milestones.len(),
                requirement,
            ));
        }
        let mut sequence = Sequential::new();
        let mut start = 0;
        for (config, &end) in self.schedulers.iter().zip(self.milestones.iter().chain([&usize::MAX])) {
            if end <= start {
                let requirement = "greater than 0 and than the previous one";
                return Err(OptimError::option(NAME, "a milestone", end, requirement));
            }
            sequence = sequence.then(config.schedule()?, (end - start) as u64);
            start = end;
        }
        Ok(sequence)
    }
}

/// Defines the configuration of any schedule. A row is the variant, its configuration and the schedule of it.
macro_rules! configs {
    ($($(#[$doc:meta])* $variant:ident $config:ident: $schedule:ty = |$options:ident| $value:expr;)*) => {
        /// The configuration of any of these schedules, for [`ComposedLrSchedulerConfig`] and
        /// [`SequentialLrSchedulerConfig`].
        #[derive(Config, Clone, Debug, PartialEq)]
        pub enum LrSchedulerConfig {
            $($(#[$doc])* $variant($config),)*
        }

        impl LrSchedulerConfig {
            fn schedule(&self) -> Result<Box<dyn LearningRate>> {
                Ok(match self {
                    $(LrSchedulerConfig::$variant($options) => Box::new($value?),)*
                })
            }
        }

        $(
            impl $config {
                /// Returns the scheduler.
                ///
                /// # Errors
                /// When an option is out of range.
                pub fn init(&self) -> Result<Scheduler<$schedule>> {
                    let $options = self;
                    $value.map(Scheduler::new)
                }
            }

            impl From<$config> for LrSchedulerConfig {
                fn from(config: $config) -> LrSchedulerConfig {
                    LrSchedulerConfig::$variant(config)
                }
            }
        )*
    };
}

configs! {
    /// A linear schedule.
    Linear LinearLrSchedulerConfig: Linear =
        |it| Linear::new(it.initial_lr, it.final_lr, it.num_iters as u64);
    /// Cosine annealing with restarts.
    Cosine CosineAnnealingLrSchedulerConfig: Repeat<Cosine> = |it| {
        let steps = it.num_iters as u64;
        Cosine::new(it.initial_lr, it.min_lr, steps)
            .and_then(|cosine| Repeat::new(cosine, steps.saturating_add(1)))
    };
    /// An exponential schedule.
    Exponential ExponentialLrSchedulerConfig: Exponential = |it| Exponential::new(it.initial_lr, it.gamma);
    /// A step schedule.
    Step StepLrSchedulerConfig: Step = |it| Step::new(it.initial_lr, it.gamma, it.step_size as u64);
    /// A Noam schedule.
    Noam NoamLrSchedulerConfig: Noam =
        |it| Noam::new(it.factor, it.model_size as u64, it.warmup_steps as u64);
    /// A combination.
    Composed ComposedLrSchedulerConfig: Composed = |it| it.schedule();
    /// A sequence.
    Sequential SequentialLrSchedulerConfig: Sequential = |it| it.schedule();
}
