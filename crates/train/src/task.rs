//! Tasks: the training and validation steps of a user, and the state that a checkpoint keeps.

mod data_parallel;
mod function;
mod model;
mod supervised;

use std::collections::BTreeMap;

use kiln_nn::Module;
use kiln_optim::{LearningRate, Optimizer};
use kiln_store::json;
use kiln_tensor::TensorData;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use data_parallel::DataParallel;
pub(crate) use data_parallel::Replica;
pub use function::FunctionTask;
pub use model::ModelTask;
pub use supervised::Supervised;

use crate::error::Result;
use crate::step::{Step, Validation};

/// A task that a [`Learner`](crate::Learner) trains: it owns models, optimizers and schedules, and defines one step.
///
/// [`Supervised`] is the short form for one model and one loss, [`ModelTask`] for a model that implements
/// [`TrainStep`](crate::TrainStep), and [`FunctionTask`] for closures.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{Linear, LinearConfig};
/// use kiln_optim::SgdConfig;
/// use kiln_tensor::{Autodiff, Tensor};
/// use kiln_train::{Learner, Observation, StateVisitor, Step, Task, Trainable, Validation, loader::Stream};
///
/// type B = Autodiff<Flex>;
///
/// /// Two models that imitate each other.
/// struct Twins {
///     left: Trainable<Linear<B>>,
///     right: Trainable<Linear<B>>,
/// }
///
/// impl Task for Twins {
///     type Batch = Tensor<B, 2>;
///     type ValidBatch = Tensor<B, 2>;
///
///     fn train(&mut self, batch: Tensor<B, 2>, step: &mut Step<'_>) -> kiln_train::Result<()> {
///         let target = self.right.forward(batch.clone()).detach();
///         let loss = (self.left.forward(batch.clone()) - target).square().mean();
///         step.backward(loss, &mut self.left)?;
///         let target = self.left.forward(batch.clone()).detach();
///         let loss = (self.right.forward(batch) - target).square().mean();
///         step.backward(loss, &mut self.right)?;
///         Ok(())
///     }
///
///     fn validate(&mut self, batch: Tensor<B, 2>, validation: &mut Validation<'_>) -> kiln_train::Result<()> {
///         let difference = self.left.forward(batch.clone()) - self.right.forward(batch);
///         validation.log("difference", difference.abs().mean());
///         Ok(())
///     }
///
///     fn state(&mut self, visitor: &mut dyn StateVisitor) -> kiln_train::Result<()> {
///         self.left.state(visitor)?;
///         self.right.state(visitor)
///     }
/// }
///
/// let device = Default::default();
/// let trainable = || Trainable::new(LinearConfig::new(2, 1).init(&device), SgdConfig::new().init(), 0.1);
/// let batches = Stream::new(|_epoch| std::iter::repeat_with(|| Ok(Tensor::from([[1.0, 2.0], [-1.0, 0.5]]))));
/// let twins = Twins { left: trainable().named("left"), right: trainable().named("right") };
/// let mut learner = Learner::new(twins).max_steps(50).silent();
/// let history = learner.fit_without_validation(&batches)?;
/// let losses = &history.values["left loss"];
/// assert!(losses[49] < losses[0]);
/// # Ok::<(), kiln_train::TrainError>(())
/// ```
pub trait Task: Send {
    /// The type of training batches.
    type Batch: Send + 'static;

    /// The type of validation batches.
    type ValidBatch: Send + 'static;

