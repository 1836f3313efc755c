//! Plain lines on standard error.

use std::io::Write;
use std::time::{Duration, Instant};

use super::Renderer;
use super::format;
use super::model::{Model, Phase, of_run, reason_text};
use crate::record::{Level, Record, RunDescription};

/// The least time between two lines within an epoch.
const INTERVAL: Duration = Duration::from_secs(10);

/// Writes lines to standard error, for logs and terminals without a dashboard: at most one every 10 s within an epoch,
/// one at the end of each epoch with the scores of training and validation, messages, and the reason of the end.
///
/// ```
/// use kiln_train::renderer::Lines;
/// use kiln_train::{Level, Record, Renderer};
///
/// Lines::new().record(&Record::Message { level: Level::Warning, text: "the set is small".into() });
/// ```
pub struct Lines {
    model: Model,
    shown: Option<Instant>,
    output: Box<dyn Write + Send>,
}

impl Lines {
    /// Returns a renderer that writes to standard error.
    pub fn new() -> Lines {
        Lines::to(Box::new(std::io::stderr()))
    }

    /// Returns a renderer that goes on with a run, and shows its progress after the next 10 s.
    #[cfg(feature = "dashboard")]
    pub(super) fn continuing(model: Model) -> Lines {
        Lines { model, shown: Some(Instant::now()), ..Lines::new() }
    }

    fn to(output: Box<dyn Write + Send>) -> Lines {
        Lines { model: Model::default(), shown: None, output }
    }

    fn record_at(&mut self, record: &Record, now: Instant) {
        self.model.record(record, now);
        let Some(line) = self.line(record, now) else { return };
        self.shown = Some(now);
        // A renderer never fails: without standard error there is no place for the text.
        let _ = writeln!(self.output, "{line}");
    }

    /// Returns the line that a record leads to.
    fn line(&self, record: &Record, now: Instant) -> Option<String> {
        match record {
            Record::Start(run) => Some(start(run)),
            Record::Step(_) | Record::Progress(_) => {
                let is_due = self.shown.is_none_or(|shown| now.duration_since(shown) >= INTERVAL);
                is_due.then(|| self.progress(now))
            }
            Record::Values(_) | Record::Batches { .. } => None,
            Record::Epoch { epoch, duration, .. } => {
                let epoch = self.epoch(*epoch);
                Some(format!("{epoch}  {}  {}", self.model.scores(), format::measured(*duration)))
            }
            Record::Checkpoint { step, folder } => Some(format!("checkpoint of step {step}: {folder}")),
            Record::Message { level: Level::Info, text } => Some(text.clone()),
            Record::Message { level: Level::Warning, text } => Some(format!("warning: {text}")),
            Record::Message { level: Level::Error, text } => Some(format!("error: {text}")),
            Record::Usage(usage) => Some(usage.to_string()),
            Record::End { reason, step, duration } => {
                let (reason, duration) = (reason_text(*reason), format::measured(*duration));
                Some(format!("training ended after {step} steps, {duration}: {reason}"))
            }
        }
    }

    /// `epoch 1/2  30/600  train loss 0.12  5123 items/s  9 s left`.
    fn progress(&self, now: Instant) -> String {
        let model = &self.model;
        let mut parts = vec![self.epoch(model.epoch)];
        if let Phase::Validating(pass) = &model.phase {
            parts.push(format!("{} {}", pass.set, of(pass.batch, pass.batches)));
        } else {
            parts.push(of(model.batch, model.batches()));
            for metric in &model.metrics {
                let train = metric.splits.iter().find(|history| history.split.name() == "train");
                parts.extend(train.map(|train| format!("{} {}", metric.name, train.current)));
            }
        }
        parts.extend(
            model.throughput.items_per_second().map(|rate| format!("{} items/s", format::count(rate))),
        );
        parts.extend(model.run_left(now).map(|left| format!("{} left", format::duration(left))));
        parts.join("  ")
    }

