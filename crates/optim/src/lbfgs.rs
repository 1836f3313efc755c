//! The L-BFGS optimizer.

mod line_search;
mod memory;
mod space;

use crate::clip::read;
use crate::config::{check_ranges, init};
use crate::error::{OptimError, Result, no_momentum, not_negative};
use crate::guard::StepId;
use crate::state::{Places, invalid};
use crate::{
    Evaluation, GradientClipping, GradientPipeline, LossScaler, Objective, Optimizer, OptimizerState,
    ParameterGroup, StepOutcome, StepReport,
};
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use core::panic::Location;
use kiln_ir::Reduction;
use kiln_nn::{Config, GradientsParams, Module};
use kiln_tensor::AnyTensor;
use line_search::{Search, strong_wolfe};
use memory::Memory;
use serde::{Deserialize, Serialize};
use space::Space;

/// Options of [`Lbfgs`] ([Nocedal 1980](https://doi.org/10.1090/S0025-5718-1980-0572855-7)), with the formulas of
/// `torch.optim.LBFGS`, for full batches. A usual learning rate is 1.
///
/// A step is up to `max_iter` iterations. Each moves all parameters, as one vector `x`, by `t d`: `d = -H g` for the
/// inverse Hessian `H` that the last `history_size` iterations approximate. `t` is the learning rate (at the first
/// iteration at most `lr / |g|_1`), or the result of the line search. See [`Optimizer::step_with`] for an example.
///
/// ```
/// use kiln_optim::{LbfgsConfig, LineSearch};
///
/// let optimizer = LbfgsConfig::new().with_line_search(LineSearch::StrongWolfe).init();
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct LbfgsConfig {
    /// The greatest number of iterations of a step. Default: 20.
    #[config(range = "[1, inf]", default = 20)]
    pub max_iter: u64,
    /// The greatest number of evaluations in a step. Default: 1.25 times `max_iter`.
    #[config(range = "[1, inf]")]
    pub max_eval: Option<u64>,
    /// A step ends when no element of the gradient is greater. Default: 1e-7.
    #[config(range = "[0, inf)", default = 1e-7)]
    pub tolerance_grad: f64,
    /// A step ends when no parameter, or the loss, changes by more. Default: 1e-9.
    #[config(range = "[0, inf)", default = 1e-9)]
    pub tolerance_change: f64,
    /// The number of iterations that approximate the Hessian. Default: 100.
    #[config(range = "[1, inf]", default = 100)]
    pub history_size: u64,
    /// The line search. Default: [`LineSearch::Fixed`].
    #[config(default = LineSearch::Fixed)]
    pub line_search: LineSearch,
    /// Gradient clipping before the update. Default: none.
    pub grad_clipping: Option<GradientClipping>,
}

/// The line search of [`Lbfgs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineSearch {
    /// None: the length of each move is the learning rate.
    Fixed,
    /// A search for a length that satisfies the strong Wolfe conditions, with `c1 = 1e-4` and `c2 = 0.9`. It starts at
    /// the learning rate.
    StrongWolfe,
}

init!(LbfgsConfig, Lbfgs, "optimizer");

impl LbfgsConfig {
    /// Returns the optimizer, or the error of an invalid option.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn try_init(&self) -> Result<Lbfgs> {
        check_ranges(NAME, self)?;
        let pipeline = GradientPipeline::new().with_grad_clipping(NAME, self.grad_clipping)?;
        Ok(Lbfgs { options: self.clone(), pipeline, memory: Memory::default(), steps: 0, report: None })
    }
}

impl Default for LbfgsConfig {
    fn default() -> LbfgsConfig {
        LbfgsConfig::new()
    }
}

const NAME: &str = "lbfgs";

/// The L-BFGS optimizer, created by [`LbfgsConfig`]: a quasi-Newton method for full batches.
///
/// [`step_with`](Optimizer::step_with) and [`update_with`](Optimizer::update_with) evaluate the loss several times.
/// [`step`](Optimizer::step) and [`update`](Optimizer::update) do one iteration without line search. Each iteration
/// waits for the device. All trainable parameters must be on one device. Parameters without a gradient have gradient 0.
///
/// There are no parameter groups, as in PyTorch: a step moves all parameters as one vector. Parameters that must not
/// change are [frozen](kiln_nn::Module::no_grad).
#[derive(Clone, Debug)]
pub struct Lbfgs {
    options: LbfgsConfig,
    pipeline: GradientPipeline,
    memory: Memory,
    steps: u64,
    report: Option<StepReport>,
}

/// The loss at the current parameters, and its gradient as a vector.
#[derive(Clone, Debug)]
struct Point {
    loss: f64,
    gradient: AnyTensor,
}

