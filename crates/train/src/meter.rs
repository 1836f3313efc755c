//! Accumulates the metrics and numbers of a pass over a loader.

use std::collections::{BTreeMap, VecDeque};

use kiln_tensor::TensorData;

use crate::error::{MetricError, Result, TrainError, TrainPosition};
use crate::history::Scores;
use crate::metric::{Metric, MetricState, MetricValues};
use crate::observation::Observation;
use crate::record::StepRecord;
use crate::step::{LOSS, Outcome, Value, read};

/// The name of the number of items in a state.
const ITEMS: &str = "items";

/// The metrics of one pass, and the weighted means of the loss and of logged numbers.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    metrics: Vec<Box<dyn Metric>>,
    /// By name, in the order of their first appearance.
    means: Vec<(String, Mean)>,
    num_items: u64,
    /// Steps whose values were not yet read from the device.
    pending: VecDeque<Pending>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    weight: f64,
}

#[derive(Debug)]
struct Pending {
    place: TrainPosition,
    values: Vec<(String, Value)>,
    record: StepRecord,
}

impl Meter {
    pub(crate) fn new(metrics: &[Box<dyn Metric>]) -> Meter {
        Meter { metrics: metrics.iter().map(|metric| metric.fresh()).collect(), ..Meter::default() }
    }

    /// The names of the metrics, in order.
    pub(crate) fn metric_names(&self) -> Vec<String> {
        names(&self.metrics)
    }

    pub(crate) fn reset(&mut self) {
        self.metrics.iter_mut().for_each(|metric| metric.reset());
        *self = Meter { metrics: std::mem::take(&mut self.metrics), ..Meter::default() };
    }

    /// Reads the remaining steps, and drops those in error. Waits for the device.
    pub(crate) fn settle(&mut self) {
        while !self.pending.is_empty() {
            // Each call removes a step. Its error is not the first, which ended training.
            let _ = self.read(self.pending.len() - 1, false, drop);
        }
    }

    /// Adds a step without waiting for the device.
    pub(crate) fn add(&mut self, outcome: Outcome, place: TrainPosition) -> Result<()> {
        let items = outcome.items_of_replicas.unwrap_or(outcome.items());
        let Outcome {
            loss,
            mut observations,
            mut values,
            learning_rates,
            skipped,
            items_of_replicas,
            reports: _,
            refusals: _,
        } = outcome;
        let learning_rate = learning_rates.first().map(|(_, rate)| *rate);
        observations.iter_mut().for_each(|observation| observation.learning_rate = learning_rate);
        self.update_metrics(&observations, place)?;
        // The losses of replicas are checked where they are combined.
        let observed = match items_of_replicas {
            None => observations.iter().find_map(|observation| observation.loss.clone()),
            Some(_) => None,
        };
        if let Some(tensor) = &observed {
            let elements = tensor.shape().num_elements();
            if elements != 1 {
                return Err(TrainError::LossShape { place, elements });
            }
        }
        if let Some(loss) = observed.map(Value::Device).or(loss) {
            values.insert(0, (LOSS.to_owned(), loss));
        }
        let record = StepRecord {
            epoch: place.epoch,
            step: place.step,
            batch: place.batch as u64,
            items,
            learning_rates,
            skipped,
            ..StepRecord::default()
        };
        self.pending.push_back(Pending { place, values, record });
        Ok(())
    }

    /// Passes the observations to the metrics. A metric needs its inputs in one of them.
    fn update_metrics(&mut self, observations: &[Observation], place: TrainPosition) -> Result<()> {
        if observations.is_empty() {
            return Ok(());
        }
        for metric in &mut self.metrics {
            let mut missing = None;
            let mut is_updated = false;
            for observation in observations {
                match metric.update(observation) {
                    Ok(()) => is_updated = true,
                    Err(error @ MetricError::Missing { .. }) => missing = Some(error),
                    Err(source) => return Err(failed(&**metric, place, source)),
                }
            }
            if let (false, Some(source)) = (is_updated, missing) {
                return Err(failed(&**metric, place, source));
            }
        }
        Ok(())
    }

