//! Checkpoints: saving never destroys other data, and opened checkpoints are complete.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kiln_backends::Flex;
use kiln_nn::{GradientsParams, Module, Param};
use kiln_optim::{Adam, AdamConfig, Optimizer};
use kiln_store::{Checkpoint, CheckpointWriter, StoreError, TrainingState};
use kiln_tensor::{Autodiff, Backend, Tensor};
use tempfile::TempDir;

type B = Autodiff<Flex>;

#[derive(Clone, Debug, Module)]
struct Weights<B: Backend> {
    weight: Param<Tensor<B, 1>>,
}

/// Weights filled with one number.
fn weights(number: u64, elements: usize) -> Weights<B> {
    let values = vec![number as f32; elements];
    Weights { weight: Param::from_tensor(Tensor::from_floats(values.as_slice(), &Default::default())) }
}

/// An optimizer with moments of the weights.
fn adam(weights: &Weights<B>) -> Adam {
    let mut optimizer = AdamConfig::new().init();
    let gradients = GradientsParams::from_grads(weights.weight.val().sum().backward(), weights);
    let _ = optimizer.step(0.1, weights.clone(), gradients);
    optimizer
}

fn save(folder: &Path, step: u64) -> Result<(), StoreError> {
    save_long(folder, step, 100)
}

/// Saves a checkpoint whose weights equal its step.
fn save_long(folder: &Path, step: u64, elements: usize) -> Result<(), StoreError> {
    let net = weights(step, elements);
    Checkpoint::save(folder, &net, Some(&adam(&net)), &TrainingState::of(&net).at(0, step))
}

/// The step of a checkpoint. Checks that its weights are of that step.
fn load(checkpoint: &Checkpoint) -> Result<u64, StoreError> {
    let step = checkpoint.state().step;
    let net = checkpoint.load_module(weights(u64::MAX, 100))?;
    checkpoint.load_optimizer(&mut AdamConfig::new().init(), &net)?;
    let values = net.weight.val().into_data().to_vec::<f32>();
    assert!(values.iter().all(|&value| value == step as f32), "step {step} with weights {}", values[0]);
    Ok(step)
}

fn step_of(folder: &Path) -> Result<u64, StoreError> {
    load(&Checkpoint::open(folder)?)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

const FILES: [&str; 3] = ["model.safetensors", "optimizer.safetensors", "training.json"];

fn scratch() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    (folder, path)
}

/// Checks that saving is refused with a message that contains the path and this text, and that `keep` is unchanged.
fn refused(path: &Path, keep: &Path, expected: &str) {
    let before = fs::read(keep).ok();
    let error = save(path, 1).unwrap_err();
    assert!(matches!(error, StoreError::NotReplaced { .. }), "{error}");
    let message = error.to_string();
    assert!(message.starts_with(&path.display().to_string()), "{message}");
    assert!(message.contains(expected), "{message}");
    assert_eq!(fs::read(keep).ok(), before);
}

