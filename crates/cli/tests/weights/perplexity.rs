//! `kiln weights perplexity` and `kiln weights quantize --perplexity` as processes, against the values that
//! `transformers` computes; see `fixtures/tiny-llama`.

use std::path::{Path, PathBuf};

use kiln_backends::{Device, Dyn};
use kiln_models::{OpenOptions, PretrainedLanguageModel};
use kiln_tensor::DType;
use kiln_text::{PerplexityOptions, perplexity};
use serde_json::Value;

use crate::weights::{failure, success};

/// A folder with the text of the fixture.
struct Files {
    folder: tempfile::TempDir,
    expected: Value,
}

impl Files {
    fn new() -> Files {
        let expected = std::fs::read(Path::new(&tiny_llama()).join("expected.json")).unwrap();
        let expected = serde_json::from_slice::<Value>(&expected).unwrap()["perplexity"].clone();
        let files = Files { folder: tempfile::tempdir().unwrap(), expected };
        std::fs::write(files.path("text.txt"), files.text()).unwrap();
        files
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn text(&self) -> &str {
        self.expected["text"].as_str().unwrap()
    }

    /// The perplexity of a model, computed without the command.
    fn direct(&self, model: &str, dequantize: bool) -> f64 {
        let options = OpenOptions::new().with_dtype(Some(DType::F32)).with_dequantize(dequantize);
        let model = PretrainedLanguageModel::<Dyn>::open_with(model, &options, &Device::cpu()).unwrap();
        let ids = model.tokenizer.encode(self.text(), true).unwrap();
        perplexity(&model.model, &ids, &PerplexityOptions::new(512)).unwrap().value()
    }

    /// Copies the model.
    fn copy(&self, name: &str) -> PathBuf {
        let target = self.folder.path().join(name);
        std::fs::create_dir(&target).unwrap();
        for file in std::fs::read_dir(tiny_llama()).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), target.join(file.file_name())).unwrap();
        }
        target
    }
}

fn tiny_llama() -> String {
    format!("{}/tests/fixtures/tiny-llama", env!("CARGO_MANIFEST_DIR"))
}

