//! Training loops.
//!
//! A model defines one step by [`TrainStep`] and [`ValidStep`]. A [`Trainer`] runs the training loop:
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_data::{DataError, DataLoaderBuilder, InMemoryDataset};
//! use kiln_nn::{Linear, LinearConfig, Module};
//! use kiln_optim::AdamConfig;
//! use kiln_tensor::{Autodiff, AutodiffBackend, Backend, Int, Tensor, loss};
//! use kiln_train::{Accuracy, StepOutput, TrainStep, Trainer, ValidStep};
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
//! let mut trainer = Trainer::new(model, AdamConfig::new().init(), 0.1)
//!     .epochs(3)
//!     .metric(Accuracy::new())
//!     .progress(false);
//! let history = trainer.fit(&train, &valid)?;
//! assert_eq!(history.losses.len(), 30);
//! assert!(history.epochs[2].valid.as_ref().unwrap().metric("accuracy").unwrap() > 0.9);
//! let model = trainer.into_model();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * [`Metric`]s: the loss is always reported, [`Accuracy`] and top-k accuracy are built in, and custom metrics
//!   implement a small trait.
//! * [`EarlyStopping`], checkpoints of the [best](Trainer::keep_best) and the [last](Trainer::keep_last) epoch,
//!   [`Interrupter`], and bit-exact [resuming](Trainer::resume).
//! * Failures are returned as a [`TrainError`] with epoch and step.
//! * [`evaluate`] computes loss and metrics of a model without training.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod error;
mod fit;
mod folders;
mod history;
mod meter;
pub mod metric;
mod output;
mod progress;
mod stopping;
mod trainer;

pub use error::{MetricError, Result, TrainError, TrainPosition};
pub use fit::evaluate;
pub use history::{EpochReport, History, Scores, StepReport, StopReason};
pub use metric::{Accuracy, Metric};
pub use output::{LOGITS, Observation, StepOutput, TARGETS, TrainStep, ValidStep};
pub use stopping::{EarlyStopping, Interrupter, Monitor};
pub use trainer::Trainer;
