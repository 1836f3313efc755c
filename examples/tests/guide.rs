//! The examples of the book's first chapter train, and the chapter shows the code of the example `guide`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs an example, which cargo builds beside the tests. Returns its standard output.
#[track_caller]
fn run(name: &str, arguments: &[&str]) -> String {
    let tests = std::env::current_exe().expect("a test has a path");
    let profile = tests.ancestors().nth(2).expect("tests are built in PROFILE/deps");
    let program = profile.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    let output = Command::new(program).args(arguments).output().expect("the example was built");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text in UTF-8")
}

/// The percentage in the last line, `test accuracy: NN.NN %`.
#[track_caller]
fn accuracy(output: &str) -> f64 {
    let line = output.lines().last().unwrap_or_default();
    let number = line.strip_prefix("test accuracy: ").and_then(|rest| rest.strip_suffix(" %"));
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{output}"))
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("kiln-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    folder
}

#[test]
fn the_guide_trains_saves_and_predicts() {
    let folder = folder("guide");
    let output = folder.to_str().expect("a path in UTF-8");
    let text = run("guide", &["train", "--limit", "1024", "--epochs", "2", "--output", output]);
    assert!(accuracy(&text) > 60.0, "{text}");
    let run_folder = folder.join("runs/guide");
    let log = std::fs::read_to_string(run_folder.join("records.jsonl")).expect("a log");
    assert_eq!(log.matches("learning_rates").count(), 2 * 16, "{log}");
    assert!(run_folder.join("checkpoints/last").is_dir() && run_folder.join("checkpoints/best").is_dir());

    let text = run("guide", &["infer", "--index", "0", "--output", output]);
    assert_eq!(text.lines().last(), Some("predicted 7, expected 7"));
    std::fs::remove_dir_all(folder).expect("the folder was made here");
}

#[test]
fn the_custom_training_loop_trains() {
    let text = run("custom-training-loop", &["--limit", "1024", "--epochs", "2"]);
    assert!(accuracy(&text) > 60.0, "{text}");
    assert_eq!(text.matches("validation accuracy").count(), 2, "{text}");
}

#[test]
fn the_custom_renderer_logger_and_metric_receive_the_run() {
    let folder = folder("custom-renderer");
    let table = folder.join("epochs.md");
    let path = table.to_str().expect("a path in UTF-8");
    let text =
        run("custom-renderer", &["--limit", "1024", "--epochs", "2", "--every", "10", "--output", path]);
    assert!(accuracy(&text) > 60.0, "{text}");
    let tags: Vec<&str> =
        text.lines().filter_map(|line| Some(line.strip_prefix('[')?.split_once(']')?.0)).collect();
    let expected = "start, step 0, step 10, train 1, valid 1, epoch 1, step 20, step 30, train 2, valid 2, epoch 2, usage, end";
    assert_eq!(tags.join(", "), expected, "{text}");
    assert!(text.contains("confidence"), "{text}");

    let table = std::fs::read_to_string(&table).expect("a table");
    assert!(table.starts_with("| epoch | data | loss | accuracy | confidence |\n|---|"), "{table}");
    assert_eq!(table.lines().count(), 2 + 2 * 2, "{table}");
    std::fs::remove_dir_all(folder).expect("the folder was made here");
}

#[test]
fn invalid_options_are_errors() {
    let tests = std::env::current_exe().expect("a test has a path");
    let profile = tests.ancestors().nth(2).expect("tests are built in PROFILE/deps");
    let program = profile.join("examples").join(format!("guide{}", std::env::consts::EXE_SUFFIX));
    for arguments in [["infer", "--output", "nowhere"], ["infer", "--index", "10000"]] {
        let output = Command::new(&program).args(arguments).output().expect("the example was built");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.starts_with("error: "), "{text}");
        assert!(text.contains(arguments[2]), "{text}");
    }
}

/// Each paragraph of code of the chapter is a paragraph of the example. Lines that the book hides begin with `# `.
#[test]
fn the_book_shows_the_code_of_the_guide() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect("a file of the repository");
    let files =
        ["main", "model", "data", "training", "inference"].map(|name| read(&format!("guide/{name}.rs")));
    let page = read("../book/src/guide.md");
    let blocks = page.split("\n```rust").skip(1).map(|rest| rest.split("\n```").next().unwrap_or_default());
    let mut paragraphs = 0;
    for block in blocks {
        // The first line has the attributes of the block.
        let lines: Vec<&str> =
            block.lines().skip(1).filter(|line| *line != "#" && !line.starts_with("# ")).collect();
        for paragraph in lines.join("\n").split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
            let paragraph = paragraph.trim_matches('\n');
            assert!(files.iter().any(|file| file.contains(paragraph)), "not in examples/guide:\n{paragraph}");
            paragraphs += 1;
        }
    }
    assert!(paragraphs > 8, "the chapter has {paragraphs} paragraphs of code");
}
