//! Objectives: modules whose loss can be evaluated again.

use crate::error::Result;
use kiln_nn::{GradientsParams, Module};
use kiln_tensor::{AnyTensor, Backend, Tensor};

/// Loss and gradients of a module at its current parameters. A pair of a loss tensor and gradients converts into it.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The loss: one element of a float dtype, below automatic differentiation.
    pub loss: AnyTensor,
    /// The gradients of the loss.
    pub gradients: GradientsParams,
}

impl<B: Backend, const D: usize> From<(Tensor<B, D>, GradientsParams)> for Evaluation {
    fn from((loss, gradients): (Tensor<B, D>, GradientsParams)) -> Evaluation {
        // Without the tape, the parameters have no other owner.
        Evaluation { loss: loss.into_any().inner(), gradients }
    }
}

/// A module with its loss function, for [`Optimizer::update_with`](crate::Optimizer::update_with).
/// [`Optimizer::step_with`](crate::Optimizer::step_with) builds one from a closure.
pub trait Objective {
    /// Returns the module.
    fn module_mut(&mut self) -> &mut dyn Module;

    /// Returns loss and gradients at the module's current parameters.
    ///
    /// # Errors
    /// When the computation fails.
    fn evaluate(&mut self) -> Result<Evaluation>;
}

/// An objective of a module and a closure.
pub(crate) struct Bound<M, F> {
    pub(crate) module: M,
    pub(crate) evaluate: F,
}

impl<M: Module, F: FnMut(&M) -> Evaluation> Objective for Bound<M, F> {
    fn module_mut(&mut self) -> &mut dyn Module {
        &mut self.module
    }

    fn evaluate(&mut self) -> Result<Evaluation> {
        Ok((self.evaluate)(&self.module))
    }
}
