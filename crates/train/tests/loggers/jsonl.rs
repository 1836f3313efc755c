//! Lines of JSON.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::time::{Duration, Instant};

use kiln_train::logger::{InMemoryLogger, JsonlLogger, Logger, RecordReader, points, read_run};
use kiln_train::{Level, LoggerError, MetricValue, Record, Split, StopReason, ValuesRecord};

use crate::loggers::stream::{BATCHES, end, run, start, step, without_starts};

fn write(logger: &mut impl Logger, records: &[Record]) {
    for record in records {
        logger.record(record).unwrap();
    }
    logger.flush().unwrap();
}

/// Equality in which NaN equals NaN.
#[track_caller]
fn assert_same(found: &[Record], expected: &[Record]) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(format!("{found:?}"), format!("{expected:?}"));
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn every_record_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.jsonl");
    let mut records = run(0, 4);
    for name in ["", "a,\"b\"\n\r\t", "<script>alert(1)</script>", "\u{0}\u{1b}[31m", "名前 \u{2028} 🦀"]
    {
        records.push(Record::Message { level: Level::Error, text: name.to_owned() });
        records.push(Record::Values(ValuesRecord {
            split: Split::Valid(name.to_owned()),
            epoch: u64::MAX,
            step: u64::MAX,
            complete: false,
            values: vec![
                (name.to_owned(), MetricValue::Text(name.to_owned())),
                (
                    "matrix".to_owned(),
                    MetricValue::Matrix { rows: 1, columns: 2, elements: vec![1.0, f64::NAN] },
                ),
                (
                    "histogram".to_owned(),
                    MetricValue::Histogram {
                        edges: vec![f64::NEG_INFINITY, 0.5, f64::INFINITY],
                        counts: vec![1.0, 2.0],
                    },
                ),
                (
                    "image".to_owned(),
                    MetricValue::Image { height: 1, width: 2, channels: 1, pixels: vec![0, 255] },
                ),
            ],
            text: Default::default(),
        }));
    }
    write(&mut JsonlLogger::create(&path).unwrap(), &records);
    assert_same(&read_run(&path).unwrap(), &records);
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), records.len());
}

#[test]
fn numbers_are_read_back_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.jsonl");
    let mut numbers =
        vec![0.0, -0.0, 1.0, -3.0, f64::MIN_POSITIVE, 5e-324, f64::MAX, f64::EPSILON, 0.1 + 0.2];
    numbers.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 9_007_199_254_740_993.0, 1e22, 1e23]);
    // A linear congruential generator: numbers whose decimal form is long.
    let mut bits = 1_u64;
    numbers.extend((0..2000).map(|_| {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from_bits(bits)
    }));
    let record = Record::Values(ValuesRecord {
        split: Split::Train,
        epoch: 0,
        step: 1,
        complete: true,
        values: vec![("numbers".to_owned(), MetricValue::PerClass(numbers.clone()))],
        text: Default::default(),
    });
    write(&mut JsonlLogger::create(&path).unwrap(), &[record]);
    let read = points(&read_run(&path).unwrap()[0]);
    for (point, number) in read.iter().zip(&numbers) {
        let is_same = point.value.to_bits() == number.to_bits() || point.value.is_nan() && number.is_nan();
        assert!(is_same, "{} {number}", point.value);
    }
    assert_eq!(read.len(), numbers.len());
}

#[test]
fn a_resumed_run_has_the_log_of_an_uninterrupted_one() {
    let folder = tempfile::tempdir().unwrap();
    let whole = without_starts(run(0, 4));
    // Killed in step 13 with the checkpoint of step 10, or stopped at step 10 with or without a checkpoint.
    let mut killed = run(0, 4);
    killed.retain(|record| !matches!(record, Record::End { .. }));
    killed.truncate(33);
    let stopped = run(0, 2);
    let mut without_checkpoint = stopped.clone();
    without_checkpoint.remove(without_checkpoint.len() - 2);
    for (index, first) in [killed, stopped, without_checkpoint].iter().enumerate() {
        let path = folder.path().join(format!("{index}.jsonl"));
        write(&mut JsonlLogger::create(&path).unwrap(), first);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"record\":\"step\",\"epo").unwrap();
        write(&mut JsonlLogger::append(&path).unwrap(), &run(2, 4));
        let mut expected = whole.clone();
        if index == 2 {
            let is_lost = |record: &Record| matches!(record, Record::Checkpoint { step: 10, .. });
            expected.retain(|record| !is_lost(record));
        }
        assert_same(&without_starts(read_run(&path).unwrap()), &expected);
    }
}

#[test]
fn a_run_can_be_resumed_twice_at_one_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.jsonl");
    write(&mut JsonlLogger::create(&path).unwrap(), &run(0, 3));
    write(&mut JsonlLogger::append(&path).unwrap(), &run(2, 3));
    write(&mut JsonlLogger::append(&path).unwrap(), &run(2, 4));
    let records = read_run(&path).unwrap();
    assert_eq!(records.iter().filter(|record| matches!(record, Record::Start(_))).count(), 2);
    assert_same(&without_starts(records), &without_starts(run(0, 4)));
}