impl Lbfgs {
    /// Sets gradient clipping of [`update`](Optimizer::update); `None` disables it. It does not apply to
    /// [`update_with`](Optimizer::update_with), whose line search needs the gradient of the loss.
    ///
    /// # Errors
    /// When the limit is not finite or not greater than 0.
    pub fn with_grad_clipping(mut self, clipping: impl Into<Option<GradientClipping>>) -> Result<Lbfgs> {
        self.pipeline = self.pipeline.with_grad_clipping(NAME, clipping.into())?;
        Ok(self)
    }

    /// Sets the loss scaler of [`update`](Optimizer::update); see
    /// [`PerParameter::with_loss_scaler`](crate::PerParameter::with_loss_scaler).
    #[must_use]
    pub fn with_loss_scaler(mut self, scaler: impl Into<Option<LossScaler>>) -> Lbfgs {
        self.pipeline = self.pipeline.with_loss_scaler(scaler.into());
        self
    }

    /// Sets the gradient accumulation of [`update`](Optimizer::update); see
    /// [`PerParameter::with_accumulation`](crate::PerParameter::with_accumulation).
    ///
    /// # Errors
    /// When `passes` is 0.
    pub fn with_accumulation(mut self, passes: u64) -> Result<Lbfgs> {
        self.pipeline = self.pipeline.with_accumulation(NAME, passes)?;
        Ok(self)
    }

    /// Rejects a parameter group: a step moves all parameters as one vector, with one learning rate.
    ///
    /// # Errors
    /// Always. PyTorch's `LBFGS` has no parameter groups either.
    pub fn with_group(self, _group: ParameterGroup) -> Result<Lbfgs> {
        let requirement = "absent: a step moves all parameters as one vector; freeze those that must not change \
                           (`no_grad`)";
        Err(OptimError::option(NAME, "a parameter group", "given", requirement))
    }

    /// Returns the number of evaluations of objectives so far.
    pub fn evaluations(&self) -> u64 {
        self.memory.evaluations
    }

    fn begin(&mut self, caller: &'static Location<'static>) -> StepId {
        self.steps += 1;
        StepId { optimizer: NAME, step: self.steps, caller }
    }

    /// One iteration with given gradients.
    fn move_once(
        &mut self,
        learning_rate: f64,
        module: &mut dyn Module,
        gradients: GradientsParams,
    ) -> Result<usize> {
        let space = Space::of(module)?;
        let gradient = space.flatten(gradients)?;
        let length = self.memory.plan(&gradient, learning_rate, self.options.history_size)?;
        let Some(direction) = self.memory.direction.clone() else { return Ok(0) };
        // The outcome is known before anything changes.
        dot(&gradient, &direction)?;
        let start = space.values(module);
        space.set(module, &start, &direction, length)?;
        Ok(space.len())
    }

    /// Up to `max_iter` iterations.
    fn minimize(&mut self, learning_rate: f64, objective: &mut dyn Objective) -> Result<usize> {
        let LbfgsConfig { max_iter, tolerance_grad, tolerance_change, history_size, line_search, .. } =
            self.options;
        let max_eval = self.options.max_eval.unwrap_or(max_iter * 5 / 4);
        let mut evaluations = 1;
        let Evaluation { loss, gradients } = objective.evaluate()?;
        let space = Space::of(objective.module_mut())?;
        let mut point = Point { loss: read(loss)?, gradient: space.flatten(gradients)? };
        self.memory.evaluations += 1;
        let mut updated = 0;
        if largest(&point.gradient)? <= tolerance_grad {
            return Ok(updated);
        }
        for iteration in 1..=max_iter {
            let mut length = self.memory.plan(&point.gradient, learning_rate, history_size)?;
            let Some(direction) = self.memory.direction.clone() else { break };
            let before = point.loss;
            let slope = dot(&point.gradient, &direction)?;
            if slope > -tolerance_change {
                break;
            }
            let start = space.values(objective.module_mut());
            let is_last = iteration == max_iter;
            let mut done = 0;
            match line_search {
                LineSearch::StrongWolfe => {
                    let mut at = |length: f64| {
                        done += 1;
                        space.set(objective.module_mut(), &start, &direction, length)?;
                        evaluate(&space, objective)
                    };
                    let limit = max_eval.saturating_sub(evaluations);
                    let search = Search { length, slope, limit, tolerance_change };
                    (point, length) = strong_wolfe(search, point, &direction, &mut at)?;
                    self.memory.length = length;
                    space.set(objective.module_mut(), &start, &direction, length)?;
                }
                LineSearch::Fixed => {
                    space.set(objective.module_mut(), &start, &direction, length)?;
                    if !is_last {
                        done += 1;
                        point = evaluate(&space, objective)?;
                    }
                }
            }
            updated = space.len();
            evaluations += done;
            self.memory.evaluations += done;
            if is_last
                || evaluations >= max_eval
                || largest(&point.gradient)? <= tolerance_grad
                || largest(&direction)? * length <= tolerance_change
                || (point.loss - before).abs() < tolerance_change
            {
                break;
            }
        }
        Ok(updated)
    }

