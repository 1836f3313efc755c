//! The examples `import-model-weights`, `chat` and `embeddings-search`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs an example, which cargo builds beside the tests.
fn run(name: &str, arguments: &[&str]) -> Output {
    let tests = std::env::current_exe().expect("a test has a path");
    let profile = tests.ancestors().nth(2).expect("tests are built in PROFILE/deps");
    let program = profile.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    Command::new(program).args(arguments).output().expect("the example was built")
}

#[track_caller]
fn succeeds(name: &str, arguments: &[&str]) -> String {
    let output = run(name, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text in UTF-8")
}

/// `train.py` printed an accuracy of 99.10 %. Rounding can change the digit of an image.
#[test]
fn weights_of_pytorch_predict_digits() {
    let text = succeeds("import-model-weights", &["--index", "7"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("loaded 14 of 14 parameters and buffers"), "{text}");
    assert_eq!(lines[lines.len() - 2], "predicted 9, expected 9");
    let accuracy =
        lines[lines.len() - 1].strip_prefix("test accuracy: ").and_then(|rest| rest.strip_suffix(" %"));
    let accuracy: f64 = accuracy.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{text}"));
    assert!((accuracy - 99.10).abs() < 0.015, "{text}");
}

#[test]
fn other_weights_are_errors() {
    let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("import-model-weights/train.py");
    for path in [other, PathBuf::from("nowhere.pt")] {
        let path = path.to_str().expect("a path in UTF-8");
        let output = run("import-model-weights", &["--weights", path]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.starts_with("error: ") && text.contains(path), "{text}");
    }
}

/// The tiny model of the tests of `kiln chat`. Its replies are those of `transformers`.
#[cfg(feature = "models")]
#[test]
fn a_chat_replies() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cli/tests/fixtures/tiny-llama");
    let model = model.to_str().expect("a path in UTF-8");
    let arguments = ["--model", model, "--temperature", "0", "--max-tokens", "24", "one", "two"];
    let text = succeeds("chat", &arguments);
    let replies = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('[')).map(str::to_owned).collect()
    };
    assert_eq!(replies(&text), replies(&succeeds("chat", &arguments)));
    assert!(text.starts_with("> one\n") && text.contains("\n> two\n"), "{text}");
    assert_eq!(text.matches("tokens/s").count(), 4, "{text}");
}

/// MiniLM, where `KILN_MODELS_DIR` names a folder of published models; see `crates/models/tests/fixtures/published.py`.
#[cfg(feature = "models")]
#[test]
fn a_search_finds_lines_by_their_meaning() {
    let models = std::env::var_os("KILN_MODELS_DIR").map(PathBuf::from);
    let Some(model) = models.map(|folder| folder.join("all-MiniLM-L6-v2")).filter(|path| path.is_dir())
    else {
        println!("skipped: all-MiniLM-L6-v2 is not in KILN_MODELS_DIR");
        return;
    };
    let file = std::env::temp_dir().join(format!("kiln-search-{}.txt", std::process::id()));
    let lines =
        "The cat sleeps on the sofa.\n\nStock prices fell sharply.\nHe repaired the engine of his car.\n";
    std::fs::write(&file, lines).expect("the temporary folder can be written");
    let path = file.to_str().expect("a path in UTF-8");
    let model = model.to_str().expect("a path in UTF-8");
    for (query, line) in [
        ("a pet is resting", "  1: The cat sleeps on the sofa."),
        ("financial markets", "  3: Stock prices fell sharply."),
        ("mechanic", "  4: He repaired the engine of his car."),
    ] {
        let text = succeeds("embeddings-search", &[path, query, "--model", model, "--top", "2"]);
        assert!(text.lines().next().is_some_and(|first| first.ends_with(line)), "{query}: {text}");
        assert_eq!(text.lines().count(), 2);
    }
    std::fs::remove_file(file).expect("the file was made here");
}
