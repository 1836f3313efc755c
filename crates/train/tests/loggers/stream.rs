//! Records of a run that no model computes.

use std::collections::BTreeMap;
use std::time::Duration;

use kiln_train::{
    Level, MetricDescription, MetricValue, PassProgress, Record, RunDescription, Split, StepRecord,
    StopReason, ValuesRecord,
};

/// Batches of an epoch.
pub(crate) const BATCHES: u64 = 5;

pub(crate) fn start(step: u64) -> Record {
    Record::Start(RunDescription {
        name: "run".to_owned(),
        task: "Net(\n  linear\n)".to_owned(),
        epochs: Some(4),
        epoch: step / BATCHES,
        step,
        batches: Some(BATCHES),
        hyper_parameters: BTreeMap::from([
            ("learning rate".to_owned(), "0.1".to_owned()),
            ("optimizer".to_owned(), "adam".to_owned()),
        ]),
        environment: BTreeMap::from([("device".to_owned(), "cpu".to_owned())]),
        metrics: vec![MetricDescription { name: "accuracy".to_owned(), higher_is_better: true }],
        started: 1_700_000_000 + step,
        ..Default::default()
    })
}

pub(crate) fn step(step: u64) -> Record {
    Record::Step(StepRecord {
        epoch: step / BATCHES,
        step,
        batch: step % BATCHES,
        items: 16,
        learning_rates: vec![("adam".to_owned(), 0.1 / (step + 1) as f64)],
        values: vec![("loss".to_owned(), 1.0 / (step + 1) as f64)],
        skipped: false,
    })
}

pub(crate) fn values(split: Split, step: u64) -> Record {
    let number = step as f64;
    Record::Values(ValuesRecord {
        split,
        epoch: step / BATCHES - 1,
        step,
        complete: true,
        values: vec![
            ("loss".to_owned(), MetricValue::Scalar(1.0 / number)),
            ("accuracy".to_owned(), MetricValue::Scalar(1.0 - 1.0 / number)),
            ("f1".to_owned(), MetricValue::PerClass(vec![0.1 * number, f64::NAN])),
        ],
        text: BTreeMap::from([("accuracy".to_owned(), "some %".to_owned())]),
    })
}

/// The records of an epoch, which ends with a checkpoint.
fn epoch(epoch: u64) -> Vec<Record> {
    let end = (epoch + 1) * BATCHES;
    let mut records: Vec<Record> = (end - BATCHES..end).map(step).collect();
    records.push(values(Split::Train, end));
    records.push(Record::Progress(PassProgress { set: "valid".to_owned(), epoch, batch: 1, batches: None }));
    records.push(values(Split::Valid("valid".to_owned()), end));
    records.push(Record::Message { level: Level::Info, text: format!("epoch {epoch}") });
    records.push(Record::Epoch { epoch, step: end, duration: Duration::from_millis(1500) });
    records.push(Record::Checkpoint { step: end, folder: "checkpoints/last".to_owned() });
    records
}

pub(crate) fn end(step: u64, reason: StopReason) -> Record {
    Record::End { reason, step, duration: Duration::new(6, 1) }
}

/// The records of epochs `first..last`: a start, the epochs and an end.
pub(crate) fn run(first: u64, last: u64) -> Vec<Record> {
    let reason = if last == 4 { StopReason::Finished } else { StopReason::Interrupted };
    let epochs = (first..last).flat_map(epoch);
    std::iter::once(start(first * BATCHES)).chain(epochs).chain([end(last * BATCHES, reason)]).collect()
}

/// Records without those of starts.
pub(crate) fn without_starts(records: Vec<Record>) -> Vec<Record> {
    records.into_iter().filter(|record| !matches!(record, Record::Start(_))).collect()
}
