//! Tasks of closures.

use std::fmt;
use std::marker::PhantomData;

use kiln_nn::Module;
use kiln_optim::{LearningRate, Optimizer};

use super::{StateVisitor, Task};
use crate::error::Result;
use crate::step::{Step, Validation};
use crate::trainable::Trainable;

/// A task of one model and two closures: the training step and the validation step.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{Linear, LinearConfig};
/// use kiln_optim::SgdConfig;
/// use kiln_tensor::{Autodiff, Tensor};
/// use kiln_train::{FunctionTask, Learner, Step, Trainable, Validation, loader::Stream};
///
/// type B = Autodiff<Flex>;
///
/// let model: Linear<B> = LinearConfig::new(2, 1).init(&Default::default());
/// let task = FunctionTask::new(
///     model,
///     SgdConfig::new().init(),
///     0.05,
///     |model: &mut Trainable<Linear<B>>, batch: Tensor<B, 2>, step: &mut Step<'_>| {
///         let loss = model.forward(batch).square().mean();
///         step.backward(loss, model)?;
///         Ok(())
///     },
///     |model: &mut Trainable<Linear<B>>, batch: Tensor<B, 2>, validation: &mut Validation<'_>| {
///         validation.log("output", model.forward(batch).abs().mean());
///         Ok(())
///     },
/// );
/// let batches = Stream::new(|_epoch| std::iter::repeat_with(|| Ok(Tensor::from([[1.0, 2.0]]))));
/// let mut learner = Learner::new(task).max_steps(20).silent();
/// let history = learner.fit_without_validation(&batches)?;
/// assert!(history.losses[19] < history.losses[0]);
/// # Ok::<(), kiln_train::TrainError>(())
/// ```
pub struct FunctionTask<M, T, V, F, G> {
    trainable: Trainable<M>,
    train: F,
    validate: G,
    batches: PhantomData<fn(T, V)>,
}

impl<M: Module, T, V, F, G> FunctionTask<M, T, V, F, G>
where
    F: FnMut(&mut Trainable<M>, T, &mut Step<'_>) -> Result<()>,
    G: FnMut(&mut Trainable<M>, V, &mut Validation<'_>) -> Result<()>,
{
    /// Returns a task of a model, an optimizer, a learning rate and the two closures.
    pub fn new(
        model: M,
        optimizer: impl Optimizer + 'static,
        learning_rate: impl LearningRate + 'static,
        train: F,
        validate: G,
    ) -> FunctionTask<M, T, V, F, G> {
        let trainable = Trainable::new(model, optimizer, learning_rate);
        FunctionTask { trainable, train, validate, batches: PhantomData }
    }
}

impl<M, T, V, F, G> FunctionTask<M, T, V, F, G> {
    /// Returns the model with its optimizer.
    pub fn trainable(&self) -> &Trainable<M> {
        &self.trainable
    }

    /// Returns the model with its optimizer, to change them.
    pub fn trainable_mut(&mut self) -> &mut Trainable<M> {
        &mut self.trainable
    }
}

impl<M, T, V, F, G> Task for FunctionTask<M, T, V, F, G>
where
    M: Module,
    T: Send + 'static,
    V: Send + 'static,
    F: FnMut(&mut Trainable<M>, T, &mut Step<'_>) -> Result<()> + Send,
    G: FnMut(&mut Trainable<M>, V, &mut Validation<'_>) -> Result<()> + Send,
{
    type Batch = T;
    type ValidBatch = V;

    fn train(&mut self, batch: T, step: &mut Step<'_>) -> Result<()> {
        (self.train)(&mut self.trainable, batch, step)
    }

    fn validate(&mut self, batch: V, validation: &mut Validation<'_>) -> Result<()> {
        (self.validate)(&mut self.trainable, batch, validation)
    }

    fn state(&mut self, visitor: &mut dyn StateVisitor) -> Result<()> {
        self.trainable.state(visitor)
    }

    fn description(&self) -> String {
        format!("{:?}", self.trainable.model())
    }
}

impl<M: fmt::Debug, T, V, F, G> fmt::Debug for FunctionTask<M, T, V, F, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionTask").field("trainable", &self.trainable).finish_non_exhaustive()
    }
}
