//! Training of a model that defines its own steps.

use std::fmt;
use std::marker::PhantomData;

use kiln_nn::{AutodiffModule, Module};
use kiln_optim::{LearningRate, Optimizer};

use super::{StateVisitor, Task};
use crate::error::Result;
use crate::observation::{TrainStep, ValidStep};
use crate::step::{Step, Validation};
use crate::trainable::Trainable;

/// Training of a model that implements [`TrainStep`] for its batches, and whose
/// [inference copy](AutodiffModule::valid) implements [`ValidStep`]. See the [crate](crate) for an example.
///
/// `T` is the type of training batches and `V` that of validation batches.
pub struct ModelTask<M, T, V>
where
    M: TrainStep<T> + AutodiffModule<<M as TrainStep<T>>::Backend>,
{
    trainable: Trainable<M>,
    /// The copy for inference, during validation.
    evaluated: Option<M::InnerModule>,
    batches: PhantomData<fn(T, V)>,
}

impl<M, T, V> ModelTask<M, T, V>
where
    M: TrainStep<T> + AutodiffModule<<M as TrainStep<T>>::Backend>,
{
    /// Returns a task of a model, an optimizer and a learning rate.
    pub fn new(
        model: M,
        optimizer: impl Optimizer + 'static,
        learning_rate: impl LearningRate + 'static,
    ) -> ModelTask<M, T, V> {
        let trainable = Trainable::new(model, optimizer, learning_rate);
        ModelTask { trainable, evaluated: None, batches: PhantomData }
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
    pub fn model(&self) -> &M {
        self.trainable.model()
    }

    /// Returns the model and drops the optimizer.
    pub fn into_model(self) -> M {
        self.trainable.into_model()
    }
}

impl<M, T, V> Task for ModelTask<M, T, V>
where
    M: TrainStep<T> + AutodiffModule<<M as TrainStep<T>>::Backend>,
    M::InnerModule: ValidStep<V>,
    T: Send + 'static,
    V: Send + 'static,
{
    type Batch = T;
    type ValidBatch = V;

    fn train(&mut self, batch: T, step: &mut Step<'_>) -> Result<()> {
        let (loss, observation) = TrainStep::step(self.trainable.model(), batch).into_parts();
        step.observe(observation);
        step.backward(loss, &mut self.trainable).map(|_| ())
    }

    fn start_validation(&mut self) -> Result<()> {
        let mut model = self.trainable.model().valid();
        self.trainable.optimizer().enter_eval(&mut model)?;
        self.evaluated = Some(model);
        Ok(())
    }

    fn validate(&mut self, batch: V, validation: &mut Validation<'_>) -> Result<()> {
        match &self.evaluated {
            Some(model) => validation.observe(ValidStep::step(model, batch)),
            None => validation.observe(ValidStep::step(&self.trainable.model().valid(), batch)),
        }
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

impl<M, T, V> fmt::Debug for ModelTask<M, T, V>
where
    M: TrainStep<T> + AutodiffModule<<M as TrainStep<T>>::Backend> + Module,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelTask").field("trainable", &self.trainable).finish_non_exhaustive()
    }
}
