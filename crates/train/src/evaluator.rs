//! Evaluation and prediction without training.

use kiln_data::DataLoader;

use crate::error::{Result, TrainError, TrainPosition};
use crate::history::Scores;
use crate::learner::guarded;
use crate::loader::Loader;
use crate::metric::Metric;
use crate::observation::{Observation, ValidStep};
use crate::pass::Pass;
use crate::step::Validation;

/// Evaluates a model on batches, without a task.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Int, Tensor};
/// use kiln_train::{Accuracy, Evaluator, StepOutput, loader::TensorLoader};
///
/// let logits = Tensor::<Flex, 2>::from([[2.0, 1.0], [0.0, 1.0], [3.0, 0.0]]);
/// let targets = Tensor::<Flex, 1, Int>::from([0, 1, 1]);
/// let loader = TensorLoader::new((logits, targets)).batch_size(2);
/// let mut evaluator = Evaluator::new().metric(Accuracy::new());
/// let scores = evaluator.evaluate(&loader, |(logits, targets)| {
///     let loss = kiln_tensor::loss::cross_entropy(logits.clone(), targets.clone(), &Default::default());
///     StepOutput::classification(loss, logits, targets)
/// })?;
/// assert_eq!(scores.metric("accuracy"), Some(2.0 / 3.0));
/// # Ok::<(), kiln_train::TrainError>(())
/// ```
#[derive(Debug, Default)]
pub struct Evaluator {
    metrics: Vec<Box<dyn Metric>>,
}

impl Evaluator {
    /// Returns an evaluator without metrics: it computes the loss alone.
    pub fn new() -> Evaluator {
        Evaluator::default()
    }

    /// Adds a metric.
    #[must_use]
    pub fn metric(mut self, metric: impl Metric + 'static) -> Evaluator {
        self.metrics.push(Box::new(metric));
        self
    }

    /// Evaluates a function from a batch to its observation on epoch 0 of a loader.
    ///
    /// # Errors
    /// When a batch cannot be loaded, the function panics (as typed tensors do on shape mismatches), a metric lacks an
    /// input, or the device failed. A NaN loss is not an error.
    pub fn evaluate<Batch, O: Into<Observation>>(
        &mut self,
        loader: &dyn Loader<Batch>,
        mut step: impl FnMut(Batch) -> O,
    ) -> Result<Scores> {
        let pass = Pass { loader, metrics: &self.metrics, epoch: 0, limit: u64::MAX };
        let observe = |batch, validation: &mut Validation<'_>| {
            validation.observe(step(batch));
            Ok(())
        };
        pass.run(observe, |_| {})
    }

    /// Returns the predictions of a function for each batch of epoch 0 of a loader.
    ///
    /// # Errors
    /// When a batch cannot be loaded, or the function panics.
    pub fn predict<Batch, O>(
        &self,
        loader: &dyn Loader<Batch>,
        mut predict: impl FnMut(Batch) -> O,
    ) -> Result<Vec<O>> {
        let mut place = TrainPosition { validation: true, ..TrainPosition::default() };
        let mut predictions = Vec::new();
        for batch in loader.batches(0, 0) {
            let batch = batch.map_err(|source| TrainError::Data { place, source })?;
            predictions.push(guarded(place, || predict(batch))?);
            place.step += 1;
            place.batch += 1;
        }
        Ok(predictions)
    }
}

/// Evaluates a model on all batches of a loader's epoch 0. Returns the mean loss and the metrics.
///
/// # Errors
/// See [`Evaluator::evaluate`].
pub fn evaluate<M, V>(model: &M, loader: &DataLoader<V>, metrics: &[Box<dyn Metric>]) -> Result<Scores>
where
    V: Send + 'static,
    M: ValidStep<V>,
{
    let mut evaluator = Evaluator { metrics: metrics.iter().map(|metric| metric.fresh()).collect() };
    evaluator.evaluate(loader, |batch| ValidStep::step(model, batch))
}
