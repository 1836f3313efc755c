//! The training and validation step traits of models, and the output of a step.

use std::collections::BTreeMap;

use kiln_tensor::{AnyTensor, AutodiffBackend, Backend, Int, Tensor};

/// A model that can be trained on batches of type `Batch`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be trained on batches of `{Batch}`",
    label = "`TrainStep<{Batch}>` is missing",
    note = "implement `TrainStep<{Batch}>` for the model: its `step` returns the loss of a batch"
)]
pub trait TrainStep<Batch> {
    /// The backend of the model.
    type Backend: AutodiffBackend;

    /// Computes the loss of a batch and the tensors for metrics. The trainer computes the gradients and runs the
    /// optimizer.
    fn step(&self, batch: Batch) -> StepOutput<Self::Backend>;
}

/// A model, on a backend without automatic differentiation, that can be validated on batches of type `Batch`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be validated on batches of `{Batch}`",
    label = "`ValidStep<{Batch}>` is missing",
    note = "implement `ValidStep<{Batch}>` for the model, or train it with `fit_without_validation`"
)]
pub trait ValidStep<Batch> {
    /// The backend of the model.
    type Backend: Backend;

    /// Computes the loss of a batch and the tensors for metrics.
    fn step(&self, batch: Batch) -> StepOutput<Self::Backend>;
}

/// The output of a step: the mean loss, the number of items, and named tensors for metrics.
#[derive(Clone, Debug)]
pub struct StepOutput<B: Backend> {
    loss: Tensor<B, 1>,
    observation: Observation,
}

/// The part of a step's output that metrics read. Its tensors are detached and untyped.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The loss, of shape `[1]`.
    pub loss: AnyTensor,
    /// Number of items in the batch.
    pub num_items: usize,
    /// Tensors by name.
    pub tensors: BTreeMap<&'static str, AnyTensor>,
}

/// The name of logits, `[batch, classes]`, in a [`StepOutput`].
pub const LOGITS: &str = "logits";

/// The name of targets in a [`StepOutput`]; class indices are `[batch]`.
pub const TARGETS: &str = "targets";

impl<B: Backend> StepOutput<B> {
    /// Returns the output with a loss of shape `[1]`, the mean over `num_items` items.
    pub fn new(loss: Tensor<B, 1>, num_items: usize) -> StepOutput<B> {
        let seen = below(loss.clone().into_any());
        StepOutput { loss, observation: Observation { loss: seen, num_items, tensors: BTreeMap::new() } }
    }

    /// Returns the output of a classifier: loss `[1]`, logits `[batch, classes]` and target classes `[batch]`.
    /// [`Accuracy`](crate::Accuracy) reads these.
    pub fn classification(
        loss: Tensor<B, 1>,
        logits: Tensor<B, 2>,
        targets: Tensor<B, 1, Int>,
    ) -> StepOutput<B> {
        let [num_items] = targets.dims();
        StepOutput::new(loss, num_items).with(LOGITS, logits.into_any()).with(TARGETS, targets.into_any())
    }

    /// Adds a tensor for metrics, detached from automatic differentiation.
    #[must_use]
    pub fn with(mut self, name: &'static str, tensor: AnyTensor) -> StepOutput<B> {
        self.observation.tensors.insert(name, below(tensor));
        self
    }

    /// Returns the loss.
    pub fn loss(&self) -> &Tensor<B, 1> {
        &self.loss
    }

    /// Returns the part of the output that metrics read.
    pub fn observation(&self) -> &Observation {
        &self.observation
    }

    pub(crate) fn into_parts(self) -> (Tensor<B, 1>, Observation) {
        (self.loss, self.observation)
    }
}

fn below(mut tensor: AnyTensor) -> AnyTensor {
    while tensor.stack().inner().is_some() {
        tensor = tensor.inner();
    }
    tensor
}
