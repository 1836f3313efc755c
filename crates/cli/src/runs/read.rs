//! A run, summed up from its records.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use kiln_train::logger::{STEP, points};
use kiln_train::{Level, MetricValue, Record, RunDescription, StopReason, Usage, ValuesRecord};

/// A log that was written in this time belongs to a running process.
const RUNNING: Duration = Duration::from_secs(120);

/// Maximum number of messages that are kept, the last ones.
const MAX_MESSAGES: usize = 200;

/// A run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) name: String,
    pub(super) state: State,
    /// That of the last start.
    pub(super) description: RunDescription,
    /// Epochs that are complete.
    pub(super) epochs: u64,
    /// Optimizer steps.
    pub(super) steps: u64,
    /// Steps whose update was skipped.
    pub(super) skipped: u64,
    /// The duration of all calls, as far as it is recorded.
    pub(super) duration: Duration,
    /// Numbers by split and name.
    pub(super) series: BTreeMap<(String, String), Series>,
    /// The last values that are not numbers, by split and name.
    pub(super) values: BTreeMap<(String, String), MetricValue>,
    pub(super) messages: Vec<(Level, String)>,
    pub(super) last_checkpoint: Option<(u64, String)>,
    /// The time and the memory of the last call that ended.
    pub(super) usage: Option<Usage>,
}

/// The steps and values of a number, in order.
pub(super) type Series = Vec<(u64, f64)>;

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    /// Training ended.
    Ended(StopReason),
    /// The log has no end, and was written a short time ago.
    Running,
    /// The log has no end: the process was killed, or training failed.
    Unfinished,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            State::Ended(StopReason::Finished) => "finished",
            State::Ended(StopReason::EarlyStopping) => "early stopping",
            State::Ended(StopReason::Interrupted) => "interrupted",
            State::Ended(StopReason::Callback) => "stopped by a callback",
            State::Ended(StopReason::Failed) => "failed",
            State::Running => "running",
            State::Unfinished => "unfinished",
        }
    }
}

impl Run {
    /// Reads a log. `name` is the name where the log does not have one.
    ///
    /// # Errors
    /// When the log cannot be read, with the line.
    pub(super) fn read(name: &str, path: &Path) -> Result<Run, String> {
        let mut run = Run {
            name: name.to_owned(),
            state: if is_recent(path) { State::Running } else { State::Unfinished },
            description: RunDescription::default(),
            epochs: 0,
            steps: 0,
            skipped: 0,
            duration: Duration::ZERO,
            series: BTreeMap::new(),
            values: BTreeMap::new(),
            messages: Vec::new(),
            usage: None,
            last_checkpoint: None,
        };
        let mut earlier = Duration::ZERO;
        let unfinished = run.state;
        for record in super::open(path)? {
            let record = record.map_err(|error| error.to_string())?;
            if let Record::Start(_) = record {
                (earlier, run.state) = (run.duration, unfinished);
            }
            run.add(record, earlier);
        }
        let excess = run.messages.len().saturating_sub(MAX_MESSAGES);
        run.messages.drain(..excess);
        Ok(run)
    }

    /// Adds a record. `earlier` is the duration of earlier calls.
    #[allow(clippy::wildcard_enum_match_arm, reason = "records of later versions add nothing to the summary")]
    fn add(&mut self, record: Record, earlier: Duration) {
        for point in points(&record) {
            self.series.entry((point.split, point.name)).or_default().push((point.step, point.value));
        }
        match record {
            Record::Start(description) => self.description = description,
            Record::Step(step) => {
                self.steps = step.step + 1;
                self.skipped += u64::from(step.skipped);
            }
            Record::Values(values) if values.complete => self.add_values(values),
            Record::Epoch { epoch, step, duration } => {
                (self.epochs, self.steps) = (epoch.saturating_add(1), step);
                self.duration = self.duration.saturating_add(duration);
            }
            Record::Checkpoint { step, folder } => self.last_checkpoint = Some((step, folder)),
            Record::Message { level, text } => self.messages.push((level, text)),
            Record::Usage(usage) => self.usage = Some(usage),
            Record::End { reason, step, duration } => {
                (self.state, self.steps) = (State::Ended(reason), step);
                self.duration = earlier.saturating_add(duration);
            }
            _ => {}
        }
    }

    fn add_values(&mut self, record: ValuesRecord) {
        for (name, value) in record.values {
            let is_number = matches!(value, MetricValue::Scalar(_) | MetricValue::PerClass(_));
            if !is_number {
                self.values.insert((record.split.name().to_owned(), name), value);
            }
        }
    }

    /// The metrics: numbers over epochs, without those of single steps.
    pub(super) fn metrics(&self) -> impl Iterator<Item = (&str, &str, &Series)> {
        let all = self.series.iter().map(|((split, name), series)| (split.as_str(), name.as_str(), series));
        all.filter(|(split, _, _)| *split != STEP)
    }

    /// Whether a greater value of a metric is better, if the run says so. A part of a metric, such as `f1/2`, is like
    /// the metric.
    pub(super) fn higher_is_better(&self, name: &str) -> Option<bool> {
        let find = |name: &str| self.description.metrics.iter().find(|metric| metric.name == name);
        let whole = name.split('/').next().unwrap_or(name);
        match find(name).or_else(|| find(whole)) {
            Some(metric) => Some(metric.higher_is_better),
            None if whole == "loss" => Some(false),
            None => None,
        }
    }

    /// The step and the value that is best. `None` if there is no number, or it is not known which ones are better.
    pub(super) fn best(&self, name: &str, series: &Series) -> Option<(u64, f64)> {
        let higher = self.higher_is_better(name)?;
        let numbers = series.iter().copied().filter(|(_, value)| !value.is_nan());
        numbers.reduce(|best, next| {
            let is_better = if higher { next.1 > best.1 } else { next.1 < best.1 };
            if is_better { next } else { best }
        })
    }
}

fn is_recent(path: &Path) -> bool {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    let age = modified.ok().and_then(|time| SystemTime::now().duration_since(time).ok());
    age.is_some_and(|age| age < RUNNING)
}
