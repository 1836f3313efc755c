//! The table that remains on the screen after the end.

use std::time::Instant;

use crate::renderer::format;
use crate::renderer::model::{Model, Phase, of_run, reason_text};

/// Returns the results of a run as a table: for each metric and split the last value, the best value and its epoch, then
/// the times and the memory. It is empty before training starts.
pub(super) fn table(model: &Model, now: Instant) -> String {
    let mut rows = vec![["metric", "split", "last", "best", "best epoch"].map(str::to_owned)];
    for metric in &model.metrics {
        for history in &metric.splits {
            let last = history.complete.as_ref().unwrap_or(&history.current);
            let best = history.best.as_ref();
            rows.push([
                metric.name.clone(),
                history.split.name().to_owned(),
                last.clone(),
                best.map_or("-".to_owned(), |best| best.text.clone()),
                best.map_or("-".to_owned(), |best| (best.epoch + 1).to_string()),
            ]);
        }
    }
    if rows.len() == 1 {
        return String::new();
    }
    let mut text = format!("{}\n", title(model, now));
    let widths: [usize; 5] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        text += &format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    if let Some(usage) = &model.usage {
        text += &format!("{usage}\n");
    }
    text
}

/// ``training of `demo`: all epochs are done, 30 steps in 5.2 s``.
fn title(model: &Model, now: Instant) -> String {
    let name = of_run(&model.run);
    let reason = match &model.phase {
        Phase::Ended { reason, .. } => reason_text(*reason),
        Phase::Starting | Phase::Training | Phase::Validating(_) => "ended early",
    };
    let duration = format::measured(model.elapsed(now));
    format!("training{name}: {reason}, {} steps in {duration}", model.step)
}