#[test]
fn only_a_checkpoint_is_replaced() {
    let (folder, path) = scratch();
    fs::create_dir(&path).unwrap();
    let thesis = path.join("thesis.txt");
    fs::write(&thesis, "years of work").unwrap();
    refused(&path, &thesis, "a folder with `thesis.txt` (not part of a checkpoint) exists");
    fs::remove_file(&thesis).unwrap();

    // An empty folder may be replaced.
    save(&path, 2).unwrap();
    fs::write(&thesis, "years of work").unwrap();
    refused(&path, &thesis, "a folder with `thesis.txt`");
    assert_eq!(step_of(&path).unwrap(), 2);
    fs::remove_file(&thesis).unwrap();
    save(&path.join("nested"), 3).unwrap();
    refused(&path, &path.join("nested/training.json"), "a folder with `nested`");
    fs::remove_dir_all(path.join("nested")).unwrap();
    fs::create_dir(path.join("optimizer.safetensors.d")).unwrap();
    refused(&path, &path.join("training.json"), "a folder with `optimizer.safetensors.d`");
    fs::remove_dir_all(&path).unwrap();

    fs::create_dir(&path).unwrap();
    let model = path.join("model.safetensors");
    fs::write(&model, "of somebody else").unwrap();
    refused(&path, &model, "a folder without `training.json` (every checkpoint contains it) exists");
    fs::remove_dir_all(&path).unwrap();

    fs::write(&path, "text").unwrap();
    refused(&path, &path, "a file exists");
    assert_eq!(names(folder.path()), ["run"]);
    fs::remove_file(&path).unwrap();

    // Files that the system adds to a folder do not prevent saving.
    save(&path, 4).unwrap();
    fs::write(path.join(".DS_Store"), "").unwrap();
    save(&path, 5).unwrap();
    assert_eq!((step_of(&path).unwrap(), names(folder.path())), (5, vec!["run".to_owned()]));
}

#[cfg(unix)]
#[test]
fn symlinks_are_followed_and_devices_refused() {
    use std::os::unix::fs::symlink;
    let (folder, path) = scratch();
    let real = folder.path().join("elsewhere/real");
    symlink("elsewhere/real", &path).unwrap();
    for step in [1, 2] {
        save(&path, step).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
        assert_eq!((step_of(&path).unwrap(), step_of(&real).unwrap()), (step, step));
    }
    assert_eq!(names(folder.path()), ["elsewhere", "run"]);
    assert_eq!(names(&folder.path().join("elsewhere")), ["real"]);
    // Both paths name one folder, which has one writer.
    let writer = CheckpointWriter::open(&path).unwrap();
    assert!(matches!(CheckpointWriter::open(&real), Err(StoreError::Locked { .. })));
    drop(writer);

    let socket = folder.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    refused(&socket, &real, "a socket exists");
    refused(Path::new("/dev/null"), &real, "a device exists");
    assert!(save(Path::new("/"), 1).is_err());
    assert!(save(Path::new(".."), 1).is_err());
}

#[test]
fn leftovers_are_removed_by_the_next_save() {
    let (folder, path) = scratch();
    save(&path, 1).unwrap();
    // Temporary names of this version and the previous one.
    for name in [".run.4711-0.partial", ".run.0123456789abcdef.partial", ".run.4711-3.old"] {
        let left = folder.path().join(name);
        fs::create_dir(&left).unwrap();
        fs::write(left.join("model.safetensors"), "half").unwrap();
        fs::write(left.join(".model.safetensors.4711-1.partial"), "half").unwrap();
    }
    let precious = folder.path().join(".run.4711-4.old");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("thesis.txt"), "years of work").unwrap();
    fs::write(folder.path().join(".run.lock"), "process 1 on a machine that is off").unwrap();
    save(&path, 2).unwrap();
    assert_eq!(names(folder.path()), [".run.4711-4.old", "run"]);
    assert_eq!(names(&precious), ["thesis.txt"]);
    assert_eq!(step_of(&path).unwrap(), 2);
}

