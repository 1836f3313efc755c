//! The state of a run as renderers show it: histories, best values, progress, throughput, messages.

mod clock;
mod series;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

pub(crate) use clock::{Throughput, time_left};
pub(crate) use series::Series;
#[cfg(feature = "dashboard")]
pub(crate) use series::smoothed;

use super::format;
use crate::history::StopReason;
use crate::record::{
    DEFAULT_NAME, Level, PassProgress, Record, RunDescription, Split, StepRecord, ValuesRecord,
};
use crate::usage::Usage;

/// The number of messages that are kept.
const MESSAGES: usize = 500;

/// The state of a run. Memory does not grow with the number of steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// The description. Default before training starts.
    pub(crate) run: RunDescription,
    /// The metrics, the loss first, then in the order in which they occurred.
    pub(crate) metrics: Vec<MetricHistory>,
    /// The part of the run that is at work.
    pub(crate) phase: Phase,
    /// The position: epoch, batches that are done in it, and steps that are done.
    pub(crate) epoch: u64,
    pub(crate) batch: u64,
    pub(crate) step: u64,
    /// The number of batches of an epoch: of the loader, or of the longest epoch so far.
    batches: Option<u64>,
    /// Epochs that have ended, counted from the beginning of training.
    pub(crate) epochs_done: u64,
    /// The last learning rates, by the names of the optimizers.
    pub(crate) learning_rates: Vec<(String, f64)>,
    /// The number of steps without an update.
    pub(crate) skipped: u64,
    pub(crate) throughput: Throughput,
    /// The times and the memory, once training ends.
    pub(crate) usage: Option<Usage>,
    messages: VecDeque<Message>,
    started: Option<Instant>,
    /// The fraction of the run that was done when this call started.
    fraction_at_start: f64,
}

/// The part of a run that is at work.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Phase {
    /// Before the first step.
    #[default]
    Starting,
    /// Training steps.
    Training,
    /// A pass over a validation set.
    Validating(PassProgress),
    /// Training ended.
    Ended {
        /// The reason.
        reason: StopReason,
        /// The duration of the call.
        duration: Duration,
    },
}

/// A metric over all splits.
#[derive(Clone, Debug)]
pub(crate) struct MetricHistory {
    pub(crate) name: String,
    /// `None` where no description tells it.
    pub(crate) higher_is_better: Option<bool>,
    pub(crate) splits: Vec<SplitHistory>,
}

/// A metric on one split.
#[derive(Clone, Debug)]
pub(crate) struct SplitHistory {
    pub(crate) split: Split,
    pub(crate) series: Series,
    /// The last value, as text.
    pub(crate) current: String,
    /// The last value of a complete pass, as text.
    pub(crate) complete: Option<String>,
    pub(crate) best: Option<Best>,
    /// Whether the samples are of single steps. Values of passes are then left out of the series.
    pub(crate) of_steps: bool,
}

/// The best value of a complete pass.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Best {
    pub(crate) value: f64,
    pub(crate) text: String,
    pub(crate) epoch: u64,
}

/// A message, with the number of steps that were done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Message {
    pub(crate) level: Level,
    pub(crate) step: u64,
    pub(crate) text: String,
}

impl Model {
    /// Adds a record that arrived `now`.
    pub(crate) fn record(&mut self, record: &Record, now: Instant) {
        match record {
            Record::Start(run) => self.start(run, now),
            Record::Step(step) => self.step(step, now),
            Record::Progress(progress) => {
                self.throughput.pause();
                self.phase = Phase::Validating(progress.clone());
            }
            Record::Values(values) => self.values(values),
            Record::Epoch { epoch, step, duration } => {
                self.epochs_done = epoch + 1;
                self.step = *step;
                self.batches = self.batches.max(Some(self.batch));
                let text = format!("epoch {}: {}  {}", epoch + 1, self.scores(), format::measured(*duration));
                self.message(Level::Info, text);
            }
            Record::Checkpoint { step, folder } => {
                self.message(Level::Info, format!("checkpoint of step {step}: {folder}"));
            }
            Record::Message { level, text } => self.message(*level, text.clone()),
            Record::Batches { batches, .. } => {
                self.run.batches = *batches;
                self.batches = *batches;
            }
            Record::Usage(usage) => self.usage = Some(usage.clone()),
            Record::End { reason, step, duration } => {
                self.step = *step;
                self.phase = Phase::Ended { reason: *reason, duration: *duration };
                self.message(Level::Info, format!("training ended: {}", reason_text(*reason)));
            }
        }
    }

