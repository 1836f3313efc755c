//! The scheduler that counts steps.

use super::{LearningRate, ScheduleState};
use crate::error::Result;
use serde::{Deserialize, Deserializer, Serialize};

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
/// resumed.load_state(scheduler.state())?;
/// assert_eq!(resumed.step(), 0.125);
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
///
/// As a [`LearningRate`] it is its schedule, and its own count of steps has no effect.
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

    /// Returns the momentum of the step whose rate [`step`](Scheduler::step) returned last, if the schedule has one.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::{GradientsParams, Linear, LinearConfig};
    /// use kiln_optim::lr_scheduler::{OneCycleConfig, Scheduler};
    /// use kiln_optim::{AdamWConfig, Optimizer};
    /// use kiln_tensor::{Autodiff, Tensor};
    ///
    /// let mut model: Linear<Autodiff<Flex>> = LinearConfig::new(2, 1).init(&Default::default());
    /// let mut optimizer = AdamWConfig::new().init();
    /// let mut scheduler = Scheduler::new(OneCycleConfig::new(0.1, 100).with_cycle_momentum(true).init());
    /// for _ in 0..3 {
    ///     let loss = model.forward(Tensor::from([[1.0, 2.0]])).square().mean();
    ///     let gradients = GradientsParams::from_grads(loss.backward(), &model);
    ///     let rate = scheduler.step();
    ///     optimizer.set_momentum(scheduler.momentum())?;
    ///     model = optimizer.step(rate, model, gradients);
    /// }
    /// assert!(scheduler.momentum().unwrap() < 0.95);
    /// # Ok::<(), kiln_optim::OptimError>(())
    /// ```
    pub fn momentum(&self) -> Option<f64> {
        self.schedule.momentum_at(self.next.saturating_sub(1))
    }

    /// Passes a metric to the schedule, such as the validation loss after an epoch. Schedules that are a function of
    /// the step ignore it.
    ///
    /// ```
    /// use kiln_optim::lr_scheduler::{ReduceOnPlateauConfig, Scheduler};
    ///
    /// let mut scheduler = Scheduler::new(ReduceOnPlateauConfig::new(0.1).with_patience(1).init());
    /// for validation_loss in [1.0, 1.0, 1.0] {
    ///     assert_eq!(scheduler.step(), 0.1);
    ///     scheduler.observe(validation_loss);
    /// }
    /// assert!((scheduler.step() - 0.01).abs() < 1e-15);
    /// ```
    pub fn observe(&mut self, metric: f64) {
        self.schedule.observe(self.next, metric);
    }

    /// Returns the schedule.
    pub fn schedule(&self) -> &L {
        &self.schedule
    }

    /// Returns the state: the index of the next step, and the state of the schedule.
    pub fn state(&self) -> SchedulerState {
        SchedulerState { step: self.next, schedule: self.schedule.state() }
    }

    /// Replaces the state. A state without that of a schedule, such as a step index, leaves the schedule unchanged.
    ///
    /// # Errors
    /// When the state belongs to another schedule. The scheduler is then unchanged.
    pub fn load_state(&mut self, state: impl Into<SchedulerState>) -> Result<()> {
        let SchedulerState { step, schedule } = state.into();
        if !schedule.is_empty() {
            self.schedule.load_state(&schedule)?;
        }
        self.next = step;
        Ok(())
    }
}

impl<L: LearningRate> LearningRate for Scheduler<L> {
    fn at(&self, step: u64) -> f64 {
        self.schedule.at(step)
    }

    forward_state!(|this| this.schedule);
}

/// The state of a [`Scheduler`], for checkpoints. A serialized step index is also read as a state.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SchedulerState {
    /// The index of the next step.
    pub step: u64,
    /// The state of the schedule.
    #[serde(skip_serializing_if = "ScheduleState::is_empty")]
    pub schedule: ScheduleState,
}

impl From<u64> for SchedulerState {
    fn from(step: u64) -> SchedulerState {
        SchedulerState { step, schedule: ScheduleState::new() }
    }
}

impl<'de> Deserialize<'de> for SchedulerState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SchedulerState, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Saved {
            Step(u64),
            Full {
                step: u64,
                #[serde(default)]
                schedule: ScheduleState,
            },
        }
        Ok(match Saved::deserialize(deserializer)? {
            Saved::Step(step) => step.into(),
            Saved::Full { step, schedule } => SchedulerState { step, schedule },
        })
    }
}
