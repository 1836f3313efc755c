//! The training and validation step traits of models, and the output of a step.

use std::collections::BTreeMap;

use kiln_tensor::{AnyTensor, AutodiffBackend, Backend, Int, Tensor};

use crate::error::MetricError;

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
///
/// Its batches are on the [inner device](kiln_tensor::AutodiffBackend::inner_device): with `Dyn`, give the batcher of the
/// validation set `device.inner()`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be validated on batches of `{Batch}`",
    label = "`ValidStep<{Batch}>` is missing",
    note = "implement `ValidStep<{Batch}>` for the model, or use the task `Supervised`, which needs a loss alone"
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

/// The inputs of metrics for one batch: named tensors, detached from automatic differentiation, and named texts.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// The loss, of shape `[1]`, the mean over the items. `None` where a step has no single loss.
    pub loss: Option<AnyTensor>,
    /// Number of items in the batch.
    pub num_items: usize,
    /// The learning rate of the step's first optimizer. `None` without an update, as in validation.
    pub learning_rate: Option<f64>,
    /// Tensors by name.
    pub tensors: BTreeMap<&'static str, AnyTensor>,
    /// Texts by name, one for each item.
    pub texts: BTreeMap<&'static str, Vec<String>>,
}

/// The name of logits in an [`Observation`]: `[batch, classes]`.
pub const LOGITS: &str = "logits";

/// The name of targets in an [`Observation`]: class indices `[batch]`, or values of the shape of the predictions.
pub const TARGETS: &str = "targets";

/// The name of predictions in an [`Observation`]: values of the shape of the targets, such as those of a regression.
pub const PREDICTIONS: &str = "predictions";

impl Observation {
    /// Returns an observation of a batch with `num_items` items and no inputs.
    pub fn new(num_items: usize) -> Observation {
        Observation { num_items, ..Observation::default() }
    }

    kiln_ir::setters! {
        /// Adds the loss, of shape `[1]`: the mean over the items.
        with_loss(loss: AnyTensor) => loss = Some(below(loss));
    }

    /// Adds a tensor, detached from automatic differentiation.
    #[must_use]
    pub fn with(mut self, name: &'static str, tensor: AnyTensor) -> Observation {
        self.tensors.insert(name, below(tensor));
        self
    }

    /// Adds texts, one for each item.
    #[must_use]
    pub fn with_texts(mut self, name: &'static str, texts: Vec<String>) -> Observation {
        self.texts.insert(name, texts);
        self
    }

    /// Returns a tensor by name.
    ///
    /// # Errors
    /// [`MetricError::Missing`] when there is none.
    pub fn tensor(&self, name: &'static str) -> Result<AnyTensor, MetricError> {
        self.tensors.get(name).cloned().ok_or(MetricError::Missing { name })
    }

    /// Returns the texts of a name.
    ///
    /// # Errors
    /// [`MetricError::Missing`] when there are none.
    pub fn texts(&self, name: &'static str) -> Result<&[String], MetricError> {
        self.texts.get(name).map(Vec::as_slice).ok_or(MetricError::Missing { name })
    }
}

impl<B: Backend> StepOutput<B> {
    /// Returns the output with a loss of shape `[1]`, the mean over `num_items` items.
    pub fn new(loss: Tensor<B, 1>, num_items: usize) -> StepOutput<B> {
        let observation = Observation::new(num_items).with_loss(loss.clone().into_any());
        StepOutput { loss, observation }
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

    /// Returns the output of a regression: loss `[1]`, predictions and targets of one shape `[batch, ..]`.
    pub fn regression<const D: usize>(
        loss: Tensor<B, 1>,
        predictions: Tensor<B, D>,
        targets: Tensor<B, D>,
    ) -> StepOutput<B> {
        let num_items = targets.dims().first().copied().unwrap_or(1);
        let output = StepOutput::new(loss, num_items);
        output.with(PREDICTIONS, predictions.into_any()).with(TARGETS, targets.into_any())
    }

    /// Adds a tensor for metrics, detached from automatic differentiation.
    #[must_use]
    pub fn with(mut self, name: &'static str, tensor: AnyTensor) -> StepOutput<B> {
        self.observation = self.observation.with(name, tensor);
        self
    }

    /// Adds texts for metrics, one for each item.
    #[must_use]
    pub fn with_texts(mut self, name: &'static str, texts: Vec<String>) -> StepOutput<B> {
        self.observation = self.observation.with_texts(name, texts);
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

/// The tensor below automatic differentiation.
pub(crate) fn below(mut tensor: AnyTensor) -> AnyTensor {
    while tensor.stack().inner().is_some() {
        tensor = tensor.inner();
    }
    tensor
}
