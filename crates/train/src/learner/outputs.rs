//! Records for loggers and the renderer.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Learner;
use super::fit::SCORES_INTERVAL;
use crate::error::{Result, TrainError};
use crate::history::{Scores, StopReason};
use crate::metric::{Metric, MetricValue};
use crate::record::{Level, MetricDescription, Record, RunDescription, Split, ValuesRecord};
use crate::step::LOSS;
use crate::task::Task;
use crate::usage::Activity;

impl<T: Task> Learner<T> {
    /// Opens the automatic renderer, unless the user chose one.
    pub(super) fn open_renderer(&mut self) {
        if self.renderer.is_none() && !self.options.silent {
            self.renderer = Some(crate::renderer::automatic());
            self.is_automatic = true;
        }
    }

    /// Passes a record to the loggers and the renderer.
    pub(super) fn send(&mut self, record: &Record) -> Result<()> {
        let before = self.stopwatch.enter(Activity::Outputs);
        self.show(record);
        let written = self.loggers.iter_mut().try_for_each(|logger| {
            let written = logger.record(record);
            written.map_err(|source| TrainError::Logger { logger: logger.name().to_owned(), source })
        });
        self.stopwatch.go_on(before);
        written
    }

    /// Passes a record to the renderer alone.
    pub(super) fn show(&mut self, record: &Record) {
        if let Some(renderer) = &mut self.renderer {
            renderer.record(record);
        }
    }

    pub(super) fn flush_loggers(&mut self) -> Result<()> {
        for logger in &mut self.loggers {
            let written = logger.flush();
            written.map_err(|source| TrainError::Logger { logger: logger.name().to_owned(), source })?;
        }
        Ok(())
    }

    pub(super) fn start_outputs(&mut self, batches: Option<u64>) -> Result<()> {
        if self.loggers.is_empty() && self.renderer.is_none() {
            return Ok(());
        }
        let describe = |metric: &dyn Metric| MetricDescription {
            name: metric.name().to_owned(),
            higher_is_better: metric.higher_is_better(),
        };
        let mut metrics = vec![MetricDescription { name: LOSS.to_owned(), higher_is_better: false }];
        metrics.extend(self.train_metrics.iter().map(|metric| describe(&**metric)));
        for metric in self.valid_metrics.iter().map(|metric| describe(&**metric)) {
            if !metrics.contains(&metric) {
                metrics.push(metric);
            }
        }
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let description = RunDescription {
            name: self.options.name.clone(),
            task: self.task.description(),
            epochs: self.options.epochs(),
            steps: self.options.max_steps,
            batches: self.options.overfit_batches.or(batches),
            epoch: self.position.epoch,
            step: self.position.step,
            hyper_parameters: self.options.hyper_parameters.clone(),
            environment: environment(),
            metrics,
            started,
        };
        self.next_scores = Instant::now() + SCORES_INTERVAL;
        self.send(&Record::Start(description))?;
        if self.options.epochs.is_none() && self.options.max_steps.is_none() {
            let text = "neither `epochs` nor `max_steps` is set: training ends after 1 epoch".to_owned();
            self.send(&Record::Message { level: Level::Info, text })?;
        }
        Ok(())
    }

    /// Ends the outputs, also after an error.
    pub(super) fn close_outputs(
        &mut self,
        reason: StopReason,
        duration: Duration,
        error: Option<&TrainError>,
    ) -> Result<()> {
        let message = error.map(|error| Record::Message { level: Level::Error, text: error.to_string() });
        let end = Record::End { reason, step: self.position.step, duration };
        let usage = Record::Usage(self.history.usage.clone());
        let sent = message.iter().chain([&usage, &end]).try_for_each(|record| self.send(record));
        let flushed = self.flush_loggers();
        if let Some(renderer) = &mut self.renderer {
            renderer.close();
        }
        if std::mem::take(&mut self.is_automatic) {
            self.renderer = None;
        }
        sent.and(flushed)
    }

    /// Sends scores.
    pub(super) fn send_values(&mut self, split: Split, scores: &Scores, complete: bool) -> Result<()> {
        let record = self.values(split, scores, complete);
        self.send(&Record::Values(record))
    }

    /// Shows the scores of the epoch so far, at an interval of time. They do not change the results.
    pub(super) fn show_scores(&mut self) -> Result<()> {
        let started = Instant::now();
        if self.renderer.is_none() || started < self.next_scores {
            return Ok(());
        }
        let place = self.place();
        let scores = self.meter.scores(place)?;
        let record = self.values(Split::Train, &scores, false);
        self.show(&Record::Values(record));
        // Metrics over many rows take long: at most a twentieth of the time.
        self.next_scores = Instant::now() + SCORES_INTERVAL.max(20 * started.elapsed());
        Ok(())
    }

    fn values(&self, split: Split, scores: &Scores, complete: bool) -> ValuesRecord {
        let mut values = vec![(LOSS.to_owned(), MetricValue::Scalar(scores.loss))];
        values.extend(scores.values.iter().map(|(name, value)| (name.to_owned(), value.clone())));
        for (name, number) in &scores.metrics {
            if scores.values.get(name).is_none() {
                values.push((name.clone(), MetricValue::Scalar(*number)));
            }
        }
        let text = std::iter::once((LOSS.to_owned(), scores.loss)).chain(scores.metrics.iter().cloned());
        let text = text.map(|(name, number)| {
            let shown = self.format(&split, &name, number);
            (name, shown)
        });
        let text = text.collect();
        ValuesRecord { split, epoch: self.position.epoch, step: self.position.step, complete, values, text }
    }

    fn format(&self, split: &Split, name: &str, number: f64) -> String {
        let metrics = match split {
            Split::Train => &self.train_metrics,
            Split::Valid(_) => &self.valid_metrics,
        };
        match metrics.iter().find(|metric| metric.name() == name) {
            Some(metric) => metric.format(number),
            None => format!("{number:.4}"),
        }
    }
}

/// The environment of the run.
fn environment() -> BTreeMap<String, String> {
    let mut environment = BTreeMap::from([
        ("kiln".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("system".to_owned(), format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)),
        ("command".to_owned(), std::env::args().collect::<Vec<_>>().join(" ")),
    ]);
    if let Ok(threads) = std::thread::available_parallelism() {
        environment.insert("threads".to_owned(), threads.to_string());
    }
    environment
}