    /// Adds a message of the renderer itself.
    pub(crate) fn message(&mut self, level: Level, text: String) {
        if self.messages.len() == MESSAGES {
            self.messages.pop_front();
        }
        self.messages.push_back(Message { level, step: self.step, text });
    }

    /// Returns the messages, the oldest first.
    pub(crate) fn messages(&self) -> impl DoubleEndedIterator<Item = &Message> + ExactSizeIterator {
        self.messages.iter()
    }

    /// Returns the last value of a complete pass of each metric and split: `train loss 0.12  valid loss 0.15`.
    pub(crate) fn scores(&self) -> String {
        let mut scores = Vec::new();
        for split in self.splits() {
            for metric in &self.metrics {
                if let Some(text) = metric.split(&split).and_then(|history| history.complete.as_ref()) {
                    scores.push(format!("{} {} {text}", split.name(), metric.name));
                }
            }
        }
        scores.join("  ")
    }

    /// Returns the splits that have values, training first.
    pub(crate) fn splits(&self) -> Vec<Split> {
        let mut splits: Vec<Split> = Vec::new();
        for history in self.metrics.iter().flat_map(|metric| &metric.splits) {
            if !splits.contains(&history.split) {
                splits.push(history.split.clone());
            }
        }
        splits.sort();
        splits
    }

    /// Returns the number of batches of an epoch, `None` where it is unknown.
    pub(crate) fn batches(&self) -> Option<u64> {
        self.run.batches.or(self.batches).filter(|batches| *batches > 0)
    }

    /// Returns the fraction of the epoch's training steps that are done.
    pub(crate) fn epoch_fraction(&self) -> Option<f64> {
        self.batches().map(|batches| (self.batch as f64 / batches as f64).min(1.0))
    }

    /// Returns the fraction of the run that is done.
    pub(crate) fn run_fraction(&self) -> Option<f64> {
        let by_steps = self.run.steps.filter(|steps| *steps > 0).map(|steps| self.step as f64 / steps as f64);
        let epochs = self.run.epochs.filter(|epochs| *epochs > 0).map(|epochs| {
            let begun =
                if self.epoch < self.epochs_done { 0.0 } else { self.epoch_fraction().unwrap_or(0.0) };
            (self.epochs_done as f64 + begun) / epochs as f64
        });
        // The bound that is reached first ends the run.
        match (by_steps, epochs) {
            (Some(steps), Some(epochs)) => Some(steps.max(epochs).min(1.0)),
            (Some(fraction), None) | (None, Some(fraction)) => Some(fraction.min(1.0)),
            (None, None) => None,
        }
    }

    /// Returns the time since this call started.
    pub(crate) fn elapsed(&self, now: Instant) -> Duration {
        match (&self.phase, self.started) {
            (Phase::Ended { duration, .. }, _) => *duration,
            (Phase::Starting | Phase::Training | Phase::Validating(_), Some(started)) => {
                now.duration_since(started)
            }
            (Phase::Starting | Phase::Training | Phase::Validating(_), None) => Duration::ZERO,
        }
    }

    /// Returns the remaining time of the run.
    pub(crate) fn run_left(&self, now: Instant) -> Option<Duration> {
        time_left(self.fraction_at_start, self.run_fraction()?, self.elapsed(now))
    }

    /// Returns the remaining time of the epoch's training steps.
    pub(crate) fn epoch_left(&self) -> Option<Duration> {
        let steps = self.batches()?.saturating_sub(self.batch) as f64;
        Duration::try_from_secs_f64(steps / self.throughput.steps_per_second()?).ok()
    }

    fn start(&mut self, run: &RunDescription, now: Instant) {
        *self = Model { messages: std::mem::take(&mut self.messages), ..Model::default() };
        self.run = run.clone();
        self.epoch = run.epoch;
        self.epochs_done = run.epoch;
        self.step = run.step;
        self.batch =
            run.batches.map_or(0, |batches| run.step.saturating_sub(run.epoch * batches).min(batches));
        self.started = Some(now);
        self.fraction_at_start = self.run_fraction().unwrap_or(0.0);
        self.metric("loss");
        for metric in &run.metrics {
            self.metric(&metric.name).higher_is_better = Some(metric.higher_is_better);
        }
    }

