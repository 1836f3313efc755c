//! Schedules of schedules.

use super::{LearningRate, ScheduleState};
use crate::error::{Result, at_least_one};
use alloc::boxed::Box;
use alloc::vec::Vec;
use kiln_nn::Config;

/// Runs schedules in sequence; each counts its steps from 0 and receives only the metrics of its steps.
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

    /// The index of the part that runs a step, and the step within the part.
    fn place(&self, step: u64) -> Option<(usize, u64)> {
        let mut local = step;
        for (place, (steps, _)) in self.parts.iter().enumerate() {
            if local < *steps || place + 1 == self.parts.len() {
                return Some((place, local));
            }
            local -= steps;
        }
        None
    }
}

impl LearningRate for Sequential {
    fn at(&self, step: u64) -> f64 {
        match self.place(step) {
            Some((place, local)) => self.parts[place].1.at(local),
            None => 0.0,
        }
    }

    fn momentum_at(&self, step: u64) -> Option<f64> {
        let (place, local) = self.place(step)?;
        self.parts[place].1.momentum_at(local)
    }

    fn observe(&mut self, step: u64, metric: f64) {
        if let Some((place, local)) = self.place(step) {
            self.parts[place].1.observe(local, metric);
        }
    }

    fn state(&self) -> ScheduleState {
        ScheduleState::collect(self.parts.iter().map(|(_, part)| &**part as &dyn LearningRate))
    }

    fn load_state(&mut self, state: &ScheduleState) -> Result<()> {
        let parts = self.parts.iter_mut().map(|(_, part)| &mut **part as &mut dyn LearningRate);
        state.distribute("sequential", parts)
    }
}

/// The combination of the rates of a [`Composed`] schedule.
#[derive(Config, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerReduction {
    /// The mean.
    Avg,
    /// The sum.
    Sum,
    /// The product.
    Prod,
}

/// Combines the rates that several schedules have at the same step. All of them receive all metrics.
///
/// ```
/// use kiln_optim::lr_scheduler::{Composed, Cosine, LearningRate, ReduceOnPlateauConfig, SchedulerReduction};
///
/// // Cosine annealing that a plateau of the validation loss reduces further.
/// let schedule = Composed::new(SchedulerReduction::Prod)
///     .with(Cosine::new(0.1, 0.0, 100)?)
///     .with(ReduceOnPlateauConfig::new(1.0).init());
/// assert_eq!(schedule.at(0), 0.1);
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Debug)]
pub struct Composed {
    parts: Vec<Box<dyn LearningRate>>,
    reduction: SchedulerReduction,
}

impl Composed {
    /// Returns a combination without schedules: a rate of 1 for a product, otherwise of 0.
    pub fn new(reduction: SchedulerReduction) -> Composed {
        Composed { parts: Vec::new(), reduction }
    }

    /// Adds a schedule.
    #[must_use]
    pub fn with(mut self, schedule: impl LearningRate + 'static) -> Composed {
        self.parts.push(Box::new(schedule));
        self
    }
}

impl LearningRate for Composed {
    fn at(&self, step: u64) -> f64 {
        let rates = self.parts.iter().map(|part| part.at(step));
        match self.reduction {
            SchedulerReduction::Avg => sum(rates) / self.parts.len().max(1) as f64,
            SchedulerReduction::Sum => sum(rates),
            SchedulerReduction::Prod => rates.product(),
        }
    }

    /// The momentum of the first schedule that has one.
    fn momentum_at(&self, step: u64) -> Option<f64> {
        self.parts.iter().find_map(|part| part.momentum_at(step))
    }

    fn observe(&mut self, step: u64, metric: f64) {
        self.parts.iter_mut().for_each(|part| part.observe(step, metric));
    }

    fn state(&self) -> ScheduleState {
        ScheduleState::collect(self.parts.iter().map(|part| &**part as &dyn LearningRate))
    }

    fn load_state(&mut self, state: &ScheduleState) -> Result<()> {
        let parts = self.parts.iter_mut().map(|part| &mut **part as &mut dyn LearningRate);
        state.distribute("composed", parts)
    }
}

/// The sum, 0 without summands. The sum of the standard library is then -0.
fn sum(rates: impl Iterator<Item = f64>) -> f64 {
    rates.fold(0.0, |sum, rate| sum + rate)
}

/// Repeats the first steps of a schedule.
///
/// ```
/// use kiln_optim::lr_scheduler::{LearningRate, Linear, Repeat};
///
/// let schedule = Repeat::new(Linear::new(1.0, 0.0, 4)?, 5)?;
/// assert_eq!([0, 4, 5, 9, 10].map(|step| schedule.at(step)), [1.0, 0.0, 1.0, 0.0, 1.0]);
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Repeat<L> {
    schedule: L,
    steps: u64,
}

impl<L: LearningRate> Repeat<L> {
    /// Returns the first `steps` steps of the schedule, repeated without end. The schedule keeps its state.
    ///
    /// # Errors
    /// When `steps` is 0.
    pub fn new(schedule: L, steps: u64) -> Result<Repeat<L>> {
        Ok(Repeat { schedule, steps: at_least_one("repeat", "steps", steps)? })
    }
}

impl<L: LearningRate> LearningRate for Repeat<L> {
    fn at(&self, step: u64) -> f64 {
        self.schedule.at(step % self.steps)
    }

    fn momentum_at(&self, step: u64) -> Option<f64> {
        self.schedule.momentum_at(step % self.steps)
    }

    fn observe(&mut self, step: u64, metric: f64) {
        self.schedule.observe(step % self.steps, metric);
    }

    fn state(&self) -> ScheduleState {
        self.schedule.state()
    }

    fn load_state(&mut self, state: &ScheduleState) -> Result<()> {
        self.schedule.load_state(state)
    }
}