    /// Reads steps from the device until at most `remaining` are pending. Waits for the device.
    ///
    /// A NaN or infinite loss is an error if `refuses_non_finite`. The steps before it are passed on.
    pub(crate) fn read(
        &mut self,
        remaining: usize,
        refuses_non_finite: bool,
        mut each: impl FnMut(StepRecord),
    ) -> Result<()> {
        while self.pending.len() > remaining {
            let Some(Pending { place, values, mut record }) = self.pending.pop_front() else { break };
            let weight = record.items.max(1) as f64;
            for (name, value) in values {
                let number = read(value).map_err(|source| TrainError::Tensor { place, source })?;
                record.values.push((name, number));
            }
            self.num_items += record.items as u64;
            for (name, number) in &record.values {
                self.mean_mut(name).add(*number, weight);
            }
            let loss = record.values.iter().find(|(name, _)| name == LOSS).map(|(_, loss)| *loss);
            each(record);
            match loss {
                Some(loss) if refuses_non_finite && !loss.is_finite() => {
                    return Err(TrainError::NonFiniteLoss { place, loss, origin: None });
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// Returns the scores of the steps read so far. Waits for the device.
    ///
    /// # Errors
    /// When a metric or one of its inputs is in error. The metrics then start anew, since a metric in error has lost batches.
    pub(crate) fn scores(&mut self, place: TrainPosition) -> Result<Scores> {
        let mut scores = Scores {
            loss: self.mean(LOSS).unwrap_or(f64::NAN),
            num_items: usize::try_from(self.num_items).unwrap_or(usize::MAX),
            ..Scores::default()
        };
        let mut problem = None;
        for metric in &mut self.metrics {
            let values: MetricValues = match metric.values() {
                Ok(values) => values,
                Err(source) => {
                    problem = Some(failed(&**metric, place, source));
                    break;
                }
            };
            if let Some(main) = values.main() {
                scores.metrics.push((metric.name().to_owned(), main));
            }
            scores.values.extend(values);
        }
        if let Some(problem) = problem {
            self.metrics.iter_mut().for_each(|metric| metric.reset());
            return Err(problem);
        }
        let logged = self.means.iter().filter(|(name, _)| name != LOSS);
        scores.metrics.extend(logged.map(|(name, mean)| (name.clone(), mean.value())));
        Ok(scores)
    }

    /// Returns the state. No step may be pending. Waits for the device.
    pub(crate) fn state(&mut self, place: TrainPosition) -> Result<BTreeMap<String, TensorData>> {
        let mut state = MetricState::new().with(ITEMS, vec![self.num_items as f64]);
        for (index, (name, Mean { sum, weight })) in self.means.iter().enumerate() {
            state = state.with(format!("mean.{index:03}.{name}"), vec![*sum, *weight]);
        }
        for (index, metric) in self.metrics.iter_mut().enumerate() {
            let own = metric.state().map_err(|source| failed(&**metric, place, source))?;
            for (key, array) in own.iter() {
                state = state.with(format!("metric.{index:03}.{key}"), array.to_vec());
            }
        }
        Ok(state.to_tensors())
    }

    /// Replaces the state.
    pub(crate) fn load_state(&mut self, state: &BTreeMap<String, TensorData>) -> Result<()> {
        self.reset();
        let state = MetricState::from_tensors(state);
        self.num_items = state.get(ITEMS).and_then(|items| items.first().copied()).unwrap_or(0.0) as u64;
        for (key, array) in state.iter() {
            let name = key.strip_prefix("mean.").and_then(|rest| rest.split_once('.'));
            if let (Some((_, name)), [sum, weight]) = (name, array) {
                self.means.push((name.to_owned(), Mean { sum: *sum, weight: *weight }));
            }
        }
        for (index, metric) in self.metrics.iter_mut().enumerate() {
            let prefix = format!("metric.{index:03}.");
            let mut own = MetricState::new();
            for (key, array) in state.iter() {
                if let Some(key) = key.strip_prefix(&prefix) {
                    own = own.with(key, array.to_vec());
                }
            }
            let place = TrainPosition::default();
            metric.load_state(&own).map_err(|source| failed(&**metric, place, source))?;
        }
        Ok(())
    }

    fn mean(&self, name: &str) -> Option<f64> {
        self.means.iter().find(|(known, _)| known == name).map(|(_, mean)| mean.value())
    }

    fn mean_mut(&mut self, name: &str) -> &mut Mean {
        let index = match self.means.iter().position(|(known, _)| known == name) {
            Some(index) => index,
            None => {
                self.means.push((name.to_owned(), Mean::default()));
                self.means.len() - 1
            }
        };
        &mut self.means[index].1
    }
}

impl Mean {
    fn add(&mut self, number: f64, weight: f64) {
        self.sum += number * weight;
        self.weight += weight;
    }

    fn value(&self) -> f64 {
        self.sum / self.weight
    }
}

/// The names of metrics, in order.
pub(crate) fn names(metrics: &[Box<dyn Metric>]) -> Vec<String> {
    metrics.iter().map(|metric| metric.name().to_owned()).collect()
}

fn failed(metric: &dyn Metric, place: TrainPosition, source: MetricError) -> TrainError {
    TrainError::Metric { metric: metric.name().to_owned(), place, source }
}