    fn step(&mut self, record: &StepRecord, now: Instant) {
        self.phase = Phase::Training;
        (self.epoch, self.batch, self.step) = (record.epoch, record.batch + 1, record.step + 1);
        self.skipped += u64::from(record.skipped);
        self.throughput.step(record.items, now);
        if self.learning_rates != record.learning_rates {
            self.learning_rates.clone_from(&record.learning_rates);
        }
        for (name, value) in &record.values {
            let history = self.metric(name).split_mut(&Split::Train);
            history.of_steps = true;
            history.series.push(record.step, *value);
            history.current = format::number(*value);
        }
    }

    fn values(&mut self, record: &ValuesRecord) {
        for (name, value) in &record.values {
            let Some(value) = value.as_scalar() else { continue };
            let text = record.text.get(name).cloned().unwrap_or_else(|| format::number(value));
            let metric = self.metric(name);
            let higher_is_better = metric.higher_is_better;
            let history = metric.split_mut(&record.split);
            if !history.of_steps && (record.complete || record.split == Split::Train) {
                history.series.push(record.step, value);
            }
            history.current.clone_from(&text);
            if record.complete {
                history.complete = Some(text.clone());
                history.update_best(Best { value, text, epoch: record.epoch }, higher_is_better);
            }
        }
        // A matrix or an image has no curve.
        let is_other = |metric: &MetricHistory| {
            let mut own = record.values.iter().filter(|(name, _)| *name == metric.name);
            metric.splits.is_empty() && own.any(|(_, value)| value.as_scalar().is_none())
        };
        self.metrics.retain(|metric| !is_other(metric));
    }

    /// Returns the metric of this name, a new one after the others.
    fn metric(&mut self, name: &str) -> &mut MetricHistory {
        let known = self.metrics.iter().position(|metric| metric.name == name);
        let index = known.unwrap_or_else(|| {
            let higher_is_better = name.contains("loss").then_some(false);
            self.metrics.push(MetricHistory { name: name.to_owned(), higher_is_better, splits: Vec::new() });
            self.metrics.len() - 1
        });
        &mut self.metrics[index]
    }
}

impl MetricHistory {
    /// Returns the history of a split.
    pub(crate) fn split(&self, split: &Split) -> Option<&SplitHistory> {
        self.splits.iter().find(|history| history.split == *split)
    }

    fn split_mut(&mut self, split: &Split) -> &mut SplitHistory {
        let index = self.splits.iter().position(|history| history.split == *split).unwrap_or_else(|| {
            let at = self.splits.partition_point(|history| history.split < *split);
            let history = SplitHistory {
                split: split.clone(),
                series: Series::default(),
                current: String::new(),
                complete: None,
                best: None,
                of_steps: false,
            };
            self.splits.insert(at, history);
            at
        });
        &mut self.splits[index]
    }
}

impl SplitHistory {
    /// Replaces the best value by a better one. NaN is never better.
    fn update_best(&mut self, candidate: Best, higher_is_better: Option<bool>) {
        let Some(higher_is_better) = higher_is_better else { return };
        let is_better = match &self.best {
            None => !candidate.value.is_nan(),
            Some(best) if higher_is_better => candidate.value > best.value,
            Some(best) => candidate.value < best.value,
        };
        if is_better {
            self.best = Some(candidate);
        }
    }
}

/// Returns `` of `NAME` ``; nothing for a run without a name of its own.
pub(crate) fn of_run(run: &RunDescription) -> String {
    if run.name.is_empty() || run.name == DEFAULT_NAME {
        String::new()
    } else {
        format!(" of `{}`", run.name)
    }
}

/// Returns the reason why training ended as text.
pub(crate) fn reason_text(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Finished => "all epochs are done",
        StopReason::Callback => "a callback stopped it",
        StopReason::Failed => "an error",
        StopReason::EarlyStopping => "early stopping, no improvement",
        StopReason::Interrupted => "interrupted",
    }
}

#[cfg(test)]
pub(crate) mod tests;
