//! Runs that no model computes, for the tests of `kiln runs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kiln_train::logger::{Logger, RunFolder};
use kiln_train::{
    Level, MetricDescription, MetricValue, Record, RunDescription, Split, StepRecord, StopReason,
    ValuesRecord,
};

/// A text that is markup in every context of a page.
pub(crate) const HOSTILE: &str = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&";

/// Runs `kiln runs` with words and returns whether it succeeded, its output and its errors.
pub(crate) fn kiln_runs(words: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kiln")).arg("runs").args(words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn values(split: Split, epoch: u64, step: u64, scale: f64, hostile: bool) -> Record {
    let accuracy = 1.0 - scale / (epoch + 2) as f64;
    let mut values = vec![
        ("loss".to_owned(), MetricValue::Scalar(if epoch == 1 { f64::NAN } else { scale / step as f64 })),
        ("accuracy".to_owned(), MetricValue::Scalar(accuracy)),
        ("f1".to_owned(), MetricValue::PerClass(vec![accuracy, f64::INFINITY])),
        (
            "confusion".to_owned(),
            MetricValue::Matrix { rows: 2, columns: 2, elements: vec![40.0, 2.0, 1.0, f64::NAN] },
        ),
        ("scores".to_owned(), MetricValue::Histogram { edges: vec![0.0, 0.5, 1.0], counts: vec![3.0, 9.0] }),
        (
            "worst".to_owned(),
            MetricValue::Image { height: 1, width: 2, channels: 3, pixels: vec![255, 0, 0, 0, 128, 255] },
        ),
        ("damaged".to_owned(), MetricValue::Image { height: 9, width: 9, channels: 1, pixels: vec![0] }),
        ("sample".to_owned(), MetricValue::Text("a line\nanother <b>".to_owned())),
    ];
    if hostile {
        values.push((HOSTILE.to_owned(), MetricValue::Scalar(1.0)));
        values.push((format!("text {HOSTILE}"), MetricValue::Text(HOSTILE.to_owned())));
    }
    Record::Values(ValuesRecord { split, epoch, step, complete: true, values, text: BTreeMap::new() })
}

/// Writes a run of three epochs of ten steps.
pub(crate) fn write(root: &Path, name: &str, scale: f64, text: &str) -> PathBuf {
    let folder = RunFolder::create(root, name).unwrap();
    let mut logger = folder.logger().unwrap();
    let mut records = vec![Record::Start(RunDescription {
        name: name.to_owned(),
        task: text.to_owned(),
        epochs: Some(3),
        batches: Some(10),
        hyper_parameters: pairs(&[("rate", &scale.to_string()), ("optimizer", "adam"), (text, text)]),
        environment: pairs(&[("device", "cpu")]),
        metrics: vec![MetricDescription { name: "accuracy".to_owned(), higher_is_better: true }],
        started: 1_700_000_000,
        ..Default::default()
    })];
    for epoch in 0..3 {
        for step in epoch * 10..epoch * 10 + 10 {
            records.push(Record::Step(StepRecord {
                epoch,
                step,
                learning_rates: vec![(String::new(), 0.1)],
                values: vec![("loss".to_owned(), scale / (step + 1) as f64)],
                ..Default::default()
            }));
        }
        let step = epoch * 10 + 10;
        records.push(values(Split::Train, epoch, step, scale, false));
        records.push(values(Split::Valid("valid".to_owned()), epoch, step, scale, text == HOSTILE));
        records.push(Record::Epoch { epoch, step, duration: Duration::from_secs(40) });
    }
    records.push(Record::Message { level: Level::Warning, text: text.to_owned() });
    records.push(Record::End {
        reason: StopReason::EarlyStopping,
        step: 30,
        duration: Duration::from_secs(125),
    });
    records.iter().for_each(|record| logger.record(record).unwrap());
    logger.flush().unwrap();
    folder.path().to_owned()
}
