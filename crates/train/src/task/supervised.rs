//! Supervised training of one model with one loss.

use std::fmt;
use std::marker::PhantomData;

use kiln_nn::Module;
use kiln_optim::{LearningRate, Optimizer};
use kiln_tensor::AutodiffBackend;

use super::{StateVisitor, Task};
use crate::error::Result;
use crate::observation::StepOutput;
use crate::step::{Step, Validation};
use crate::trainable::Trainable;

/// Supervised training: one model, one optimizer and one loss. The loss is a function of the model and a batch.
///
/// Validation computes the same function of a copy of the model for inference: without gradients, in the mode
/// [`eval`](kiln_nn::Module::eval), with the optimizer's [parameters for evaluation](Optimizer::enter_eval).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{Linear, LinearConfig};
/// use kiln_optim::AdamConfig;
/// use kiln_tensor::{Autodiff, Tensor};
/// use kiln_train::{Learner, StepOutput, Supervised, loader::TensorLoader};
///
/// type B = Autodiff<Flex>;
///
/// let device = Default::default();
/// let x = Tensor::<B, 2>::from([[0.0], [1.0], [2.0], [3.0]]);
/// let y = Tensor::<B, 2>::from([[1.0], [3.0], [5.0], [7.0]]);
/// let loader = TensorLoader::new((x, y)).batch_size(4);
///
/// let model: Linear<B> = LinearConfig::new(1, 1).init(&device);
/// let task = Supervised::new(model, AdamConfig::new().init(), 0.1, |model: &Linear<B>, (x, y): (Tensor<B, 2>, Tensor<B, 2>)| {
///     let predictions = model.forward(x);
///     let loss = (predictions.clone() - y.clone()).square().mean();
///     StepOutput::regression(loss, predictions, y)
/// });
/// let mut learner = Learner::new(task).epochs(300).silent();
/// let history = learner.fit(&loader, &loader)?;
/// assert!(history.epochs[299].valid().unwrap().loss < 0.01);
/// # Ok::<(), kiln_train::TrainError>(())
/// ```
pub struct Supervised<M, Batch, F> {
    trainable: Trainable<M>,
    loss: F,
    /// The copy for inference, during validation.
    evaluated: Option<M>,
    batch: PhantomData<fn(Batch)>,
}

impl<M: Module, Batch, F> Supervised<M, Batch, F> {
    /// Returns a task of a model, an optimizer, a learning rate and a loss.
    pub fn new<B: AutodiffBackend>(
        model: M,
        optimizer: impl Optimizer + 'static,
        learning_rate: impl LearningRate + 'static,
        loss: F,
    ) -> Supervised<M, Batch, F>
    where
        F: Fn(&M, Batch) -> StepOutput<B>,
    {
        let trainable = Trainable::new(model, optimizer, learning_rate);
        Supervised { trainable, loss, evaluated: None, batch: PhantomData }
    }

    /// Returns the model with its optimizer.
    pub fn trainable(&self) -> &Trainable<M> {
        &self.trainable
    }

    /// Returns the model with its optimizer, to change them.
    pub fn trainable_mut(&mut self) -> &mut Trainable<M> {
        &mut self.trainable
    }

    /// Returns the model.
    pub fn into_model(self) -> M {
        self.trainable.into_model()
    }
}

impl<M, B, Batch, F> Task for Supervised<M, Batch, F>
where
    M: Module + Clone,
    B: AutodiffBackend,
    Batch: Send + 'static,
    F: Fn(&M, Batch) -> StepOutput<B> + Send,
{
    type Batch = Batch;
    type ValidBatch = Batch;

    fn train(&mut self, batch: Batch, step: &mut Step<'_>) -> Result<()> {
        let (loss, observation) = (self.loss)(self.trainable.model(), batch).into_parts();
        step.observe(observation);
        step.backward(loss, &mut self.trainable).map(|_| ())
    }

    fn start_validation(&mut self) -> Result<()> {
        let mut model = self.trainable.model().clone().no_grad().eval();
        self.trainable.optimizer().enter_eval(&mut model)?;
        self.evaluated = Some(model);
        Ok(())
    }

    fn validate(&mut self, batch: Batch, validation: &mut Validation<'_>) -> Result<()> {
        let model = self.evaluated.as_ref().unwrap_or_else(|| self.trainable.model());
        validation.observe((self.loss)(model, batch));
        Ok(())
    }

    fn end_validation(&mut self) {
        self.evaluated = None;
    }

    fn state(&mut self, visitor: &mut dyn StateVisitor) -> Result<()> {
        self.trainable.state(visitor)
    }

    fn description(&self) -> String {
        format!("{:?}", self.trainable.model())
    }
}

impl<M: fmt::Debug, Batch, F> fmt::Debug for Supervised<M, Batch, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervised").field("trainable", &self.trainable).finish_non_exhaustive()
    }
}
