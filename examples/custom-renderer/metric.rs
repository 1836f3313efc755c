//! A metric: the confidence of predictions.

use kiln::train::metric::{Accumulated, Accumulator, MetricRule, MetricValues};
use kiln::train::{LOGITS, MetricError, Observation};

/// The mean probability of the predicted class. If it is above the accuracy, the model is overconfident.
pub(crate) type Confidence = Accumulated<ConfidenceRule>;

#[derive(Clone, Debug, Default)]
pub(crate) struct ConfidenceRule;

impl MetricRule for ConfidenceRule {
    fn name(&self) -> String {
        "confidence".to_owned()
    }

    /// The sums stay on the device until a value is read.
    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let probabilities = observation.tensor(LOGITS)?.softmax(1)?;
        sums.count("items", observation.num_items as f64);
        sums.sum("probability", probabilities.max_dim(1)?.sum()?)
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        Ok(MetricValues::scalar(name, sums.ratio("probability", "items")?))
    }

    fn format(&self, value: f64) -> String {
        format!("{:.2} %", 100.0 * value)
    }
}