#[test]
fn a_moved_checkpoint_is_recovered() {
    let (folder, path) = scratch();
    for (step, name) in [(1, ".run.4711-0.old"), (2, ".run.fedcba9876543210.old")] {
        save(&path, step).unwrap();
        fs::rename(&path, folder.path().join(name)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    let half = folder.path().join(".run.4711-9.old");
    fs::create_dir(&half).unwrap();
    fs::write(half.join("model.safetensors"), "half").unwrap();
    assert_eq!(step_of(&path).unwrap(), 2);
    // A writer restores it first.
    drop(CheckpointWriter::open(&path).unwrap());
    assert_eq!(names(folder.path()), ["run"]);
    assert_eq!(step_of(&path).unwrap(), 2);
}

#[cfg(unix)]
#[test]
fn an_open_checkpoint_is_one_snapshot() {
    let (_folder, path) = scratch();
    save(&path, 1).unwrap();
    let first = Checkpoint::open(&path).unwrap();
    save(&path, 2).unwrap();
    let second = Checkpoint::open(&path).unwrap();
    fs::remove_dir_all(&path).unwrap();
    assert!(Checkpoint::open(&path).is_err());
    let copy = first.clone();
    std::thread::scope(|scope| {
        for (checkpoint, step) in [(&first, 1), (&copy, 1), (&second, 2)] {
            scope.spawn(move || (0..20).for_each(|_| assert_eq!(load(checkpoint).unwrap(), step)));
        }
    });
}

#[cfg(unix)]
#[test]
fn concurrent_readers_see_complete_checkpoints() {
    let (_folder, path) = scratch();
    save(&path, 0).unwrap();
    let is_done = AtomicBool::new(false);
    let (path, is_done) = (&path, &is_done);
    std::thread::scope(|scope| {
        let reader = || {
            let (mut opened, mut newest) = (0, 0);
            while !is_done.load(Ordering::Relaxed) {
                let step = step_of(path).unwrap();
                assert!(step >= newest, "step {step} after {newest}");
                (opened, newest) = (opened + 1, step);
            }
            opened
        };
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        let started = Instant::now();
        let mut writer = CheckpointWriter::open(path).unwrap();
        for step in 1.. {
            let net = weights(step, 100);
            writer.save(&net, Some(&adam(&net)), &TrainingState::of(&net).at(0, step)).unwrap();
            if started.elapsed() > Duration::from_secs(1) {
                break;
            }
        }
        is_done.store(true, Ordering::Relaxed);
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() > 0));
    });
}

#[test]
fn a_folder_has_one_writer() {
    let (_folder, path) = scratch();
    let mut writer = CheckpointWriter::open(&path).unwrap();
    let error = CheckpointWriter::open(&path).unwrap_err().to_string();
    let holder = format!("run: is being written by this process, {}", std::process::id());
    assert!(error.contains(&holder), "{error}");
    let net = weights(1, 100);
    writer.save(&net, Some(&adam(&net)), &TrainingState::of(&net).at(0, 1)).unwrap();
    drop(writer);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10).for_each(|step| save(&path, step).unwrap()));
        }
    });
    assert_eq!(step_of(&path).unwrap(), 9);
}

#[test]
fn every_flipped_bit_is_detected() {
    let (_folder, path) = scratch();
    save(&path, 7).unwrap();
    for name in FILES {
        let file = path.join(name);
        let good = fs::read(&file).unwrap();
        for place in 0..good.len() {
            let mut bytes = good.clone();
            bytes[place] ^= 1 << (place % 8);
            fs::write(&file, &bytes).unwrap();
            match step_of(&path) {
                Ok(_) => panic!("{name}: a flip in byte {place} of {} is not noticed", good.len()),
                Err(error) => assert!(error.to_string().contains(name), "{name}, byte {place}: {error}"),
            }
        }
        fs::write(&file, &good[..good.len() - 3]).unwrap();
        assert!(step_of(&path).is_err());
        fs::write(&file, &good).unwrap();
        assert_eq!(step_of(&path).unwrap(), 7);
    }
    let model = path.join("model.safetensors");
    let mut bytes = fs::read(&model).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&model, &bytes).unwrap();
    let error = step_of(&path).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }));
    assert!(error.to_string().contains("model.safetensors: damaged: its CRC-32 is "), "{error}");
}

#[test]
fn a_missing_file_error_names_it() {
    let (_folder, path) = scratch();
    for name in FILES {
        save(&path, 1).unwrap();
        fs::remove_file(path.join(name)).unwrap();
        let error = step_of(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("{name}: cannot read")), "{error}");
        fs::remove_dir_all(&path).unwrap();
    }
    let error = step_of(&path).unwrap_err().to_string();
    assert!(error.contains("training.json: cannot read"), "{error}");
    assert!(error.contains("expected the folder of a checkpoint"), "{error}");
}

