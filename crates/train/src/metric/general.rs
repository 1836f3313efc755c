//! Means of the loss, of named tensors and of the learning rate.

use super::shape::wide;
use super::{AccumulatedMetric, Accumulator, MetricValues};
use crate::error::MetricError;
use crate::observation::Observation;

/// The mean loss over all items: each batch's loss is weighted by its number of items.
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
#[derive(Clone, Debug)]
pub struct LossMetric {
    name: String,
    accumulator: Accumulator,
}

impl LossMetric {
    /// Returns the metric, named `loss`.
    pub fn new() -> LossMetric {
        LossMetric { name: "loss".to_owned(), accumulator: Accumulator::new() }
    }

    /// Sets the name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> LossMetric {
        self.name = name.into();
        self
    }
}

impl Default for LossMetric {
    fn default() -> LossMetric {
        LossMetric::new()
    }
}

impl AccumulatedMetric for LossMetric {
    fn name(&self) -> &str {
        &self.name
    }

    fn accumulator(&mut self) -> &mut Accumulator {
        &mut self.accumulator
    }

    fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
        let loss = observation.loss.clone().ok_or(MetricError::Missing { name: "loss" })?;
        if observation.num_items == 0 {
            return Ok(());
        }
        let items = observation.num_items as f64;
        self.accumulator.count("items", items);
        self.accumulator.sum("loss", wide(loss)?.mean()?.mul_scalar(items)?)
    }

    fn result(&mut self) -> Result<MetricValues, MetricError> {
        let mean = self.accumulator.total("loss")? / self.accumulator.total("items")?;
        Ok(MetricValues::scalar(self.name.clone(), mean))
    }

    fn higher_is_better(&self) -> bool {
        false
    }
}

/// The mean over all elements of a tensor of the observation, of any shape.
#[derive(Clone, Debug)]
pub struct MeanMetric {
    name: String,
    tensor: &'static str,
    higher_is_better: bool,
    accumulator: Accumulator,
}

impl MeanMetric {
    /// Returns the metric of a tensor, under its name. A higher value is better.
    pub fn new(tensor: &'static str) -> MeanMetric {
        MeanMetric {
            name: tensor.to_owned(),
            tensor,
            higher_is_better: true,
            accumulator: Accumulator::new(),
        }
    }

    /// Sets the name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> MeanMetric {
        self.name = name.into();
        self
    }

    /// A lower value is better.
    #[must_use]
    pub fn lower_is_better(mut self) -> MeanMetric {
        self.higher_is_better = false;
        self
    }
}

impl AccumulatedMetric for MeanMetric {
    fn name(&self) -> &str {
        &self.name
    }

    fn accumulator(&mut self) -> &mut Accumulator {
        &mut self.accumulator
    }

    fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
        let tensor = wide(observation.tensor(self.tensor)?)?;
        self.accumulator.count("elements", tensor.shape().num_elements() as f64);
        self.accumulator.sum("sum", tensor.sum()?)
    }

    fn result(&mut self) -> Result<MetricValues, MetricError> {
        let mean = self.accumulator.total("sum")? / self.accumulator.total("elements")?;
        Ok(MetricValues::scalar(self.name.clone(), mean))
    }

    fn higher_is_better(&self) -> bool {
        self.higher_is_better
    }
}

/// The learning rate, `learning_rate`: the mean over the steps of the first optimizer.
///
/// It is for training alone: `learner.train_metric(LearningRateMetric::new())`. Records, loggers and the dashboard
/// contain the rates of all optimizers without it.
#[derive(Clone, Debug, Default)]
pub struct LearningRateMetric(Accumulator);

impl LearningRateMetric {
    /// Returns the metric.
    pub fn new() -> LearningRateMetric {
        LearningRateMetric::default()
    }
}

impl AccumulatedMetric for LearningRateMetric {
    fn name(&self) -> &str {
        "learning_rate"
    }

    fn accumulator(&mut self) -> &mut Accumulator {
        &mut self.0
    }

    fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
        if let Some(rate) = observation.learning_rate {
            self.0.count("steps", 1.0);
            self.0.count("learning_rate", rate);
        }
        Ok(())
    }

    fn result(&mut self) -> Result<MetricValues, MetricError> {
        let mean = self.0.total("learning_rate")? / self.0.total("steps")?;
        Ok(MetricValues::scalar("learning_rate", mean))
    }

    fn higher_is_better(&self) -> bool {
        false
    }

    fn format(&self, value: f64) -> String {
        format!("{value:.2e}")
    }
}