    fn reported(&mut self, report: StepReport) -> StepReport {
        self.report = Some(report.clone());
        report
    }
}

impl Optimizer for Lbfgs {
    #[track_caller]
    fn update(
        &mut self,
        learning_rate: f64,
        module: &mut dyn Module,
        gradients: GradientsParams,
    ) -> Result<StepReport> {
        self.update_from(learning_rate, module, gradients, Location::caller())
    }

    fn update_from(
        &mut self,
        learning_rate: f64,
        module: &mut dyn Module,
        gradients: GradientsParams,
        caller: &'static Location<'static>,
    ) -> Result<StepReport> {
        not_negative(NAME, "the learning rate", learning_rate)?;
        Space::of(module)?.check(&gradients)?;
        let pass = self.pipeline.next_pass();
        let Some(mut gradients) = self.pipeline.accumulate(gradients)? else {
            let report = StepReport::new(StepOutcome::Accumulated, 0).of_step(self.steps + 1, pass);
            return Ok(self.reported(report));
        };
        let id = self.begin(caller);
        let is_finite = self.pipeline.unscale(&mut gradients).map_err(|error| id.refused_by(error))?;
        if !is_finite {
            let report = StepReport::new(StepOutcome::SkippedNonFinite, 0).of_step(id.step, pass);
            return Ok(self.reported(report));
        }
        let norm = self.pipeline.clip(&mut gradients, alloc::vec::Vec::new())?;
        let memory = self.memory.clone();
        match self.move_once(learning_rate, module, gradients) {
            Ok(updated) => {
                let report = StepReport::new(StepOutcome::Applied, updated).of_step(id.step, pass);
                Ok(self.reported(report.with_norm(norm)))
            }
            Err(error) => {
                self.memory = memory;
                Err(id.refused_by(error))
            }
        }
    }

    #[track_caller]
    fn update_with(&mut self, learning_rate: f64, objective: &mut dyn Objective) -> Result<StepReport> {
        not_negative(NAME, "the learning rate", learning_rate)?;
        let id = self.begin(Location::caller());
        let memory = self.memory.clone();
        let space = Space::of(objective.module_mut())?;
        let start = space.values(objective.module_mut());
        match self.minimize(learning_rate, objective) {
            Ok(updated) => {
                Ok(self.reported(StepReport::new(StepOutcome::Applied, updated).of_step(id.step, None)))
            }
            Err(error) => {
                self.memory = memory;
                space.restore(objective.module_mut(), start);
                Err(id.refused_by(error))
            }
        }
    }

    fn last_report(&self) -> Option<&StepReport> {
        self.report.as_ref()
    }

    fn loss_scale(&self) -> f64 {
        self.pipeline.loss_scale()
    }

    fn set_momentum(&mut self, momentum: Option<f64>) -> Result<()> {
        momentum.map_or(Ok(()), |momentum| Err(no_momentum(NAME, momentum)))
    }

    fn state(&self, module: &dyn Module) -> Result<OptimizerState> {
        let mut state = OptimizerState::new(NAME);
        if self.memory.iterations > 0 {
            for name in Space::of(module)?.names() {
                state.insert(name, self.memory.iterations);
            }
        }
        Ok(state
            .with_global(self.memory.entries()?)
            .with_global(self.pipeline.state(&Places::of(module).ids())?))
    }

    fn load_state(&mut self, state: OptimizerState, module: &dyn Module) -> Result<()> {
        let places = state.checked_places(NAME, module)?;
        let space = Space::of(module)?;
        let first = |name: &str| places.get(name).map(|(first, _)| first.to_string());
        let saved: BTreeSet<String> = state.parameters().filter_map(first).collect();
        if state.parameters().next().is_some()
            && let Some(missing) = space.names().into_iter().find(|name| !saved.contains(name))
        {
            return Err(invalid(NAME, &missing, "it has no state; the state was saved for other parameters"));
        }
        let memory = Memory::from_state(&state, &space)?;
        self.pipeline = self.pipeline.loaded(&state.global(), |path| places.place(path))?;
        self.memory = memory;
        Ok(())
    }
}

fn evaluate(space: &Space, objective: &mut dyn Objective) -> Result<Point> {
    let Evaluation { loss, gradients } = objective.evaluate()?;
    Ok(Point { loss: read(loss)?, gradient: space.flatten(gradients)? })
}

/// The dot product of two vectors. Waits for the device.
fn dot(a: &AnyTensor, b: &AnyTensor) -> Result<f64> {
    read(a.clone().mul(b.clone())?.sum()?)
}

/// The largest magnitude in a vector; 0 without elements. Waits for the device.
fn largest(vector: &AnyTensor) -> Result<f64> {
    if vector.shape().num_elements() == 0 {
        return Ok(0.0);
    }
    read(vector.clone().abs()?.reduce_all(Reduction::Max)?)
}
