//! Optimizers, gradient clipping, loss scaling and learning-rate schedules.
//!
//! An [`Optimizer`] receives a model and its gradients, and returns the updated model:
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_nn::{GradientsParams, Module, Param};
//! use kiln_optim::{AdamConfig, Optimizer};
//! use kiln_tensor::{Autodiff, Backend, Tensor};
//!
//! type B = Autodiff<Flex>;
//!
//! #[derive(Debug, Module)]
//! struct Line<B: Backend> {
//!     slope: Param<Tensor<B, 1>>,
//! }
//!
//! let device = Default::default();
//! let mut model = Line::<B> { slope: Param::from_tensor(Tensor::from_floats([0.0], &device)) };
//! let mut optimizer = AdamConfig::new().init();
//! let (x, y) = (Tensor::<B, 1>::from_floats([1.0, 2.0], &device), Tensor::from_floats([3.0, 6.0], &device));
//! for _ in 0..200 {
//!     let loss = (x.clone() * model.slope.val() - y.clone()).square().mean();
//!     let gradients = GradientsParams::from_grads(loss.backward(), &model);
//!     model = optimizer.step(0.1, model, gradients);
//! }
//! assert!((model.slope.val().into_scalar::<f32>() - 3.0).abs() < 0.05);
//! # Ok::<(), kiln_optim::OptimError>(())
//! ```
//!
//! # Optimizers
//!
//! Each is an [`UpdateRule`] for one parameter, which [`PerParameter`] applies to a module. A custom optimizer
//! implements only `UpdateRule`. [`Lbfgs`] alone is an [`Optimizer`] of its own.
//!
//! | | optimizers |
//! |---|---|
//! | as in PyTorch: first order | [`Sgd`], [`Asgd`], [`Rprop`], [`Adagrad`], [`Adadelta`], [`RmsProp`] |
//! | as in PyTorch: Adam | [`Adam`], [`AdamW`], [`Adamax`], [`NAdam`], [`RAdam`], [`Adafactor`] |
//! | as in PyTorch: others | [`Muon`], [`Lbfgs`] |
//! | momentum | [`Lion`], [`Adan`] |
//! | large batches | [`Lars`], [`Lamb`] |
//! | second order | [`SophiaG`], [`Shampoo`], [`Soap`] |
//! | without a learning-rate schedule | [`ScheduleFreeSgd`], [`ScheduleFreeAdamW`] |
//! | little memory | [`Adafactor`]; any with [`with_8bit_state`](PerParameter::with_8bit_state) |
//!
//! # Steps
//!
//! * [`Optimizer::step`] returns the updated model; [`Optimizer::update`] changes it in place and returns a
//!   [`StepReport`]: number of updated parameters, parameters without a gradient, gradient norm.
//! * [`Optimizer::step_with`] evaluates a closure, for [`Lbfgs`].
//! * [`Optimizer::eval_model`] returns the model for evaluation, for the schedule-free optimizers.
//! * [`ParameterGroup`]s set update rule, learning rate, weight decay and clipping of the parameters that match a
//!   [pattern](kiln_nn::Pattern): `ParameterGroup::matching("backbone.**")`. The first group that contains a parameter
//!   applies.
//! * [`OptimizerState`] is the state of an optimizer, by the parameters' dotted names. Save it to resume exactly.
//! * [`lr_scheduler`] has learning-rate schedules: warm-up, cosine, 1cycle, reduction on a plateau, and others.
//! * [`ModelAverage`] averages the weights over the steps: EMA and SWA. [`update_batch_norm`] recomputes the running
//!   statistics of an averaged model.
//!
//! # Gradients
//!
//! A [`GradientPipeline`] in each optimizer treats gradients before the update, in this order:
//!
//! 1. accumulation over several batches: [`with_accumulation`](PerParameter::with_accumulation)
//! 2. loss scaling, which prevents underflow of 16-bit gradients: [`with_loss_scaler`](PerParameter::with_loss_scaler)
//! 3. clipping: [`with_grad_clipping`](PerParameter::with_grad_clipping)
//!
//! [`GradientsAccumulator`], [`LossScaler`] and [`clip_grad_norm`] do the same outside of an optimizer.
//!
//! Updates run below automatic differentiation and in place. The new value of a parameter reuses the memory of the old
//! one, unless the tensor has another owner, such as a loss that was not dropped.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod accumulate;
mod adam;
mod average;
mod blockwise;
mod clip;
mod config;
pub mod decay;
mod error;
mod group;
mod guard;
mod lbfgs;
pub mod lr_scheduler;
mod math;
mod matrix;
pub mod momentum;
mod objective;
mod optimizer;
mod parameter_state;
mod per_parameter;
mod pipeline;
mod report;
mod rule;
mod rules;
mod scaler;
mod sgd;
mod state;

/// Gradient clipping as an option of optimizers.
pub mod grad_clipping {
    pub use crate::clip::GradientClipping;
    /// [`GradientClipping`] under the name that Burn uses for its configuration.
    pub type GradientClippingConfig = GradientClipping;
}

pub use accumulate::GradientsAccumulator;
pub use adam::{Adam, AdamConfig, AdamRule, AdamW, AdamWConfig};
pub use average::{AverageState, EmaConfig, ModelAverage, SwaConfig, update_batch_norm};
pub use clip::{GradientClipping, Norm, clip_grad_norm, clip_grad_norm_with, clip_grad_value, grad_norm};
pub use error::{OptimError, Result};
pub use group::{ParameterGroup, StepOptions};
pub use kiln_nn::GradientsParams;
pub use lbfgs::{Lbfgs, LbfgsConfig, LineSearch};
pub use lr_scheduler::LearningRate;
pub use objective::{Evaluation, Objective};
pub use optimizer::Optimizer;
pub use parameter_state::ParameterState;
pub use per_parameter::PerParameter;
pub use pipeline::GradientPipeline;
pub use report::{StepOutcome, StepReport};
pub use rule::{Mode, SlotCode, Update, UpdateRule};
pub use rules::*;
pub use scaler::{LossScaler, LossScalerConfig, LossScalerState};
pub use sgd::{Sgd, SgdConfig, SgdRule};
pub use state::{OptimizerState, StateTensor};
