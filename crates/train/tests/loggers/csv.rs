//! Tables of numbers.

use std::fs;

use kiln_train::logger::{CsvLogger, Logger};
use kiln_train::{LoggerError, MetricValue, Record, Split, ValuesRecord};

use crate::loggers::stream::{run, start};

fn write(logger: &mut CsvLogger, records: &[Record]) {
    for record in records {
        logger.record(record).unwrap();
    }
    logger.flush().unwrap();
}

fn value(step: u64, split: &str, name: &str, value: f64) -> Record {
    Record::Values(ValuesRecord {
        split: Split::Valid(split.to_owned()),
        epoch: 0,
        step,
        complete: true,
        values: vec![(name.to_owned(), MetricValue::Scalar(value))],
        text: Default::default(),
    })
}

#[test]
fn a_table_has_a_row_for_each_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers.csv");
    write(&mut CsvLogger::create(&path).unwrap(), &run(0, 1));
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..3],
        ["step,epoch,split,name,value", "1,0,step,loss,1.0", "1,0,step,learning_rate/adam,0.1"]
    );
    assert!(lines.contains(&"5,0,valid,accuracy,0.8"), "{text}");
    assert!(lines.contains(&"5,0,train,f1/1,NaN"), "{text}");
    // Two numbers of each of five steps, four of each of two splits.
    assert_eq!(lines.len(), 1 + 5 * 2 + 2 * 4);
}

#[test]
fn hostile_names_are_quoted_and_survive_a_resume() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers.csv");
    let hostile = ["a,b", "\"", "line\nbreak", "\r\n\"x\",,", "9,9,9,9,9\n9,9,9,9,9", "=1+1"];
    let records: Vec<Record> = hostile.iter().map(|name| value(3, name, name, f64::INFINITY)).collect();
    write(&mut CsvLogger::create(&path).unwrap(), &records);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("3,0,\"a,b\",\"a,b\",inf\n3,0,\"\"\"\",\"\"\"\",inf\n"), "{text}");
    let mut logger = CsvLogger::append(&path).unwrap();
    logger.resume_at(3).unwrap();
    // The run computes these metrics again: rows that are kept are not added a second time.
    write(&mut logger, &records);
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    logger.resume_at(2).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "step,epoch,split,name,value\n");
}

#[test]
fn a_resumed_run_has_the_table_of_an_uninterrupted_one() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, parts) = (folder.path().join("whole.csv"), folder.path().join("parts.csv"));
    write(&mut CsvLogger::create(&whole).unwrap(), &run(0, 4));
    write(&mut CsvLogger::create(&parts).unwrap(), &run(0, 3));
    let mut text = fs::read_to_string(&parts).unwrap();
    text += "16,3,step,lo";
    fs::write(&parts, text).unwrap();
    write(&mut CsvLogger::append(&parts).unwrap(), &run(2, 4));
    assert_eq!(fs::read_to_string(&parts).unwrap(), fs::read_to_string(&whole).unwrap());
    assert!(CsvLogger::create(&parts).unwrap_err().to_string().contains("not empty"));
    let error = CsvLogger::append(&parts).unwrap().record(&start(0)).unwrap_err().to_string();
    assert!(error.contains("training starts at step 0"), "{error}");
}

#[test]
fn an_invalid_row_is_an_error_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers.csv");
    let header = "step,epoch,split,name,value\n";
    for (text, at) in [
        (format!("{header}1,0,train,\"a\nb\",0.5\n2,0,train\n"), 4),
        (format!("{header}x,0,train,loss,0.5\n"), 2),
        ("a,b\n1,2\nsome more text that is no table\n".to_owned(), 1),
    ] {
        fs::write(&path, &text).unwrap();
        let error = CsvLogger::append(&path).unwrap().resume_at(1).unwrap_err();
        assert!(matches!(&error, LoggerError::Line { line, .. } if *line == at), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}
