//! Reports of optimizer steps.

use crate::clip::read;
use crate::error::Result;
use alloc::string::String;
use alloc::vec::Vec;
use kiln_tensor::AnyTensor;

/// The outcome of a call of [`Optimizer::update`](crate::Optimizer::update).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// The step was applied.
    Applied,
    /// The gradients were accumulated; a later call does the step.
    Accumulated,
    /// The step was skipped, and the loss scale reduced, because a gradient was NaN or infinite.
    SkippedNonFinite,
}

/// The report of a step.
///
/// A step on an asynchronous engine may still be refused by a later call: see
/// [`Optimizer::update`](crate::Optimizer::update).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{GradientsParams, Linear, LinearConfig};
/// use kiln_optim::{Optimizer, SgdConfig, StepOutcome};
/// use kiln_tensor::{Autodiff, Tensor};
///
/// let mut model: Linear<Autodiff<Flex>> = LinearConfig::new(2, 1).init(&Default::default());
/// let mut optimizer = SgdConfig::new().init().with_gradient_norm(true);
/// let loss = model.forward(Tensor::from([[3.0, 4.0]])).sum();
/// let gradients = GradientsParams::from_grads(loss.backward(), &model);
/// let report = optimizer.update(0.1, &mut model, gradients)?;
/// assert_eq!((report.outcome, report.updated), (StepOutcome::Applied, 2));
/// assert_eq!(report.gradient_norm()?, Some(26f64.sqrt() as f32 as f64));
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StepReport {
    /// The outcome.
    pub outcome: StepOutcome,
    /// The index of the step, counted from 1 since the optimizer was made. That of an accumulated pass is the step that it
    /// belongs to. 0 where the optimizer does not count.
    pub step: u64,
    /// With gradient accumulation the index of the pass within the step, counted from 1.
    pub pass: Option<u64>,
    /// The number of updated parameters.
    pub updated: usize,
    /// The dotted names of trainable parameters without a gradient. Empty unless the step was applied.
    pub without_gradient: Vec<String>,
    /// The parameter groups that no parameter of the module belongs to, trainable or frozen: their patterns, or `group N`,
    /// counted from 0, for a predicate. Empty unless the step was applied.
    pub unmatched_groups: Vec<String>,
    /// A warning, at the first step that updated no parameter, and at the first with an unmatched group. With the feature
    /// `std` it was also printed.
    pub warning: Option<String>,
    norm: Option<AnyTensor>,
}

impl StepReport {
    /// Returns a report without gradient norm and warning.
    pub fn new(outcome: StepOutcome, updated: usize) -> StepReport {
        StepReport {
            outcome,
            step: 0,
            pass: None,
            updated,
            without_gradient: Vec::new(),
            unmatched_groups: Vec::new(),
            warning: None,
            norm: None,
        }
    }

    /// Sets the index of the step, and that of the pass with gradient accumulation.
    #[must_use]
    pub fn of_step(mut self, step: u64, pass: Option<u64>) -> StepReport {
        (self.step, self.pass) = (step, pass);
        self
    }

    /// Sets the global norm of the gradients, one element of any float dtype.
    #[must_use]
    pub fn with_norm(mut self, norm: Option<AnyTensor>) -> StepReport {
        self.norm = norm;
        self
    }

    /// Returns whether the step was applied.
    pub fn is_applied(&self) -> bool {
        self.outcome == StepOutcome::Applied
    }

    /// Returns the global L2 norm of the unscaled gradients before clipping. Waits for the device.
    ///
    /// `None` unless the optimizer clips by the global norm, or
    /// [computes the norm](crate::PerParameter::with_gradient_norm) for reports.
    ///
    /// # Errors
    /// When a gradient is in error, or the device failed.
    pub fn gradient_norm(&self) -> Result<Option<f64>> {
        self.norm.clone().map(read).transpose()
    }
}

/// The gradients of a step that updated no parameter, to explain it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Census {
    /// Number of gradients that the step received.
    pub(crate) gradients: usize,
    /// Number of trainable parameters.
    pub(crate) trainable: usize,
    /// Number of frozen parameters.
    pub(crate) frozen: usize,
}

impl Census {
    /// The likely reason why no parameter was updated.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Census { trainable: 0, frozen: 0, .. } => "the module has no parameters",
            Census { trainable: 0, .. } => "all parameters are frozen; `unfreeze` makes them trainable",
            Census { gradients: 0, .. } => {
                "there are no gradients; the loss must depend on the parameters of this module, on an autodiff backend"
            }
            Census { .. } => {
                "the gradients are those of other parameters; compute them from this module, with \
                 `GradientsParams::from_grads(loss.backward(), &model)`"
            }
        }
    }
}

/// Prints a warning on standard error. Does nothing without the feature `std`.
pub(crate) fn print(warning: &str) {
    #[cfg(feature = "std")]
    std::eprintln!("{warning}");
    #[cfg(not(feature = "std"))]
    let _ = warning;
}

#[cfg(test)]
mod tests {
    use super::Census;

    #[test]
    fn the_reason_follows_from_gradients_and_roles() {
        let reason = |gradients, trainable, frozen| Census { gradients, trainable, frozen }.reason();
        assert!(reason(0, 0, 0).contains("no parameters"));
        assert!(reason(2, 0, 2).contains("frozen"));
        assert!(reason(0, 2, 0).contains("no gradients"));
        assert!(reason(2, 2, 1).contains("other parameters"));
    }
}
