//! Learning-rate schedules.
//!
//! A [`LearningRate`] is a function of the step index, so resuming from a checkpoint needs only that index. Schedules
//! that react to a metric, such as [`ReduceOnPlateau`], also have a [`ScheduleState`].
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
//!
//! | schedule | PyTorch | Burn |
//! |---|---|---|
//! | a number, [`Constant`] | `ConstantLR` with [`with_factor`](Constant::with_factor) | [`ConstantLr`] |
//! | [`Linear`] | `LinearLR` | [`LinearLrSchedulerConfig`] |
//! | [`Polynomial`] | `PolynomialLR` | |
//! | [`Exponential`] | `ExponentialLR` | [`ExponentialLrSchedulerConfig`] |
//! | [`Step`] | `StepLR` | [`StepLrSchedulerConfig`] |
//! | [`MultiStep`] | `MultiStepLR` | |
//! | [`Cosine`] | `CosineAnnealingLR` with [`periodic`](Cosine::periodic) | [`CosineAnnealingLrSchedulerConfig`] |
//! | [`CosineWarmRestarts`] | `CosineAnnealingWarmRestarts` | |
//! | [`OneCycle`] | `OneCycleLR` | |
//! | [`Cyclic`] | `CyclicLR` | |
//! | [`ReduceOnPlateau`] | `ReduceLROnPlateau` | |
//! | [`Lambda`], [`Multiplicative`] | `LambdaLR`, `MultiplicativeLR` | |
//! | [`Noam`] | | [`NoamLrSchedulerConfig`] |
//! | [`InverseSqrt`], [`WarmupCosine`], [`WarmupStableDecay`] | | |
//! | [`SwaLr`] | `swa_utils.SWALR` | |
//! | [`Sequential`] | `SequentialLR` | [`SequentialLrSchedulerConfig`] |
//! | [`Composed`] | `ChainedScheduler` of factors | [`ComposedLrSchedulerConfig`] |
//! | [`Warmup`], [`Repeat`] | | |

/// Implements the methods of a [`LearningRate`] besides `at` by those of an inner schedule.
macro_rules! forward_state {
    (|$this:ident| $inner:expr) => {
        fn momentum_at(&self, step: u64) -> Option<f64> {
            let $this = self;
            $inner.momentum_at(step)
        }

        fn observe(&mut self, step: u64, metric: f64) {
            let $this = self;
            $inner.observe(step, metric);
        }

        fn state(&self) -> $crate::lr_scheduler::ScheduleState {
            let $this = self;
            $inner.state()
        }

        fn load_state(&mut self, state: &$crate::lr_scheduler::ScheduleState) -> $crate::Result<()> {
            let $this = self;
            $inner.load_state(state)
        }
    };
}

mod combine;
mod config;
#[doc(hidden)]
pub mod constant;
#[doc(hidden)]
pub mod cosine;
mod cycle;
mod decay;
mod lambda;
#[doc(hidden)]
pub mod linear;
mod plateau;
mod scheduler;
mod state;
mod swa;
mod transformer;
mod warmup;

pub use combine::{Composed, Repeat, SchedulerReduction, Sequential};
pub use config::{
    ComposedLrScheduler, ComposedLrSchedulerConfig, ConstantLr, CosineAnnealingLrScheduler,
    CosineAnnealingLrSchedulerConfig, ExponentialLrScheduler, ExponentialLrSchedulerConfig,
    LinearLrScheduler, LinearLrSchedulerConfig, LrScheduler, LrSchedulerConfig, NoamLrScheduler,
    NoamLrSchedulerConfig, SequentialLrScheduler, SequentialLrSchedulerConfig, StepLrScheduler,
    StepLrSchedulerConfig,
};
pub use constant::Constant;
pub use cosine::{Cosine, CosineWarmRestarts};
pub use cycle::{AnnealStrategy, Cyclic, CyclicConfig, CyclicMode, OneCycle, OneCycleConfig};
pub use decay::{Exponential, MultiStep, Step};
pub use lambda::{Lambda, Multiplicative};
pub use linear::{Linear, Polynomial};
pub use plateau::{PlateauMode, ReduceOnPlateau, ReduceOnPlateauConfig, ThresholdMode};
pub use scheduler::{Scheduler, SchedulerState};
pub use state::ScheduleState;
pub use swa::SwaLr;
pub use transformer::{InverseSqrt, Noam};
pub use warmup::{DecayShape, Warmup, WarmupCosine, WarmupStableDecay, WarmupStableDecayConfig};