#[test]
fn a_run_that_was_interrupted_before_its_first_step_starts_its_log_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.jsonl");
    let end = Record::End { reason: StopReason::Interrupted, step: 0, duration: Duration::from_secs(1) };
    let checkpoint = Record::Checkpoint { step: 0, folder: "checkpoints/last".to_owned() };
    write(&mut JsonlLogger::create(&path).unwrap(), &[start(0), checkpoint, end]);
    write(&mut JsonlLogger::append(&path).unwrap(), &run(0, 4));
    assert_same(&without_starts(read_run(&path).unwrap()), &without_starts(run(0, 4)));
}

#[test]
fn a_new_run_does_not_replace_a_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.jsonl");
    write(&mut JsonlLogger::create(&path).unwrap(), &run(0, 1));
    let before = fs::read(&path).unwrap();
    assert!(JsonlLogger::create(&path).unwrap_err().to_string().contains("not empty"));
    let mut logger = JsonlLogger::append(&path).unwrap();
    let error = logger.record(&start(0)).unwrap_err().to_string();
    assert!(error.contains("training starts at step 0"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
    logger.resume_at(0).unwrap();
    write(&mut logger, &run(0, 4));
    assert_same(&read_run(&path).unwrap(), &run(0, 4));
}

#[test]
fn an_invalid_line_is_an_error_with_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.jsonl");
    write(&mut JsonlLogger::create(&path).unwrap(), &run(0, 1));
    let text = fs::read_to_string(&path).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let bad_lines: [&[u8]; 8] =
        [b"", b"{", b"null", b"\xff\xfe", b"{\"record\":\"novel\"}", &[0; 9], b"{} {}", b"[[[[[[[["];
    for bad in bad_lines {
        let bytes = [first.as_bytes(), b"\n", bad, b"\n", rest.as_bytes()].concat();
        fs::write(&path, bytes).unwrap();
        let error = read_run(&path).unwrap_err();
        assert!(matches!(error, LoggerError::Line { line: 2, .. }), "{error}");
        assert!(error.to_string().contains("records.jsonl: line 2: "), "{error}");
        // The reader gives the records before the line, the error, and nothing else.
        let read: Vec<bool> = RecordReader::open(&path).unwrap().map(|record| record.is_ok()).collect();
        assert_eq!(read, [true, false]);
        // A log with an invalid line is not continued.
        assert!(JsonlLogger::append(&path).unwrap().resume_at(3).is_err());
    }
    let deep = format!("{}\n", "[".repeat(1 << 20));
    fs::write(&path, deep).unwrap();
    assert!(read_run(&path).unwrap_err().to_string().contains("line 1"));
}

#[test]
fn a_wrong_number_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.jsonl");
    write(&mut JsonlLogger::create(&path).unwrap(), &[step(0)]);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("[\"loss\",1.0]"), "{text}");
    for wrong in ["null", "\"nan\"", "true", "[1]"] {
        fs::write(&path, text.replace("[\"loss\",1.0]", &format!("[\"loss\",{wrong}]"))).unwrap();
        let error = read_run(&path).unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("expected a number"), "{error}");
    }
}

/// A process that is killed leaves a part of a line, at any byte.
#[test]
fn a_log_that_ends_anywhere_is_read_and_continued() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.jsonl");
    write(&mut JsonlLogger::create(&path).unwrap(), &run(0, 1));
    let bytes = fs::read(&path).unwrap();
    for length in (0..bytes.len()).step_by(7) {
        fs::write(&path, &bytes[..length]).unwrap();
        let complete = bytes[..length].iter().filter(|byte| **byte == b'\n').count();
        assert_same(&read_run(&path).unwrap(), &run(0, 1)[..complete]);
        let mut logger = JsonlLogger::append(&path).unwrap();
        write(&mut logger, &[end(9, StopReason::Finished)]);
        assert_eq!(read_run(&path).unwrap().len(), complete + 1);
    }
}

#[test]
fn records_without_an_end_of_the_process_are_written_on_drop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.jsonl");
    let mut logger = JsonlLogger::create(&path).unwrap();
    logger.record(&start(0)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    drop(logger);
    assert_same(&read_run(&path).unwrap(), &[start(0)]);
}

#[test]
fn a_long_log_is_read_and_resumed_in_bounded_time() {
    const STEPS: u64 = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.jsonl");
    let began = Instant::now();
    let mut logger = JsonlLogger::create(&path).unwrap();
    for index in 0..STEPS {
        logger.record(&step(index)).unwrap();
    }
    drop(logger);
    assert_eq!(read_run(&path).unwrap().len() as u64, STEPS);
    JsonlLogger::append(&path).unwrap().resume_at(STEPS - BATCHES).unwrap();
    assert_eq!(read_run(&path).unwrap().len() as u64, STEPS - BATCHES);
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
}

#[test]
fn memory_has_series() {
    let logger = InMemoryLogger::new();
    write(&mut logger.clone(), &run(0, 2));
    assert_same(&logger.records(), &run(0, 2));
    assert_eq!(logger.series("train", "loss"), [(5, 1.0 / 5.0), (10, 1.0 / 10.0)]);
    assert_eq!(logger.series("valid", "accuracy"), [(5, 1.0 - 1.0 / 5.0), (10, 1.0 - 1.0 / 10.0)]);
    assert_eq!(logger.series("valid", "f1/0"), [(5, 0.5), (10, 1.0)]);
    let losses = logger.series("step", "loss");
    assert_eq!((losses.len(), losses[0], losses[9]), (10, (1, 1.0), (10, 0.1)));
    assert_eq!(logger.series("step", "learning_rate/adam").len(), 10);
    assert_eq!(logger.series("valid", "novel"), []);
}
