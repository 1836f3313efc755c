//! Event files for TensorBoard: their frames, and their contents as TensorBoard reads them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kiln_train::logger::{Logger, TensorBoardLogger};
use kiln_train::{
    Level, MetricDescription, MetricValue, Record, RunDescription, Split, StepRecord, StopReason,
    ValuesRecord,
};

fn start(step: u64) -> Record {
    let text = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    Record::Start(RunDescription {
        name: "run".to_owned(),
        task: "Net(\n  <script>\n)".to_owned(),
        step,
        hyper_parameters: BTreeMap::from(
            [("rate", "0.5"), ("amsgrad", "true"), ("optimizer", "adam"), ("limit", "inf")].map(text),
        ),
        environment: BTreeMap::from([("device", "cpu")].map(text)),
        metrics: vec![MetricDescription { name: "accuracy".to_owned(), higher_is_better: true }],
        started: 1_700_000_000,
        ..Default::default()
    })
}

fn step(step: u64, loss: f64) -> Record {
    Record::Step(StepRecord {
        step,
        learning_rates: vec![("adam".to_owned(), 0.5)],
        values: vec![("loss".to_owned(), loss)],
        ..Default::default()
    })
}

fn values(step: u64) -> Record {
    Record::Values(ValuesRecord {
        split: Split::Valid("valid".to_owned()),
        epoch: 0,
        step,
        complete: true,
        values: vec![
            ("loss".to_owned(), MetricValue::Scalar(f64::NAN)),
            ("f1".to_owned(), MetricValue::PerClass(vec![0.25, 0.75])),
            ("confusion".to_owned(), MetricValue::Matrix { rows: 1, columns: 2, elements: vec![3.0, 4.0] }),
            (
                "scores".to_owned(),
                MetricValue::Histogram { edges: vec![0.0, 1.0, 3.0], counts: vec![2.0, 5.0] },
            ),
            (
                "example".to_owned(),
                MetricValue::Image { height: 1, width: 2, channels: 3, pixels: vec![255, 0, 0, 0, 128, 255] },
            ),
            ("note".to_owned(), MetricValue::Text("**bold**".to_owned())),
        ],
        text: Default::default(),
    })
}

/// A run of three steps that is resumed after the second.
fn write(folder: &Path) {
    let mut first = TensorBoardLogger::create(folder).unwrap();
    for record in [start(0), step(0, 4.0), step(1, 3.0), values(2), step(2, 99.0)] {
        first.record(&record).unwrap();
    }
    first.flush().unwrap();
    let mut second = TensorBoardLogger::create(folder).unwrap();
    assert_ne!(first.path(), second.path());
    let message = Record::Message { level: Level::Warning, text: "slow".to_owned() };
    let duration = Duration::from_secs(2);
    let epoch = Record::Epoch { epoch: 0, step: 3, duration };
    let end = Record::End { reason: StopReason::Finished, step: 3, duration };
    for record in [start(2), step(2, 2.0), message, epoch, end] {
        second.record(&record).unwrap();
    }
    second.flush().unwrap();
}

/// CRC-32C, bit by bit.
fn crc32c(data: &[u8]) -> u32 {
    !data.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
    })
}

fn masked(data: &[u8]) -> [u8; 4] {
    let crc = crc32c(data);
    crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// Splits a file into the data of its frames and verifies their checksums.
fn frames(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
        let (length_crc, rest) = rest.split_first_chunk::<4>().unwrap();
        assert_eq!(*length_crc, masked(length));
        let (data, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
        let (data_crc, rest) = rest.split_first_chunk::<4>().unwrap();
        assert_eq!(*data_crc, masked(data));
        frames.push(data);
        bytes = rest;
    }
    frames
}

#[test]
fn files_are_frames_with_checksums() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let mut files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 2);
    for (file, count) in files.iter().zip([6, 7]) {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("events.out.tfevents."), "{name}");
        let bytes = fs::read(file).unwrap();
        let frames = frames(&bytes);
        // Field 1 is the time, a double; field 2 the step, 0; field 3 the version of the file.
        assert_eq!(frames[0][0], 0x09);
        assert_eq!(frames[0][9..], *b"\x10\0\x1a\x0dbrain.Event:2");
        assert!(frames.len() >= count, "{name}: {}", frames.len());
    }
}

#[test]
fn an_invalid_image_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut logger = TensorBoardLogger::create(folder.path()).unwrap();
    let image = MetricValue::Image { height: 2, width: 2, channels: 1, pixels: vec![0] };
    let record = Record::Values(ValuesRecord {
        split: Split::Train,
        epoch: 0,
        step: 1,
        complete: true,
        values: vec![("example".to_owned(), image)],
        text: Default::default(),
    });
    let error = logger.record(&record).unwrap_err().to_string();
    assert!(error.contains("`train/example`") && error.contains("1 bytes"), "{error}");
}

/// `cargo xtask test` runs this as the step `tensorboard` where Python has TensorBoard.
#[test]
#[ignore = "the step `tensorboard` runs it, where Python has TensorBoard"]
fn tensorboard_reads_the_files() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/event_files.py");
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    assert!(Command::new(python).arg(script).arg(folder.path()).status().unwrap().success());
}