/// A fixture of the crate `kiln-models`.
fn models_fixture(name: &str) -> String {
    format!("{}/../models/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A row of the table.
#[derive(Debug)]
struct Row {
    bytes: u64,
    bits: f64,
    perplexity: f64,
    error: f64,
    tokens: u64,
    window: u64,
    stride: u64,
    ratio: String,
}

#[track_caller]
fn row(report: &str, model: &str) -> Row {
    let line = report.lines().find(|line| line.starts_with(&format!("{model} ")) && line.ends_with(" s"));
    let line = line.unwrap_or_else(|| panic!("no row of {model} in\n{report}"));
    let cells: Vec<String> =
        line[model.len()..].split_whitespace().map(|cell| cell.replace([',', '±'], "")).collect();
    let cells: Vec<&str> = cells.iter().map(String::as_str).filter(|cell| !cell.is_empty()).collect();
    let [bytes, bits, perplexity, error, tokens, window, stride, ratio, _, "s"] = cells[..] else {
        panic!("{cells:?} in\n{report}");
    };
    Row {
        bytes: bytes.parse().unwrap(),
        bits: bits.parse().unwrap(),
        perplexity: perplexity.parse().unwrap(),
        error: error.parse().unwrap(),
        tokens: tokens.parse().unwrap(),
        window: window.parse().unwrap(),
        stride: stride.parse().unwrap(),
        ratio: ratio.to_owned(),
    }
}

#[track_caller]
fn assert_near(value: f64, expected: f64, tolerance: f64) {
    assert!((value / expected - 1.0).abs() < tolerance, "{value} {expected}");
}

#[test]
fn perplexities_are_those_of_transformers() {
    let files = Files::new();
    let (model, text) = (tiny_llama(), files.path("text.txt"));
    for expected in files.expected["values"].as_array().unwrap() {
        let [window, stride] = ["window", "stride"].map(|name| expected[name].to_string());
        let words = ["perplexity", &model, "--text", &text, "--window", &window, "--stride", &stride];
        let found = row(&success(&words), &model);
        assert_near(found.perplexity, expected["perplexity"].as_f64().unwrap(), 1e-4);
        assert_eq!(Some(found.tokens), expected["tokens"].as_u64());
        assert_eq!((found.window.to_string(), found.stride.to_string()), (window, stride));
        assert_eq!((found.ratio.as_str(), found.bits), ("1.0000", 32.0));
        assert!(found.error > 0.0 && found.error < found.perplexity);
    }
    // The default is the context, up to 512 tokens, without overlap.
    let found = row(&success(&["perplexity", &model, "--text", &text, "--threads", "1"]), &model);
    assert_eq!((found.window, found.stride, found.tokens), (512, 512, 187));
    let words = ["perplexity", &model, "--text", &text, "--window", "64", "--max-tokens", "66"];
    assert_eq!(row(&success(&words), &model).tokens, 63 + 1);
}

#[test]
fn quantize_compares_both_models() {
    let files = Files::new();
    let (model, text, output) = (tiny_llama(), files.path("text.txt"), files.path("tiny.gguf"));
    let report = success(&["quantize", &model, &output, "--format", "q8_0", "--perplexity", &text]);
    assert!(report.contains("quantised to q8_0"), "{report}");
    let (before, after) = (row(&report, &model), row(&report, &output));
    assert_near(before.perplexity, files.direct(&model, false), 1e-5);
    assert_near(after.perplexity, files.direct(&output, false), 1e-5);
    // The blocks are those of the Python package `gguf`. As they are, they are multiplied by rounded activations.
    let expected = files.expected["q8_0"]["perplexity"].as_f64().unwrap();
    assert_near(files.direct(&output, true), expected, 1e-3);
    assert_near(after.perplexity, expected, 0.03);
    let ratio: f64 = after.ratio.parse().unwrap();
    assert!((ratio - after.perplexity / before.perplexity).abs() < 1e-4, "{report}");
    assert_eq!((before.ratio.as_str(), before.tokens, after.tokens), ("1.0000", 187, 187));
    assert!(before.bits == 32.0 && after.bits > 8.5 && after.bits < 24.0, "{report}");
    assert!(after.bytes < before.bytes, "{report}");

    // A file of weights in a folder stands for the folder, and a GGUF file has its own tokenizer.
    let file = format!("{model}/model.safetensors");
    let report = success(&["perplexity", &file, &output, "--text", &text]);
    assert_eq!(row(&report, &file).perplexity, before.perplexity);
    assert_eq!(row(&report, &output).ratio, after.ratio);
    let again = files.path("again.gguf");
    let words = ["quantize", &output, &again, "--format", "q4_1", "--requantize", "--perplexity", &text];
    let report = success(&[&words[..], &["--window", "64", "--stride", "32"]].concat());
    assert_eq!((row(&report, &again).window, row(&report, &output).stride), (64, 32));

    // Without the option, there is no report.
    let plain = files.path("plain.gguf");
    let line = success(&["quantize", &model, &plain, "--format", "q8_0"]);
    assert_eq!(line.lines().count(), 1, "{line}");
    assert_eq!(std::fs::read(plain).unwrap(), std::fs::read(output).unwrap());
}

#[test]
fn models_with_other_windows_have_no_ratio() {
    let files = Files::new();
    let short = files.copy("short");
    let config = std::fs::read_to_string(short.join("config.json")).unwrap();
    let config = config.replace(r#""max_position_embeddings": 512"#, r#""max_position_embeddings": 32"#);
    std::fs::write(short.join("config.json"), config).unwrap();
    let (model, text, short) = (tiny_llama(), files.path("text.txt"), short.to_str().unwrap());
    let report = success(&["perplexity", &model, short, "--text", &text]);
    let found = row(&report, short);
    assert_eq!((found.window, found.ratio.as_str()), (32, "-"), "{report}");
    assert!(report.contains("has no ratio"), "{report}");
    let error = failure(&["perplexity", &model, short, "--text", &text, "--window", "64"]);
    assert!(error.contains(short) && error.contains("2 to 32"), "{error}");
}

#[test]
fn texts_that_cannot_be_evaluated_are_errors() {
    let files = Files::new();
    let (model, text) = (tiny_llama(), files.path("text.txt"));
    let other = files.path("other.txt");
    for (contents, expected) in [
        (&b"a"[..], "other.txt has 1 tokens, and a perplexity needs 2"),
        (b"", "has 0 tokens"),
        (b"ab\xff", "byte 2 is not UTF-8"),
    ] {
        std::fs::write(&other, contents).unwrap();
        let error = failure(&["perplexity", &model, "--text", &other]);
        assert!(error.contains(expected) && error.contains("hint"), "{error}");
    }
    std::fs::File::create(&other).unwrap().set_len((16 << 20) + 1).unwrap();
    let error = failure(&["perplexity", &model, "--text", &other]);
    assert!(error.contains("longer than 16 MiB"), "{error}");
    let error = failure(&["perplexity", &model, "--text", &files.path("none.txt")]);
    assert!(error.contains("none.txt"), "{error}");
    for (words, expected) in [
        (&["--window", "1"][..], "the window is 1"),
        (&["--window", "8", "--stride", "0"], "the stride is 0"),
        (&["--window", "8", "--stride", "9"], "the stride is 9"),
        (&["--max-tokens", "1"], "has 1 tokens"),
        (&["--device", "abacus"], "abacus"),
    ] {
        let error = failure(&[&["perplexity", &model, "--text", &text], words].concat());
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn models_that_cannot_be_evaluated_are_errors() {
    let files = Files::new();
    let text = files.path("text.txt");
    let error = |model: &str| failure(&["perplexity", model, "--text", &text]);
    let found = error(&models_fixture("llama"));
    assert!(found.contains("contains no tokenizer.json") && found.contains("hint"), "{found}");
    let found = error(&models_fixture("../../../store/tests/fixtures/module-v0.safetensors"));
    assert!(found.contains("neither a configuration nor a tokenizer") && found.contains("hint"), "{found}");

    let bert = files.copy("bert");
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(Path::new(&models_fixture("bert")).join(file), bert.join(file)).unwrap();
    }
    let found = error(bert.to_str().unwrap());
    assert!(found.contains("`bert`") && found.contains("supported are llama"), "{found}");

    // Nothing is written if the input cannot be evaluated, and no option is ignored.
    let (model, output) = (models_fixture("llama"), files.path("out.gguf"));
    failure(&["quantize", &model, &output, "--format", "q8_0", "--perplexity", &text]);
    assert!(!Path::new(&output).exists());
    let found = failure(&["quantize", &tiny_llama(), &output, "--format", "q8_0", "--window", "8"]);
    assert!(found.contains("--perplexity TEXT"), "{found}");
    let plain = files.path("out.safetensors");
    let found = failure(&["quantize", &tiny_llama(), &plain, "--format", "q8_0", "--perplexity", &text]);
    assert!(found.contains(".gguf"), "{found}");
}
