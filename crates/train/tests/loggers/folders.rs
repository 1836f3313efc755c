//! Folders of runs.

use std::collections::BTreeSet;
use std::fs;
use std::thread;

use kiln_train::logger::{Logger, RunFolder};

use crate::loggers::stream::run;

#[test]
fn a_run_has_records_and_checkpoints() {
    let root = tempfile::tempdir().unwrap();
    let folder = RunFolder::create(root.path().join("deep/runs"), "<script>alert(1)<").unwrap();
    let mut logger = folder.logger().unwrap();
    run(0, 1).iter().for_each(|record| logger.record(record).unwrap());
    logger.flush().unwrap();
    let opened = RunFolder::open(folder.path()).unwrap();
    assert_eq!(opened, folder);
    assert_eq!(opened.read().unwrap().len(), run(0, 1).len());
    assert_eq!(opened.reader().unwrap().count(), run(0, 1).len());
    assert!(opened.checkpoints().is_dir());
    assert_eq!(opened.name(), "<script>alert(1)<");
}

#[test]
fn names_that_leave_the_folder_are_errors() {
    let root = tempfile::tempdir().unwrap();
    let long = "x".repeat(201);
    for name in ["", ".", "..", "../x", "a/b", "/etc", "a\\b", "C:", ".hidden", "a\0b", "a\nb", &long] {
        let error = RunFolder::create(root.path(), name).unwrap_err().to_string();
        assert!(error.contains("the name of the run"), "{error}");
    }
    assert_eq!(RunFolder::list(root.path()).unwrap(), []);
}

#[test]
fn runs_of_one_name_at_the_same_time_have_their_own_folders() {
    let root = tempfile::tempdir().unwrap();
    let create = || RunFolder::create(root.path(), "run").unwrap().name().to_owned();
    let names: BTreeSet<String> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(names.len(), 8);
    assert!(names.contains("run") && names.contains("run-8"), "{names:?}");
}

#[test]
fn other_entries_are_no_runs() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("empty")).unwrap();
    fs::create_dir_all(root.path().join("odd/records.jsonl")).unwrap();
    fs::write(root.path().join("file"), "x").unwrap();
    RunFolder::create(root.path(), "run").unwrap();
    let names: Vec<String> =
        RunFolder::list(root.path()).unwrap().iter().map(|run| run.name().to_owned()).collect();
    assert_eq!(names, ["run"]);
    assert!(RunFolder::open(root.path().join("empty")).is_err());
    assert!(RunFolder::open(root.path().join("odd")).is_err());
    assert!(RunFolder::list(root.path().join("none")).is_err());
}
