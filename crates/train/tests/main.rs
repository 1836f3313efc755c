//! The tests of the crate, in one program.

mod learner;
mod loggers;
#[cfg(feature = "tensorboard")]
mod loggers_tensorboard;
mod metrics_values;
mod metrics_vision;
mod options;
mod profiler;
mod tasks;
