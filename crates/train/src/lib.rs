//! Training loops.
//!
//! A model defines one step by [`TrainStep`] and [`ValidStep`]. A [`Learner`] runs the training loop:
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_data::{DataError, DataLoaderBuilder, InMemoryDataset};
//! use kiln_nn::{Linear, LinearConfig, Module};
//! use kiln_optim::AdamConfig;
//! use kiln_tensor::{Autodiff, AutodiffBackend, Backend, Int, Tensor, loss};
//! use kiln_train::{Accuracy, Learner, ModelTask, StepOutput, TrainStep, ValidStep};
//!
//! #[derive(Debug, Module)]
//! struct Net<B: Backend> {
//!     linear: Linear<B>,
//! }
//!
//! struct Batch<B: Backend> {
//!     points: Tensor<B, 2>,
//!     classes: Tensor<B, 1, Int>,
//! }
//!
//! impl<B: Backend> Net<B> {
//!     fn classify(&self, batch: Batch<B>) -> StepOutput<B> {
//!         let logits = self.linear.forward(batch.points);
//!         let loss = loss::cross_entropy(logits.clone(), batch.classes.clone(), &Default::default());
//!         StepOutput::classification(loss, logits, batch.classes)
//!     }
//! }
//!
//! impl<B: AutodiffBackend> TrainStep<Batch<B>> for Net<B> {
//!     type Backend = B;
//!     fn step(&self, batch: Batch<B>) -> StepOutput<B> {
//!         self.classify(batch)
//!     }
//! }
//!
//! impl<B: Backend> ValidStep<Batch<B>> for Net<B> {
//!     type Backend = B;
//!     fn step(&self, batch: Batch<B>) -> StepOutput<B> {
//!         self.classify(batch)
//!     }
//! }
//!
//! /// Is the number positive?
//! fn batch<B: Backend>(items: Vec<f32>) -> Result<Batch<B>, DataError> {
//!     let device = Default::default();
//!     let classes: Vec<i32> = items.iter().map(|&x| i32::from(x > 0.0)).collect();
//!     let points = Tensor::<B, 1>::from_floats(items.as_slice(), &device).unsqueeze_dim::<2>(1);
//!     Ok(Batch { points, classes: Tensor::from_ints(classes, &device) })
//! }
//!
//! type B = Autodiff<Flex>;
//! let numbers = InMemoryDataset::new((-50..50).map(|x| x as f32 / 10.0 + 0.05).collect::<Vec<_>>());
//! let train = DataLoaderBuilder::new(batch::<B>).batch_size(10).shuffle(7).build(numbers.clone())?;
//! let valid = DataLoaderBuilder::new(batch::<Flex>).batch_size(50).build(numbers)?;
//!
//! B::seed(&Default::default(), 7);
//! let model = Net::<B> { linear: LinearConfig::new(1, 2).init(&Default::default()) };
//! let task = ModelTask::new(model, AdamConfig::new().init(), 0.1);
//! let mut learner = Learner::new(task).epochs(3).metric(Accuracy::new()).silent();
//! let history = learner.fit(&train, &valid)?;
//! assert_eq!(history.losses.len(), 30);
//! assert!(history.epochs[2].valid().unwrap().metric("accuracy").unwrap() > 0.9);
//! let model = learner.into_task().into_model();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Tasks
//!
//! A [`Task`] owns models, optimizers and schedules, and defines one step: [`Step::backward`] updates a model, any number
//! of times in a step. [`ModelTask`] is the task of a model with [`TrainStep`], [`Supervised`] that of a model and a loss,
//! and [`FunctionTask`] that of two closures. [`DataParallel`] trains replicas of a task on several devices. A [`Loader`] produces batches: a data loader, a stream, or tensors.
//!
//! # Around the steps
//!
//! * [`metric`]: metrics with named values, for training and validation.
//! * [`callback`]: code at the events of training, with access to the task: [`EarlyStopping`], [`KeepBest`],
//!   [`KeepLast`], [`Profiler`], and your own.
//! * [`logger`] and [`renderer`]: they write and show the [`Record`]s of a run.
//! * Checkpoints contain all state, and a [resumed](Learner::resume) run is bit-identical, metrics included. A thread
//!   writes them while training continues.
//! * [`Evaluator`]: metrics and predictions without training.
//! * Failures are returned as a [`TrainError`] with epoch and step.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod callback;
mod error;
mod evaluator;
mod folders;
mod history;
#[cfg(feature = "signals")]
pub mod interrupt;
mod interrupter;
mod interval;
mod learner;
pub mod loader;
pub mod logger;
mod meter;
pub mod metric;
mod monitor;
mod observation;
mod pass;
mod record;
pub mod renderer;
mod snapshot;
mod step;
pub mod system;
mod task;
mod trainable;
mod usage;
mod weights;

pub use callback::{
    Callback, Context, Control, EarlyStopping, Event, GradientStatistics, KeepBest, KeepLast, Profiler,
    RestoreBest, WeightAverage,
};
pub use error::{LoggerError, MetricError, Result, TrainError, TrainPosition};
pub use evaluator::{Evaluator, evaluate};
pub use history::{EpochReport, History, Scores, StopReason};
pub use interrupter::Interrupter;
pub use interval::Interval;
pub use learner::{Learner, LearningRateCurve, LearningRateFinder, LearningRatePoint};
pub use loader::{Loader, LoaderIdentity};
pub use logger::Logger;
pub use metric::{Accuracy, Metric, MetricValue};
pub use monitor::Monitor;
pub use observation::{LOGITS, Observation, PREDICTIONS, StepOutput, TARGETS, TrainStep, ValidStep};
pub use record::{
    Level, MetricDescription, PassProgress, Record, RunDescription, Split, StepRecord, ValuesRecord,
};
pub use renderer::Renderer;
pub use step::{GradientsEvent, Loggable, Step, Validation};
pub use task::{
    DataParallel, FunctionTask, ModelTask, StateTensors, StateValue, StateVisitor, Supervised, Task,
};
pub use trainable::Trainable;
pub use usage::{Activity, ActivityTime, DeviceMemory, Usage};