/// The paths of Burn's modules.
macro_rules! burn_modules {
    ($($module:ident: $($item:ident),*;)*) => {$(
        #[doc(hidden)]
        pub mod $module {
            pub use super::{$($item),*};
        }
    )*};
}

burn_modules! {
    composed: ComposedLrScheduler, ComposedLrSchedulerConfig, SchedulerReduction;
    exponential: ExponentialLrScheduler, ExponentialLrSchedulerConfig;
    noam: NoamLrScheduler, NoamLrSchedulerConfig;
    sequential: SequentialLrScheduler, SequentialLrSchedulerConfig;
    step: StepLrScheduler, StepLrSchedulerConfig;
}

use crate::error::{OptimError, Result};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt::Debug;

/// A learning-rate schedule: the rate of each step. A plain `f64` is a constant rate.
///
/// A schedule that is a function of the step implements only [`at`](LearningRate::at). A schedule that depends on a
/// metric implements the other methods too:
///
/// ```
/// use kiln_optim::lr_scheduler::{LearningRate, ScheduleState, Scheduler};
/// use kiln_optim::{OptimError, Result};
///
/// /// Halves the rate when the metric rises.
/// #[derive(Debug)]
/// struct Halving {
///     rate: f64,
///     last: f64,
/// }
///
/// impl LearningRate for Halving {
///     fn at(&self, _step: u64) -> f64 {
///         self.rate
///     }
///
///     fn observe(&mut self, _step: u64, metric: f64) {
///         if metric > self.last {
///             self.rate /= 2.0;
///         }
///         self.last = metric;
///     }
///
///     fn state(&self) -> ScheduleState {
///         ScheduleState::new().with_value("rate", self.rate).with_value("last", self.last)
///     }
///
///     fn load_state(&mut self, state: &ScheduleState) -> Result<()> {
///         *self = Halving { rate: state.require("halving", "rate")?, last: state.require("halving", "last")? };
///         Ok(())
///     }
/// }
///
/// let mut scheduler = Scheduler::new(Halving { rate: 0.1, last: f64::INFINITY });
/// for metric in [3.0, 2.0, 4.0] {
///     scheduler.step();
///     scheduler.observe(metric);
/// }
/// assert_eq!(scheduler.step(), 0.05);
/// ```
pub trait LearningRate: Debug + Send + Sync {
    /// Returns the learning rate of step `step`, counted from 0.
    fn at(&self, step: u64) -> f64;

    /// Returns the momentum of step `step`, for [`Optimizer::set_momentum`](crate::Optimizer::set_momentum). Default:
    /// none; the update rule's own momentum applies. [`OneCycle`] and [`Cyclic`] have one with `cycle_momentum`.
    fn momentum_at(&self, step: u64) -> Option<f64> {
        let _ = step;
        None
    }

    /// Receives a metric that was measured before step `step`, such as the validation loss after an epoch. It may
    /// change the rates of this and later steps. Default: does nothing.
    fn observe(&mut self, step: u64, metric: f64) {
        let _ = (step, metric);
    }

    /// Returns the state besides the step index. Default: the empty state.
    fn state(&self) -> ScheduleState {
        ScheduleState::new()
    }

    /// Replaces the state. With the same options as when it was saved, the schedule continues bit for bit.
    ///
    /// # Errors
    /// When the state belongs to another schedule. The schedule is then unchanged.
    fn load_state(&mut self, state: &ScheduleState) -> Result<()> {
        if state.is_empty() {
            return Ok(());
        }
        Err(OptimError::schedule_state(
            "schedule",
            "the schedule has no state, but the loaded state is not empty",
        ))
    }
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

    forward_state!(|this| **this);
}

/// A shared schedule. Its state changes only while it has one owner: with several owners,
/// [`observe`](LearningRate::observe) does nothing, and only the state that it already has can be loaded.
impl<L: LearningRate + ?Sized> LearningRate for Arc<L> {
    fn at(&self, step: u64) -> f64 {
        (**self).at(step)
    }

    fn momentum_at(&self, step: u64) -> Option<f64> {
        (**self).momentum_at(step)
    }

    fn observe(&mut self, step: u64, metric: f64) {
        if let Some(schedule) = Arc::get_mut(self) {
            schedule.observe(step, metric);
        }
    }

    fn state(&self) -> ScheduleState {
        (**self).state()
    }

    fn load_state(&mut self, state: &ScheduleState) -> Result<()> {
        if (**self).state() == *state {
            return Ok(());
        }
        match Arc::get_mut(self) {
            Some(schedule) => schedule.load_state(state),
            None => Err(OptimError::schedule_state("schedule", "the schedule has several owners")),
        }
    }
}

#[cfg(test)]
mod tests;