#[test]
fn an_unwritable_folder_is_reported_before_saving() {
    let (folder, path) = scratch();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = CheckpointWriter::open(file.join("run")).unwrap_err().to_string();
    assert!(error.contains("file: cannot create the folder"), "{error}");
    #[cfg(target_os = "linux")]
    assert!(CheckpointWriter::open("/proc/run").unwrap_err().to_string().contains("/proc/run: cannot write"));
    fs::create_dir(&path).unwrap();
    fs::write(path.join("notes.md"), "").unwrap();
    assert!(matches!(CheckpointWriter::open(&path), Err(StoreError::NotReplaced { .. })));
}

/// The folder that [`child_process_saves_checkpoints`] writes.
const FOLDER: &str = "KILN_TEST_FOLDER";

/// Enough that a save takes measurable time.
const ELEMENTS: usize = 100_000;

/// The tests below start it as a child process; otherwise it returns.
#[test]
fn child_process_saves_checkpoints() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    for step in 1.. {
        save_long(Path::new(&folder), step, ELEMENTS).unwrap();
    }
}

fn saving(folder: &Path, shell: &str) -> Child {
    let program = std::env::current_exe().unwrap();
    let mut command = match shell {
        "" => Command::new(program),
        shell => {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("{shell}; exec \"$0\" \"$@\"")]).arg(program);
            command
        }
    };
    let command =
        command.args(["checkpoints::child_process_saves_checkpoints", "--exact"]).env(FOLDER, folder);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[cfg(unix)]
#[test]
fn a_killed_writer_leaves_a_complete_checkpoint() {
    let (folder, path) = scratch();
    let step = || Checkpoint::open(&path).map(|checkpoint| checkpoint.state().step);
    save_long(&path, 0, ELEMENTS).unwrap();
    for milliseconds in (0..10).map(|round| 1 + 7 * round) {
        let mut child = saving(&path, "");
        let started = Instant::now();
        let before = step().unwrap();
        while step().unwrap() == before {
            assert!(started.elapsed() < Duration::from_secs(60), "nothing is saved");
        }
        std::thread::sleep(Duration::from_millis(milliseconds));
        let error = CheckpointWriter::open(&path).err().map(|error| error.to_string());
        if let Some(error) = error {
            assert!(error.contains(&format!("written by process {} on ", child.id())), "{error}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let checkpoint = Checkpoint::open(&path).unwrap();
        let net = checkpoint.load_module(weights(u64::MAX, ELEMENTS)).unwrap();
        let step = checkpoint.state().step as f32;
        assert!(net.weight.val().into_data().to_vec::<f32>().iter().all(|&value| value == step));
    }
    save(&path, 1).unwrap();
    assert_eq!(names(folder.path()), ["run"]);
}

/// A file size limit simulates a full disk: the system kills the process while it writes a file.
#[cfg(target_os = "linux")]
#[test]
fn leftovers_of_a_writer_on_a_full_disk_are_removed_by_the_next_save() {
    let (folder, path) = scratch();
    save(&path, 1).unwrap();
    let mut child = saving(&path, "ulimit -f 100");
    assert!(!child.wait().unwrap().success());
    let left = names(folder.path());
    assert!(left.iter().any(|name| name.ends_with(".partial")), "{left:?}");
    assert_eq!(step_of(&path).unwrap(), 1);
    save(&path, 2).unwrap();
    assert_eq!(names(folder.path()), ["run"]);

    // A process that gets the error cleans up itself.
    let mut child = saving(&path, "trap '' XFSZ; ulimit -f 100");
    assert!(!child.wait().unwrap().success());
    assert_eq!(names(folder.path()), ["run"]);
    assert_eq!(step_of(&path).unwrap(), 2);
}