    fn epoch(&self, epoch: u64) -> String {
        format!("epoch {}", of(epoch + 1, self.model.run.epochs))
    }
}

impl Default for Lines {
    fn default() -> Lines {
        Lines::new()
    }
}

impl Renderer for Lines {
    fn record(&mut self, record: &Record) {
        self.record_at(record, Instant::now());
    }
}

/// ``training of `demo` starts: 3 epochs of 10 batches``.
fn start(run: &RunDescription) -> String {
    let count =
        |number: u64, one: &str, many: &str| format!("{number} {}", if number == 1 { one } else { many });
    let batches =
        run.batches.map_or(String::new(), |batches| format!(" of {}", count(batches, "batch", "batches")));
    let epochs = run.epochs.map(|epochs| count(epochs, "epoch", "epochs") + &batches);
    let steps = run.steps.map(|steps| count(steps, "step", "steps"));
    let length = match (epochs, steps) {
        (Some(epochs), Some(steps)) => format!(": {epochs}, at most {steps}"),
        (Some(length), None) | (None, Some(length)) => format!(": {length}"),
        (None, None) => String::new(),
    };
    let name = of_run(run);
    match run.step {
        0 => format!("training{name} starts{length}"),
        step => format!("training{name} continues after {}{length}", count(step, "step", "steps")),
    }
}

fn of(done: u64, total: Option<u64>) -> String {
    total.map_or_else(|| done.to_string(), |total| format!("{done}/{total}"))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::model::tests::{description, step, valid, values};
    use super::*;
    use crate::history::StopReason;
    use crate::record::{DEFAULT_NAME, Split};

    #[derive(Clone, Default)]
    struct Text(Arc<Mutex<Vec<u8>>>);

    impl Write for Text {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_first_line_names_the_run_and_its_length() {
        let run = description();
        let unnamed = RunDescription { name: DEFAULT_NAME.into(), epochs: Some(1), ..run.clone() };
        assert_eq!(start(&unnamed), "training starts: 1 epoch of 10 batches");
        let steps = RunDescription { epochs: None, steps: Some(500), batches: None, ..run.clone() };
        assert_eq!(start(&steps), "training of `demo` starts: 500 steps");
        let both = RunDescription { steps: Some(20), step: 1, ..run };
        assert_eq!(
            start(&both),
            "training of `demo` continues after 1 step: 3 epochs of 10 batches, at most 20 steps"
        );
        assert_eq!(start(&RunDescription::default()), "training starts");
    }

    #[test]
    fn a_run_as_lines() {
        let text = Text::default();
        let mut lines = Lines::to(Box::new(text.clone()));
        let mut now = Instant::now();
        lines.record_at(&Record::Start(description()), now);
        for index in 0..10 {
            now += Duration::from_secs(4);
            lines.record_at(&step(index), now);
        }
        lines.record_at(&values(Split::Train, 0, 0.5, 0.8), now);
        lines.record_at(&values(valid(), 0, 0.6, 0.75), now);
        lines.record_at(&Record::Epoch { epoch: 0, step: 10, duration: Duration::from_secs(41) }, now);
        lines.record_at(&Record::Message { level: Level::Warning, text: "small set".into() }, now);
        let end =
            Record::End { reason: StopReason::EarlyStopping, step: 10, duration: Duration::from_secs(65) };
        lines.record_at(&end, now);
        let text = String::from_utf8(text.0.lock().unwrap().clone()).unwrap();
        let expected = "\
training of `demo` starts: 3 epochs of 10 batches
epoch 1/3  3/10  loss 0.3333  8 items/s  1:48 left
epoch 1/3  6/10  loss 0.1667  8 items/s  1:36 left
epoch 1/3  9/10  loss 0.1111  8 items/s  1:24 left
epoch 1/3  train loss 0.5  train accuracy 80.00 %  valid loss 0.6  valid accuracy 75.00 %  41 s
warning: small set
training ended after 10 steps, 1:05: early stopping, no improvement
";
        assert_eq!(text, expected);
    }
}