    /// Trains on a batch: computes losses and updates models by [`Step::backward`], any number of times.
    ///
    /// # Errors
    /// The learner ends training with the error. A panic, as typed tensors do on shape mismatches, becomes an error
    /// too.
    fn train(&mut self, batch: Self::Batch, step: &mut Step<'_>) -> Result<()>;

    /// Validates on a batch: passes inputs of metrics to [`Validation::observe`].
    ///
    /// # Errors
    /// See [`train`](Task::train).
    fn validate(&mut self, batch: Self::ValidBatch, validation: &mut Validation<'_>) -> Result<()>;

    /// Passes all state to a visitor: models, optimizers, schedules and values. A checkpoint contains it. The names and
    /// their order must not depend on the state.
    ///
    /// # Errors
    /// The error of the visitor.
    fn state(&mut self, visitor: &mut dyn StateVisitor) -> Result<()>;

    /// Prepares validation, such as a copy of a model for inference. Default: does nothing.
    ///
    /// # Errors
    /// The learner ends training with the error.
    fn start_validation(&mut self) -> Result<()> {
        Ok(())
    }

    /// Ends validation. Default: does nothing.
    fn end_validation(&mut self) {}

    /// Returns a description for logs, such as the model as text. Default: the name of the type.
    fn description(&self) -> String {
        std::any::type_name::<Self>().to_owned()
    }
}

/// Visits the state of a task or a callback: it saves, loads or observes it. Each method does nothing by default.
///
/// Names consist of lower-case letters, digits, `_` and `.`, and are unique.
pub trait StateVisitor {
    /// Called before the state of replica `rank` of a [data-parallel](crate::DataParallel) task, and with 0 after the
    /// last. Returns whether to visit the replica: it has the names of replica 0, which is visited first. A visitor that
    /// changes the state visits every replica. Default: no, as for a visitor that reads the state.
    fn replica(&mut self, rank: usize) -> bool {
        let _ = rank;
        false
    }

    /// Visits a module.
    ///
    /// # Errors
    /// When it cannot be saved or loaded.
    fn module(&mut self, name: &str, module: &mut dyn Module) -> Result<()> {
        let _ = (name, module);
        Ok(())
    }

    /// Visits an optimizer of a module.
    ///
    /// # Errors
    /// When it cannot be saved or loaded.
    fn optimizer(&mut self, name: &str, optimizer: &mut dyn Optimizer, module: &dyn Module) -> Result<()> {
        let _ = (name, optimizer, module);
        Ok(())
    }

    /// Visits the learning rate that replaces that of a schedule: `None` unless one is
    /// [searched](crate::Learner::find_learning_rate).
    fn fixed_learning_rate(&mut self, name: &str, learning_rate: &mut Option<f64>) {
        let _ = (name, learning_rate);
    }

    /// Visits a learning-rate schedule. `step` is the index of its next update.
    ///
    /// # Errors
    /// When it cannot be saved or loaded.
    fn schedule(&mut self, name: &str, schedule: &mut dyn LearningRate, step: u64) -> Result<()> {
        let _ = (name, schedule, step);
        Ok(())
    }

    /// Visits a value: anything that serde saves and loads. NaN and infinity are kept, at any depth: see
    /// [`kiln_store::json`].
    ///
    /// # Errors
    /// When it cannot be saved or loaded. A value that could be saved but not loaded is an error when it is saved.
    fn value(&mut self, name: &str, value: &mut dyn StateValue) -> Result<()> {
        let _ = (name, value);
        Ok(())
    }

    /// Visits named arrays.
    ///
    /// # Errors
    /// When they cannot be saved or loaded.
    fn tensors(&mut self, name: &str, tensors: &mut dyn StateTensors) -> Result<()> {
        let _ = (name, tensors);
        Ok(())
    }
}

/// A value that a checkpoint keeps as [JSON with NaN and infinity](kiln_store::json). All types that serde serializes and
/// deserializes implement it.
pub trait StateValue {
    /// Returns the value as JSON.
    ///
    /// # Errors
    /// When serde fails, or cannot load the JSON.
    fn save(&self) -> serde_json::Result<serde_json::Value>;

    /// Replaces the value.
    ///
    /// # Errors
    /// When the JSON is of another type. The value is then unchanged.
    fn load(&mut self, json: &serde_json::Value) -> serde_json::Result<()>;
}

impl<V: Serialize + DeserializeOwned> StateValue for V {
    fn save(&self) -> serde_json::Result<serde_json::Value> {
        let value = json::to_value(self)?;
        json::from_value::<V>(&value)?;
        Ok(value)
    }

    fn load(&mut self, json: &serde_json::Value) -> serde_json::Result<()> {
        *self = json::from_value(json)?;
        Ok(())
    }
}

/// Named arrays that a checkpoint keeps bit for bit. A map of them implements it.
pub trait StateTensors {
    /// Returns the arrays. May wait for the device.
    ///
    /// # Errors
    /// When the device failed.
    fn save(&mut self) -> Result<BTreeMap<String, TensorData>>;

    /// Replaces the arrays.
    ///
    /// # Errors
    /// When they belong to another object, which is then unchanged.
    fn load(&mut self, tensors: BTreeMap<String, TensorData>) -> Result<()>;
}

impl StateTensors for BTreeMap<String, TensorData> {
    fn save(&mut self) -> Result<BTreeMap<String, TensorData>> {
        Ok(self.clone())
    }

    fn load(&mut self, tensors: BTreeMap<String, TensorData>) -> Result<()> {
        *self = tensors;
        Ok(())
    }
}
