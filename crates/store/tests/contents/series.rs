//! Series: only complete checkpoints of the series are removed.

use kiln_store::CheckpointSeries;

use super::*;

/// Writes checkpoints of these steps, pruning after each.
fn write_all(series: &mut CheckpointSeries, steps: impl IntoIterator<Item = u64>) {
    for step in steps {
        write(&series.next_folder(step), &numbered(step)).unwrap();
        series.prune().unwrap();
    }
}

fn steps(series: &CheckpointSeries) -> Vec<u64> {
    series.list().unwrap().iter().map(|saved| saved.step).collect()
}

#[test]
fn the_last_checkpoints_are_kept() {
    let (_folder, run) = scratch();
    let mut series = CheckpointSeries::open(&run, 3).unwrap();
    assert!(series.latest().unwrap().is_none() && steps(&series).is_empty());
    write_all(&mut series, [9, 10, 100]);
    assert_eq!(names(&run), ["step-00000009", "step-00000010", "step-00000100"]);
    write_all(&mut series, [1000, 100_000_000]);
    assert_eq!(names(&run), ["step-00000100", "step-00001000", "step-100000000"]);
    assert_eq!(steps(&series), [100, 1000, 100_000_000]);
    let latest = series.latest().unwrap().unwrap();
    assert_eq!(latest.folder(), run.join("step-100000000"));
    assert_eq!(number_in(latest.folder()), 100_000_000);
    assert_eq!(series.next_epoch_folder(3), run.join("epoch-0003"));

    // The same step again replaces its folder.
    write_all(&mut series, [100_000_000]);
    assert_eq!(steps(&series), [100, 1000, 100_000_000]);
    let series = CheckpointSeries::open(&run, 1).unwrap();
    assert_eq!(series.prune().unwrap().len(), 2);
    assert_eq!(steps(&series), [100_000_000]);
    assert!(series.prune().unwrap().is_empty());
    let error = CheckpointSeries::open(&run, 0).unwrap_err().to_string();
    assert_eq!(error, "the number of checkpoints to keep, 0: use at least 1");
}

#[test]
fn a_new_checkpoint_of_an_earlier_step_is_kept() {
    let (_folder, run) = scratch();
    let mut series = CheckpointSeries::open(&run, 2).unwrap();
    write_all(&mut series, [100, 200]);
    write_all(&mut series, [110]);
    assert_eq!(steps(&series), [110, 200]);
    write_all(&mut series, [120]);
    assert_eq!(steps(&series), [120, 200]);
}

#[test]
fn everything_else_is_kept() {
    let (_folder, run) = scratch();
    let mut series = CheckpointSeries::open(&run, 1).unwrap();
    // Checkpoints under other names.
    for name in ["best", "step-1-backup", "steps-1", "epoch-x"] {
        write(&run.join(name), &numbered(1)).unwrap();
    }
    // Folders and files under names of the series, which are no complete checkpoints.
    fs::write(run.join("step-2"), "a file").unwrap();
    fs::create_dir(run.join("step-3")).unwrap();
    fs::create_dir(run.join("step-4")).unwrap();
    fs::write(run.join("step-4/thesis.txt"), "years of work").unwrap();
    write(&run.join("step-5"), &numbered(5)).unwrap();
    fs::write(run.join("step-5/thesis.txt"), "years of work").unwrap();
    write(&run.join("step-6"), &numbered(6)).unwrap();
    fs::remove_file(run.join("step-6/model.safetensors")).unwrap();
    write(&run.join("step-7"), &numbered(7)).unwrap();
    let model = fs::read(run.join("step-7/model.safetensors")).unwrap();
    fs::write(run.join("step-7/model.safetensors"), &model[1..]).unwrap();
    write(&run.join("step-8"), &numbered(8)).unwrap();
    fs::write(run.join("step-8/training.json"), "{}").unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(run.join("best"), run.join("step-9")).unwrap();
    let before = names(&run);

    write_all(&mut series, [10, 11]);
    let mut expected = before;
    expected.push("step-00000011".to_owned());
    expected.sort();
    assert_eq!(names(&run), expected);
    assert_eq!(names(&run.join("step-4")), ["thesis.txt"]);
    assert_eq!(names(&run.join("step-5")), ["model.safetensors", "thesis.txt", "training.json"]);
    assert_eq!(number_in(&run.join("best")), 1);
    assert_eq!(series.latest().unwrap().unwrap().state().step, 11);
}

#[test]
fn a_locked_checkpoint_is_kept_and_leftovers_are_removed() {
    let (_folder, run) = scratch();
    let mut series = CheckpointSeries::open(&run, 1).unwrap();
    write_all(&mut series, [1]);
    let writer = CheckpointWriter::open(run.join("step-00000001")).unwrap();
    write_all(&mut series, [2]);
    assert_eq!(steps(&series), [1, 2]);
    drop(writer);
    assert_eq!(series.prune().unwrap(), [run.join("step-00000001")]);

    // Leftovers of processes that were killed while they wrote and removed checkpoints.
    for name in [".step-00000003.0123456789abcdef.partial", ".step-00000001.0123456789abcdef.partial"] {
        fs::create_dir(run.join(name)).unwrap();
        fs::write(run.join(name).join("model-ema.safetensors"), "half").unwrap();
    }
    for name in [".notes.0123456789abcdef.partial", ".step-00000001.notes.partial"] {
        fs::write(run.join(name), "of the user").unwrap();
    }
    series.prune().unwrap();
    let kept = [".notes.0123456789abcdef.partial", ".step-00000001.notes.partial", "step-00000002"];
    assert_eq!(names(&run), kept);
}

#[cfg(unix)]
#[test]
fn an_open_checkpoint_survives_its_removal() {
    let (_folder, run) = scratch();
    let mut series = CheckpointSeries::open(&run, 1).unwrap();
    write_all(&mut series, [1]);
    let first = series.latest().unwrap().unwrap();
    write_all(&mut series, [2]);
    assert!(!first.folder().exists());
    assert_eq!(first.load_module(weights::<B>(0.0, 100)).unwrap().values(), [1.0; 100]);
}
