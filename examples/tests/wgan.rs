//! The example wgan writes grids of samples, judges them, and continues an interrupted run bit for bit.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// An example, which cargo builds beside the tests.
fn example(name: &str, arguments: &[&str]) -> Command {
    let tests = std::env::current_exe().expect("a test has a path");
    let profile = tests.ancestors().nth(2).expect("tests are built in PROFILE/deps");
    let program = profile.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// The example wgan on few images: eight steps in an epoch.
fn wgan(output: &Path, arguments: &[&str]) -> Command {
    let output = output.to_str().expect("a path in UTF-8");
    let mut command = example("wgan", &["--limit", "256", "--batch-size", "16", "--critic-steps", "2"]);
    command.args(["--output", output]).args(arguments);
    command
}

#[track_caller]
fn succeeds(mut command: Command) -> String {
    let output: Output = command.output().expect("the example was built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("kiln-wgan-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    folder
}

#[test]
fn samples_are_drawn_and_judged() {
    let folder = folder("samples");
    let classifier = folder.join("mnist");
    let classifier = classifier.to_str().expect("a path in UTF-8");
    succeeds(example("mnist", &["--limit", "128", "--epochs", "1", "--output", classifier]));
    let text = succeeds(wgan(&folder, &["--epochs", "1", "--samples-every", "4", "--judge", classifier]));
    for name in ["samples-000004.png", "samples-000008.png", "samples.png"] {
        let grid = std::fs::read(folder.join(name)).expect("a grid");
        let number = |at: usize| u32::from_be_bytes([grid[at], grid[at + 1], grid[at + 2], grid[at + 3]]);
        assert!(grid.starts_with(b"\x89PNG"), "{name}");
        assert_eq!((number(16), number(20)), (242, 242), "{name}");
        assert!(grid.len() > 2000, "{name} has {} bytes, as few as a picture of one grey", grid.len());
    }
    assert!(!folder.join("samples-000005.png").exists());
    let verdict = text.lines().last().expect("a last line");
    assert!(verdict.starts_with("mean confidence: ") && verdict.ends_with(" of 10"), "{text}");

    // The saved generator draws the same samples.
    let again = succeeds(wgan(&folder, &["--evaluate", "--judge", classifier]));
    assert_eq!(again.lines().last(), Some(verdict));
    std::fs::remove_dir_all(folder).expect("the folder was made here");
}

#[test]
fn a_missing_classifier_is_an_error() {
    let folder = folder("judge");
    succeeds(wgan(&folder, &["--steps", "1"]));
    let nowhere = folder.join("nowhere");
    let judged =
        wgan(&folder, &["--evaluate", "--judge", nowhere.to_str().expect("a path in UTF-8")]).output();
    let judged = judged.expect("the example was built");
    let text = String::from_utf8_lossy(&judged.stderr);
    assert!(
        !judged.status.success() && text.contains("nowhere") && text.contains("--example mnist"),
        "{text}"
    );
    std::fs::remove_dir_all(folder).expect("the folder was made here");
}

#[cfg(unix)]
#[test]
fn a_resumed_run_equals_an_uninterrupted_one() {
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    let (whole, parts) = (folder("whole"), folder("parts"));
    let options = ["--epochs", "6", "--samples-every", "1"];
    succeeds(wgan(&whole, &options));

    let mut child =
        wgan(&parts, &options).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("built");
    let started = Instant::now();
    while !parts.join("samples-000003.png").exists() && started.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let sent = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
    assert!(sent.expect("there is `kill`").success());
    assert!(child.wait().expect("it ends").success());
    assert!(!parts.join("generator.safetensors").exists(), "the run ended before the signal");

    succeeds(wgan(&parts, &[&options[..], &["--resume"]].concat()));
    for name in ["generator.safetensors", "samples-000048.png"] {
        let read = |folder: &Path| std::fs::read(folder.join(name)).expect("the run ended");
        assert!(read(&whole) == read(&parts), "{name} differs");
    }
    for folder in [whole, parts] {
        std::fs::remove_dir_all(folder).expect("the folder was made here");
    }
}
