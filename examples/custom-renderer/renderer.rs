//! A renderer: one line for each event of training.

use kiln::train::{Record, Renderer};

/// Prints a line for each record, and for one training step of `every`.
pub(crate) struct EventRenderer {
    every: u64,
}

impl EventRenderer {
    /// Returns a renderer of one step of `every`. An `every` of 0 is 1.
    pub(crate) fn new(every: u64) -> EventRenderer {
        EventRenderer { every: every.max(1) }
    }

    /// Returns the line of a record.
    fn line(&self, record: &Record) -> Option<String> {
        match record {
            Record::Start(run) => {
                let names: Vec<&str> = run.metrics.iter().map(|metric| metric.name.as_str()).collect();
                Some(format!("[start] {}: {}", run.name, names.join(", ")))
            }
            Record::Step(step) if step.step % self.every == 0 => {
                let losses = step.values.iter().map(|(name, value)| format!("{name} {value:.4}"));
                let rates =
                    step.learning_rates.iter().map(|(name, rate)| format!("learning rate of {name} {rate}"));
                let values: Vec<String> = losses.chain(rates).collect();
                Some(format!("[step {}] {}", step.step, values.join(", ")))
            }
            // The values of an incomplete pass are for a live display.
            Record::Values(values) if values.complete => {
                let texts: Vec<String> =
                    values.text.iter().map(|(name, text)| format!("{name} {text}")).collect();
                Some(format!("[{} {}] {}", values.split.name(), values.epoch + 1, texts.join(", ")))
            }
            Record::Epoch { epoch, duration, .. } => {
                Some(format!("[epoch {}] {:.1} s", epoch + 1, duration.as_secs_f64()))
            }
            Record::Checkpoint { folder, .. } => Some(format!("[checkpoint] {folder}")),
            Record::Message { text, .. } => Some(format!("[message] {text}")),
            Record::End { reason, step, .. } => Some(format!("[end] {reason:?} after {step} steps")),
            Record::Batches { batches, .. } => Some(format!("[batches] {batches:?} an epoch")),
            Record::Usage(usage) => Some(format!("[usage] {:.1} s", usage.total().as_secs_f64())),
            Record::Step(_) | Record::Values(_) | Record::Progress(_) => None,
            // Later versions may have other records.
            _ => None,
        }
    }
}

impl Renderer for EventRenderer {
    fn record(&mut self, record: &Record) {
        if let Some(line) = self.line(record) {
            println!("{line}");
        }
    }
}
