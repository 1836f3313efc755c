//! A metric: the confidence of predictions.

use kiln::train::metric::{AccumulatedMetric, Accumulator, MetricValues};
use kiln::train::{LOGITS, MetricError, Observation};

/// The mean probability of the predicted class. If it is above the accuracy, the model is overconfident.
#[derive(Clone, Debug, Default)]
pub(crate) struct Confidence(Accumulator);

impl AccumulatedMetric for Confidence {
    fn name(&self) -> &str {
        "confidence"
    }

    fn accumulator(&mut self) -> &mut Accumulator {
        &mut self.0
    }

    /// The sums stay on the device until a value is read.
    fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
        let probabilities = observation.tensor(LOGITS)?.softmax(1)?;
        self.0.count("items", observation.num_items as f64);
        self.0.sum("probability", probabilities.max_dim(1)?.sum()?)
    }

    fn result(&mut self) -> Result<MetricValues, MetricError> {
        let mean = self.0.total("probability")? / self.0.total("items")?;
        Ok(MetricValues::scalar("confidence", mean))
    }

    fn format(&self, value: f64) -> String {
        format!("{:.2} %", 100.0 * value)
    }
}
