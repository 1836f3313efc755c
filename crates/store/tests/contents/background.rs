//! Saves in the background.

use std::process::{Command, Stdio};

use kiln_store::{BackgroundWriter, CheckpointSeries};

use super::*;

#[test]
fn saves_are_written_in_order() {
    let (folder, path) = scratch();
    let mut writer = BackgroundWriter::new().unwrap();
    writer.add(CheckpointWriter::open(&path).unwrap());
    for number in 1..=5 {
        writer.submit(&path, numbered(number));
        writer.submit(folder.path().join(format!("number-{number}")), numbered(number));
    }
    writer.wait().unwrap();
    assert_eq!(number_in(&path), 5);
    for number in 1..=5 {
        assert_eq!(number_in(&folder.path().join(format!("number-{number}"))), number);
    }
    // The added folder stays locked until the end.
    assert!(matches!(CheckpointWriter::open(&path), Err(StoreError::Locked { .. })));
    writer.finish().unwrap();
    drop(CheckpointWriter::open(&path).unwrap());
}

#[test]
fn submitting_does_not_wait_for_the_save() {
    let (_folder, path) = scratch();
    let writer = BackgroundWriter::new().unwrap();
    // The thread waits for this writer.
    let holder = CheckpointWriter::open(&path).unwrap();
    for number in 1..=20 {
        writer.submit_latest(&path, numbered(number));
    }
    writer.poll().unwrap();
    assert!(!path.exists());
    drop(holder);
    writer.finish().unwrap();
    assert_eq!(number_in(&path), 20);
}

#[test]
fn dropping_the_writer_finishes_its_saves() {
    let (folder, path) = scratch();
    let net: Weights<B> = weights(1.0, 1_000_000);
    let writer = BackgroundWriter::new().unwrap();
    let large = CheckpointContents::new(TrainingState::of(&net)).with_module("model", &net).unwrap();
    writer.submit(folder.path().join("large"), large);
    writer.submit(&path, numbered(2));
    drop(writer);
    assert_eq!(number_in(&path), 2);
    let large = Checkpoint::open(folder.path().join("large")).unwrap();
    assert_eq!(large.load_module(weights::<B>(0.0, 1_000_000)).unwrap().values()[999_999], 1.0);
    assert_eq!(names(folder.path()), ["large", "run"]);
}

#[test]
fn errors_name_the_folder_and_later_saves_are_written() {
    let (folder, path) = scratch();
    let (file, thesis) = (folder.path().join("file"), folder.path().join("thesis"));
    fs::write(&file, "").unwrap();
    fs::create_dir(&thesis).unwrap();
    fs::write(thesis.join("thesis.txt"), "years of work").unwrap();
    let writer = BackgroundWriter::new().unwrap();
    writer.submit(file.join("run"), numbered(1));
    writer.submit(&thesis, numbered(2));
    writer.submit(&path, numbered(3));
    let error = writer.wait().unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("2 checkpoints could not be saved\n  "), "{message}");
    let StoreError::BackgroundSaves { failed, omitted: 0 } = error else { panic!("{message}") };
    let folders: Vec<&PathBuf> = failed.iter().map(|save| &save.folder).collect();
    assert_eq!(folders, [&file.join("run"), &thesis]);
    assert!(matches!(failed[1].error, StoreError::NotReplaced { .. }));
    assert_eq!(names(&thesis), ["thesis.txt"]);
    assert_eq!(number_in(&path), 3);
    writer.finish().unwrap();
}

#[test]
fn training_continues_while_contents_are_written() {
    let (_folder, path) = scratch();
    let mut net: Weights<B> = weights(0.0, 10_000);
    let mut sgd = SgdConfig::new().init();
    let mut series = CheckpointSeries::open(&path, usize::MAX).unwrap();
    let writer = BackgroundWriter::new().unwrap();
    for number in 0..10 {
        let contents = CheckpointContents::new(TrainingState::of(&net).at(0, number));
        let contents = contents.with_module("model", &net).unwrap();
        writer.submit(series.next_folder(number), contents.with_optimizer("optimizer", &sgd, &net).unwrap());
        for _ in 0..2 {
            net = step(&mut sgd, net);
        }
    }
    writer.finish().unwrap();
    let saved = series.list().unwrap();
    assert_eq!(saved.len(), 10);
    for saved in saved {
        let checkpoint = Checkpoint::open(&saved.folder).unwrap();
        let net = checkpoint.load_module(weights::<B>(1.0, 10_000)).unwrap();
        assert!(net.values().iter().all(|&value| value == -(saved.step as f32)));
    }
}

#[test]
fn a_series_is_pruned_after_each_save() {
    let (_folder, run) = scratch();
    let mut series = CheckpointSeries::open(&run, 2).unwrap();
    let writer = BackgroundWriter::new().unwrap();
    for number in 1..=6 {
        let folder = series.next_folder(number);
        writer.submit_to_series(&series, folder, numbered(number));
    }
    writer.finish().unwrap();
    assert_eq!(names(&run), ["step-00000005", "step-00000006"]);
}

/// The folder that [`child_process_saves_in_the_background`] writes.
const FOLDER: &str = "KILN_TEST_BACKGROUND_FOLDER";

/// The test below starts it as a child process with a limit on the size of files; otherwise it returns.
#[test]
fn child_process_saves_in_the_background() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let net: Weights<B> = weights(2.0, 1_000_000);
    let writer = BackgroundWriter::new().unwrap();
    let large = CheckpointContents::new(TrainingState::of(&net)).with_module("model", &net).unwrap();
    writer.submit(folder, large);
    let message = writer.finish().unwrap_err().to_string();
    let expected = format!("{}: cannot write", folder.join("model.safetensors").display());
    assert!(message.contains(&expected), "{message}");
}

/// A file size limit simulates a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_and_the_previous_checkpoint_stays() {
    let (folder, path) = scratch();
    write(&path, &numbered(1)).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 100; exec \"$0\" \"$@\""]);
    command.arg(std::env::current_exe().unwrap());
    command
        .args(["contents::background::child_process_saves_in_the_background", "--exact"])
        .env(FOLDER, &path);
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert!(status.success());
    assert_eq!(names(folder.path()), ["run"]);
    assert_eq!(number_in(&path), 1);
}
