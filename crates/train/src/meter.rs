//! Accumulates losses and metrics over an epoch.

use kiln_tensor::AnyTensor;

use crate::error::{Result, TrainError, TrainPosition};
use crate::history::Scores;
use crate::metric::Metric;
use crate::output::Observation;

/// The losses and metrics of one pass over a loader.
pub(crate) struct Meter<'a> {
    metrics: &'a mut [Box<dyn Metric>],
    /// Losses that were not yet read from the device.
    pending: Vec<Pending>,
    total_loss: f64,
    num_items: usize,
    /// The loss of the batch that was read last, for progress.
    recent: Option<f64>,
    stop_on_non_finite: bool,
}

struct Pending {
    loss: AnyTensor,
    num_items: usize,
    place: TrainPosition,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(metrics: &'a mut [Box<dyn Metric>], stop_on_non_finite: bool) -> Meter<'a> {
        metrics.iter_mut().for_each(|metric| metric.reset());
        Meter {
            metrics,
            pending: Vec::new(),
            total_loss: 0.0,
            num_items: 0,
            recent: None,
            stop_on_non_finite,
        }
    }

    /// Adds a step without waiting for the device.
    pub(crate) fn add(&mut self, observation: Observation, place: TrainPosition) -> Result<()> {
        let elements = observation.loss.shape().num_elements();
        if elements != 1 {
            return Err(TrainError::LossShape { place, elements });
        }
        for metric in self.metrics.iter_mut() {
            let update = metric.update(&observation);
            update.map_err(|source| TrainError::Metric {
                metric: metric.name().to_owned(),
                place,
                source,
            })?;
        }
        let Observation { loss, num_items, .. } = observation;
        self.pending.push(Pending { loss, num_items, place });
        Ok(())
    }

    /// Returns the number of losses that were not yet read from the device.
    pub(crate) fn num_pending(&self) -> usize {
        self.pending.len()
    }

    /// Reads the remaining losses from the device and passes each to a function. Waits for the device.
    pub(crate) fn read(&mut self, mut each: impl FnMut(f64)) -> Result<()> {
        for Pending { loss, num_items, place } in self.pending.drain(..) {
            let data = loss.into_data().map_err(|source| TrainError::Tensor { place, source })?;
            let loss = data.to_vec::<f64>().first().copied().unwrap_or(f64::NAN);
            each(loss);
            if self.stop_on_non_finite && !loss.is_finite() {
                return Err(TrainError::NonFiniteLoss { place, loss });
            }
            self.total_loss += loss * num_items as f64;
            self.num_items += num_items;
            self.recent = Some(loss);
        }
        Ok(())
    }

    /// Returns the scores of the batches read so far. Waits for the device.
    pub(crate) fn scores(&mut self, place: TrainPosition) -> Result<Scores> {
        let mut metrics = Vec::with_capacity(self.metrics.len());
        for metric in self.metrics.iter_mut() {
            let name = metric.name().to_owned();
            match metric.value() {
                Ok(value) => metrics.push((name, value)),
                Err(source) => return Err(TrainError::Metric { metric: name, place, source }),
            }
        }
        Ok(Scores { loss: self.total_loss / self.num_items as f64, metrics, num_items: self.num_items })
    }

    /// Returns the loss of the batch that was read last.
    pub(crate) fn recent(&self) -> Option<f64> {
        self.recent
    }

    /// Formats scores: `loss 0.1234  accuracy 96.12 %`.
    pub(crate) fn describe(&self, scores: &Scores) -> String {
        let mut text = format!("loss {:.4}", scores.loss);
        for (metric, (name, value)) in self.metrics.iter().zip(&scores.metrics) {
            text.push_str(&format!("  {name} {}", metric.format(*value)));
        }
        text
    }
}
