//! The mnist example reports the problem and exits with an error when its arguments are wrong or its files are damaged.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The example, which cargo builds beside the tests.
fn mnist(arguments: &[&str], data: Option<&Path>) -> Output {
    command(arguments, data).output().expect("the example was built")
}

fn command(arguments: &[&str], data: Option<&Path>) -> Command {
    let tests = std::env::current_exe().expect("a test has a path");
    let profile = tests.ancestors().nth(2).expect("tests are built in PROFILE/deps");
    let mut command =
        Command::new(profile.join("examples").join(format!("mnist{}", std::env::consts::EXE_SUFFIX)));
    if let Some(folder) = data {
        command.env("KILN_DATA_DIR", folder);
    }
    // Where there are GPUs, none of them is shown.
    command.args(arguments).env("CUDA_VISIBLE_DEVICES", "-1");
    command
}

#[track_caller]
fn fails(output: &Output, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it should have failed: {text}");
    assert!(!text.contains("panicked"), "{text}");
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("kiln-mnist-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    folder
}

#[test]
fn help_explains_every_option() {
    let output = mnist(&["--help"], None);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    for option in [
        "--epochs",
        "--batch-size",
        "--learning-rate",
        "--seed",
        "--threads",
        "--backend",
        "--output",
        "--limit",
        "--test-limit",
    ] {
        assert!(text.contains(option), "{text}");
    }
}

/// Another package of the workspace may have built the backend in: then the device is missing.
#[test]
fn an_unavailable_backend_is_an_error() {
    fails(&mnist(&["--backend", "cuda"], None), &["cuda", "hint"]);
}

#[test]
fn threads_are_an_option_of_cpu_backends_only() {
    for backend in ["cuda", "wgpu", "vulkan", "reference"] {
        fails(&mnist(&["--backend", backend, "--threads", "2"], None), &["leave --threads out"]);
    }
}

#[test]
fn invalid_options_are_errors() {
    let out = folder("options");
    let out = out.to_str().expect("a path in UTF-8");
    fails(&mnist(&["--batch-size", "0", "--output", out], None), &["batch size"]);
    fails(&mnist(&["--learning-rate", "-1", "--output", out], None), &["rate"]);
    fails(&mnist(&["--limit", "0", "--output", out], None), &["empty"]);
    fails(&mnist(&["--test-limit", "0", "--output", out], None), &["empty"]);
    fails(&mnist(&["--epochs", "0", "--output", out], None), &["epoch"]);
    std::fs::remove_dir_all(out).expect("the folder was made here");
}

#[test]
fn an_unwritable_output_folder_is_an_error() {
    let folder = folder("output");
    let file = folder.join("file");
    std::fs::write(&file, "in the way").expect("the folder was made here");
    let inside = file.join("out");
    let output = mnist(&["--limit", "64", "--output", inside.to_str().expect("a path in UTF-8")], None);
    fails(&output, &["output folder", "out"]);
    std::fs::remove_dir_all(folder).expect("the folder was made here");
}

#[test]
fn a_damaged_model_is_an_error() {
    let folder = folder("model");
    let out = folder.to_str().expect("a path in UTF-8");
    let trained = mnist(&["--limit", "128", "--epochs", "1", "--output", out], None);
    assert!(trained.status.success(), "{}", String::from_utf8_lossy(&trained.stderr));
    let text = String::from_utf8_lossy(&trained.stdout);
    assert!(text.lines().last().is_some_and(|line| line.starts_with("test accuracy: ")), "{text}");

    let model = folder.join("model.safetensors");
    let mut bytes = std::fs::read(&model).expect("the model was saved");
    bytes.truncate(bytes.len() / 2);
    std::fs::write(&model, &bytes).expect("the folder was made here");
    fails(&mnist(&["--evaluate", "--output", out], None), &["model.safetensors"]);
    std::fs::remove_dir_all(folder).expect("the folder was made here");
}

#[test]
fn damaged_images_are_an_error_with_file_and_offset() {
    let folder = folder("data");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/data/mnist");
    for entry in std::fs::read_dir(source).expect("the images are in the repository") {
        let path = entry.expect("a readable folder").path();
        std::fs::copy(&path, folder.join(path.file_name().expect("a file"))).expect("room for a copy");
    }
    let labels = folder.join("t10k-labels-idx1-ubyte.gz");
    std::fs::remove_file(&labels).expect("it was copied here");
    // A header that promises 10,000 labels, and three of them.
    std::fs::write(folder.join("t10k-labels-idx1-ubyte"), [0, 0, 8, 1, 0, 0, 0x27, 0x10, 1, 2, 3])
        .expect("room");
    let output = mnist(&["--limit", "64"], Some(&folder));
    fails(&output, &["t10k-labels-idx1-ubyte", "byte"]);
    std::fs::remove_dir_all(folder).expect("the folder was made here");
}

#[test]
fn too_many_threads_are_refused() {
    fails(&mnist(&["--threads", "100000"], None), &["--threads", "100000", "1024"]);
}

/// As in `regression | head -1`.
#[cfg(unix)]
#[test]
fn a_closed_pipe_ends_an_example_without_error() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let tests = std::env::current_exe().expect("a test has a path");
    let profile = tests.ancestors().nth(2).expect("tests are built in PROFILE/deps");
    let mut command = Command::new(profile.join("examples").join("regression"));
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the example was built");
    let mut line = String::new();
    // Dropping the reader closes the pipe.
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a first line");
    let output = child.wait_with_output().expect("it ends");
    assert!(!line.is_empty() && output.status.success(), "{line} {:?}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[cfg(unix)]
mod signals {
    use super::*;
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Child, ExitStatus, Stdio};

    /// The example while it trains, which it does once it has printed its layers.
    struct Training {
        child: Child,
        stdout: BufReader<std::process::ChildStdout>,
    }

    fn training(arguments: &[&str]) -> Training {
        let mut command = command(arguments, None);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it was built");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("the pipe can be read");
        assert!(!line.is_empty(), "it printed nothing");
        Training { child, stdout }
    }

    impl Training {
        fn send(&self, signal: &str) {
            let id = self.child.id().to_string();
            let sent = Command::new("kill").args(["-s", signal, &id]).status().expect("there is `kill`");
            assert!(sent.success());
        }

        fn end(mut self) -> (ExitStatus, String) {
            let mut text = String::new();
            self.stdout.read_to_string(&mut text).expect("the pipe can be read");
            (self.child.wait().expect("it ends"), text)
        }
    }

    #[test]
    fn training_stops_at_a_signal_and_resumes_from_its_checkpoint() {
        for signal in ["INT", "TERM"] {
            let folder = folder(&format!("signal-{signal}"));
            let out = folder.to_str().expect("a path in UTF-8");
            let running = training(&["--limit", "640", "--epochs", "1000", "--output", out]);
            running.send(signal);
            let (status, text) = running.end();
            assert!(status.success(), "{status}: {text}");
            let checkpoint = folder.join("checkpoint");
            assert!(text.contains(checkpoint.to_str().expect("a path in UTF-8")), "{text}");
            assert!(checkpoint.is_dir() && !folder.join("model.safetensors").exists());
            let resumed = mnist(&["--limit", "640", "--epochs", "1", "--resume", "--output", out], None);
            assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
            std::fs::remove_dir_all(folder).expect("the folder was made here");
        }
    }

    /// Steps are long here.
    #[test]
    fn a_second_signal_ends_the_program_immediately() {
        let folder = folder("signals");
        let out = folder.to_str().expect("a path in UTF-8");
        let running =
            training(&["--batch-size", "8000", "--limit", "8000", "--epochs", "50", "--output", out]);
        std::thread::sleep(std::time::Duration::from_millis(300));
        running.send("INT");
        // Of two equal signals that wait at once, a process gets one.
        std::thread::sleep(std::time::Duration::from_millis(100));
        running.send("INT");
        let (status, text) = running.end();
        assert_eq!(status.code(), Some(130), "{text}");
        std::fs::remove_dir_all(folder).expect("the folder was made here");
    }
}
