//! Means of the loss, of named tensors and of the learning rate.

use super::shape::wide;
use super::{Accumulated, Accumulator, MetricRule, MetricValues};
use crate::error::MetricError;
use crate::observation::Observation;

/// The mean loss over all items, `loss`: each batch's loss is weighted by its number of items.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::Tensor;
/// use kiln_train::metric::LossMetric;
/// use kiln_train::{Metric, Observation};
///
/// let mut loss = LossMetric::new();
/// for (items, value) in [(3, 2.0), (1, 4.0)] {
///     let value = Tensor::<Flex, 1>::from_floats([value], &Default::default());
///     loss.update(&Observation::new(items).with_loss(value.into_any()))?;
/// }
/// assert_eq!(loss.values()?.main(), Some(2.5));
/// # Ok::<(), kiln_train::MetricError>(())
/// ```
pub type LossMetric = Accumulated<LossRule>;

/// The rule of [`LossMetric`].
#[derive(Clone, Debug, Default)]
pub struct LossRule;

impl MetricRule for LossRule {
    crate::metric::facts!("loss", higher is better: false, "loss" / "items");

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let loss = observation.loss.clone().ok_or(MetricError::Missing { name: "loss" })?;
        if observation.num_items == 0 {
            return Ok(());
        }
        let items = observation.num_items as f64;
        sums.count("items", items);
        sums.sum("loss", wide(loss)?.mean()?.mul_scalar(items)?)
    }
}

/// The mean over all elements of a tensor of the observation, of any shape.
pub type MeanMetric = Accumulated<MeanRule>;

/// The rule of [`MeanMetric`].
#[derive(Clone, Debug)]
pub struct MeanRule {
    tensor: &'static str,
    higher_is_better: bool,
}

impl MeanMetric {
    /// Returns the metric of a tensor, under its name. A higher value is better.
    pub fn new(tensor: &'static str) -> MeanMetric {
        MeanMetric::of(MeanRule { tensor, higher_is_better: true })
    }

    kiln_ir::setters! {
        /// A lower value is better.
        lower_is_better() => rule.higher_is_better = false;
    }
}

impl MetricRule for MeanRule {
    fn name(&self) -> String {
        self.tensor.to_owned()
    }

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        add_mean(sums, observation, self.tensor)
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        Ok(MetricValues::scalar(name, mean(sums)?))
    }

    fn higher_is_better(&self) -> bool {
        self.higher_is_better
    }
}

/// Adds the elements of a tensor to a mean.
pub(super) fn add_mean(
    sums: &mut Accumulator,
    observation: &Observation,
    name: &'static str,
) -> Result<(), MetricError> {
    let tensor = wide(observation.tensor(name)?)?;
    sums.count("elements", tensor.shape().num_elements() as f64);
    sums.sum("sum", tensor.sum()?)
}

/// The mean of all added elements.
pub(super) fn mean(sums: &mut Accumulator) -> Result<f64, MetricError> {
    sums.ratio("sum", "elements")
}

/// The learning rate, `learning_rate`: the mean over the steps of the first optimizer.
///
/// It is for training alone: `learner.train_metric(LearningRateMetric::new())`. Records, loggers and the dashboard
/// contain the rates of all optimizers without it.
pub type LearningRateMetric = Accumulated<LearningRateRule>;

/// The rule of [`LearningRateMetric`].
#[derive(Clone, Debug, Default)]
pub struct LearningRateRule;

impl MetricRule for LearningRateRule {
    crate::metric::facts!("learning_rate", higher is better: false, "learning_rate" / "steps");

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        if let Some(rate) = observation.learning_rate {
            sums.count("steps", 1.0);
            sums.count("learning_rate", rate);
        }
        Ok(())
    }

    fn format(&self, value: f64) -> String {
        format!("{value:.2e}")
    }
}
