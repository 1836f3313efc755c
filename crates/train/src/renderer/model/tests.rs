//! Tests of the model, and a synthetic run for tests of renderers.

use std::collections::BTreeMap;

use super::*;
use crate::metric::MetricValue;
use crate::record::MetricDescription;

/// The description of the synthetic run: 3 epochs of 10 batches with 32 items.
pub(crate) fn description() -> RunDescription {
    RunDescription {
        name: "demo".into(),
        task: "synthetic".into(),
        epochs: Some(3),
        batches: Some(10),
        metrics: vec![MetricDescription { name: "accuracy".into(), higher_is_better: true }],
        ..RunDescription::default()
    }
}

/// The record of a step of the synthetic run. The loss is `1 / (step + 1)`.
pub(crate) fn step(step: u64) -> Record {
    Record::Step(StepRecord {
        epoch: step / 10,
        step,
        batch: step % 10,
        items: 32,
        learning_rates: vec![("adam".into(), 0.001)],
        values: vec![("loss".into(), 1.0 / (step + 1) as f64)],
        skipped: step == 3,
    })
}

/// Loss and accuracy of a complete pass.
pub(crate) fn values(split: Split, epoch: u64, loss: f64, accuracy: f64) -> Record {
    Record::Values(ValuesRecord {
        split,
        epoch,
        step: 10 * (epoch + 1),
        complete: true,
        values: vec![
            ("loss".into(), MetricValue::Scalar(loss)),
            ("accuracy".into(), MetricValue::Scalar(accuracy)),
            ("confusion".into(), MetricValue::Text("matrix".into())),
        ],
        text: BTreeMap::from([("accuracy".into(), format!("{:.2} %", 100.0 * accuracy))]),
    })
}

pub(crate) fn valid() -> Split {
    Split::Valid("valid".into())
}

/// The synthetic run until the third epoch's fifth step, one step every 100 ms.
pub(crate) fn model_at_work(start: Instant) -> Model {
    let mut model = Model::default();
    let mut now = start;
    model.record(&Record::Start(description()), now);
    for index in 0..25 {
        now += Duration::from_millis(100);
        model.record(&step(index), now);
        if index % 10 == 9 {
            let epoch = index / 10;
            model.record(&values(Split::Train, epoch, 0.5 / (epoch + 1) as f64, 0.8), now);
            model.record(&values(valid(), epoch, 0.6 + epoch as f64, 0.7 + 0.05 * epoch as f64), now);
            let duration = Duration::from_secs(1);
            model.record(&Record::Epoch { epoch, step: index + 1, duration }, now);
        }
    }
    model
}

#[test]
fn progress_and_remaining_time() {
    let start = Instant::now();
    let model = model_at_work(start);
    let now = start + Duration::from_millis(2500);
    assert_eq!((model.epoch, model.batch, model.step, model.epochs_done), (2, 5, 25, 2));
    assert_eq!(model.epoch_fraction(), Some(0.5));
    assert!((model.run_fraction().unwrap() - 25.0 / 30.0).abs() < 1e-12);
    assert_eq!(model.run_left(now).unwrap().as_secs_f64().mul_add(1000.0, 0.5) as u64, 500);
    assert_eq!(model.epoch_left().unwrap().as_secs_f64().mul_add(1000.0, 0.5) as u64, 500);
    assert_eq!(model.throughput.items_per_second().unwrap().round(), 320.0);
    assert_eq!((model.skipped, model.learning_rates.len()), (1, 1));
}

#[test]
fn best_values_follow_the_direction_of_the_metric() {
    let model = model_at_work(Instant::now());
    let best = |name: &str, split: &Split| {
        let metric = model.metrics.iter().find(|metric| metric.name == name).unwrap();
        metric.split(split).unwrap().best.clone().unwrap()
    };
    assert_eq!(best("loss", &valid()).epoch, 0);
    assert_eq!(best("accuracy", &valid()).text, "75.00 %");
    assert_eq!(best("loss", &Split::Train).text, "0.25");
}

#[test]
fn training_curves_are_of_steps_where_steps_have_values() {
    let model = model_at_work(Instant::now());
    let names: Vec<&str> = model.metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(names, ["loss", "accuracy"]);
    let points = |metric: usize, split: usize| model.metrics[metric].splits[split].series.lifelong();
    assert_eq!(points(0, 0).len(), 25);
    assert_eq!(points(0, 1), [(10.0, 0.6), (20.0, 1.6)]);
    assert_eq!(points(1, 0), [(10.0, 0.8), (20.0, 0.8)]);
    assert_eq!(model.splits(), [Split::Train, valid()]);
    assert_eq!(
        model.scores(),
        "train loss 0.25  train accuracy 80.00 %  valid loss 1.6  valid accuracy 75.00 %"
    );
}

#[test]
fn a_resumed_run_counts_from_its_first_step() {
    let start = Instant::now();
    let mut model = Model::default();
    let description = RunDescription { epoch: 1, step: 15, ..description() };
    model.record(&Record::Start(description), start);
    assert_eq!(model.run_fraction(), Some(0.5));
    assert_eq!(model.run_left(start), None);
    let now = start + Duration::from_secs(5);
    model.record(&step(15), now);
    assert_eq!(model.run_left(now).unwrap().as_secs_f64().round(), 70.0);
}

#[test]
fn messages_are_bounded_and_survive_a_start() {
    let mut model = Model::default();
    for index in 0..2000 {
        let text = format!("message {index}");
        model.record(&Record::Message { level: Level::Warning, text }, Instant::now());
    }
    model.record(&Record::Start(description()), Instant::now());
    assert_eq!(model.messages().len(), MESSAGES);
    assert_eq!(model.messages().next_back().unwrap().text, "message 1999");
}

#[test]
fn a_run_without_lengths_has_no_fraction() {
    let mut model = Model::default();
    let now = Instant::now();
    model.record(&Record::Start(RunDescription::default()), now);
    model.record(&step(0), now);
    assert_eq!((model.run_fraction(), model.epoch_fraction(), model.run_left(now)), (None, None, None));
    let end = Record::End { reason: StopReason::Interrupted, step: 1, duration: Duration::from_secs(9) };
    model.record(&end, now);
    assert_eq!(model.elapsed(now), Duration::from_secs(9));
    assert_eq!(model.messages().next_back().unwrap().text, "training ended: interrupted");
}
