//! Averages of the weights.

use std::collections::BTreeMap;
use std::fmt;

use kiln_nn::Module;
use kiln_optim::{AverageState, ModelAverage};
use kiln_tensor::TensorData;

use super::{Callback, Context, Event};
use crate::error::Result;
use crate::task::{StateTensors, StateVisitor};
use crate::weights::Weights;

/// Averages the weights of a model over the steps: EMA or SWA. Validation uses the average.
///
/// The closure returns the model of the task. Checkpoints contain the average, beside the model without it. When training
/// ends, the model keeps its own weights, unless [`apply_at_end`](WeightAverage::apply_at_end) is set.
///
/// ```
/// use kiln_optim::EmaConfig;
/// use kiln_train::WeightAverage;
/// # use kiln_backends::Flex;
/// # use kiln_nn::{Linear, LinearConfig};
/// # use kiln_optim::SgdConfig;
/// # use kiln_tensor::{Autodiff, Tensor};
/// # use kiln_train::{Learner, StepOutput, Supervised, loader::TensorLoader};
/// # type B = Autodiff<Flex>;
/// # let model: Linear<B> = LinearConfig::new(1, 1).init(&Default::default());
/// # let loss = |model: &Linear<B>, x: Tensor<B, 2>| StepOutput::new(model.forward(x).square().mean(), 4);
/// # let task = Supervised::new(model, SgdConfig::new().init(), 0.1, loss);
/// # let loader = TensorLoader::new(Tensor::<B, 2>::ones([8, 1], &Default::default())).batch_size(4);
/// let average = EmaConfig::new().init();
/// let mut learner = Learner::new(task)
///     .callback(WeightAverage::new(average, |task: &mut Supervised<Linear<B>, _, _>| task.trainable_mut().model_mut()))
///     .silent();
/// learner.fit(&loader, &loader)?;
/// # Ok::<(), kiln_train::TrainError>(())
/// ```
pub struct WeightAverage<F> {
    average: ModelAverage,
    model: F,
    /// The first step that counts.
    start: u64,
    apply_at_end: bool,
    /// The weights of the model while it holds the average.
    weights: Option<Weights>,
}

impl<F> WeightAverage<F> {
    /// Returns the callback of an average and a closure from the task to its model.
    pub fn new<T, M: Module>(average: ModelAverage, model: F) -> WeightAverage<F>
    where
        F: Fn(&mut T) -> &mut M,
    {
        WeightAverage { average, model, start: 0, apply_at_end: false, weights: None }
    }

    kiln_ir::setters! {
        /// Sets whether the model receives the averaged weights when training ends, after the last checkpoint. Default: no.
        apply_at_end(apply: bool) => apply_at_end = apply;

        /// Sets the number of steps before the first that counts. Default: 0.
        start_at(step: u64) => start = step;
    }
}

impl<T, M: Module, F: Fn(&mut T) -> &mut M + Send> Callback<T> for WeightAverage<F> {
    fn name(&self) -> &str {
        "weight_average"
    }

    fn on(&mut self, event: Event<'_>, context: &mut Context<'_, T>) -> Result<()> {
        let steps = context.control.steps();
        let model = (self.model)(context.task);
        if let Event::StepEnded = event
            && steps > self.start
        {
            self.average.update(model)?;
        } else if let Event::ValidationStarted = event {
            self.weights = Some(Weights::of(model));
            self.average.apply(model)?;
        } else if let Event::ValidationEnded = event {
            if let Some(weights) = self.weights.take() {
                weights.put_into(model);
            }
        } else if let Event::Closing = event
            && self.apply_at_end
        {
            self.average.apply(model)?;
        }
        Ok(())
    }

    /// Runs before other callbacks, which see the average of the step.
    fn order(&self) -> i32 {
        -50
    }

    fn state(&mut self, task: &mut T, visitor: &mut dyn StateVisitor) -> Result<()> {
        let WeightAverage { average, model, .. } = self;
        visitor.tensors("average", &mut State { average, model: model(task) })
    }
}

struct State<'a> {
    average: &'a mut ModelAverage,
    model: &'a dyn Module,
}

impl StateTensors for State<'_> {
    fn save(&mut self) -> Result<BTreeMap<String, TensorData>> {
        Ok(self.average.state(self.model)?.into_tensors().into_iter().collect())
    }

    fn load(&mut self, tensors: BTreeMap<String, TensorData>) -> Result<()> {
        Ok(self.average.load_state(AverageState::from_tensors(tensors)?, self.model)?)
    }
}

impl<F> fmt::Debug for WeightAverage<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeightAverage").field("average", &self.average).finish_non_exhaustive()
    }
}
