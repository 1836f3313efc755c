//! `kiln weights` as a process.

mod perplexity;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// Runs the command: the status, standard output and standard error.
fn kiln(words: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kiln")).arg("weights").args(words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[track_caller]
fn success(words: &[&str]) -> String {
    let (status, text, error) = kiln(words);
    assert_eq!(status, Some(0), "{words:?}: {text}{error}");
    // The progress bar is for terminals.
    assert_eq!(error, "", "{words:?}");
    text
}

#[track_caller]
fn failure(words: &[&str]) -> String {
    let (status, text, error) = kiln(words);
    assert!(status != Some(0) && text.is_empty(), "{words:?}: {text}{error}");
    error
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/fixtures").join(name);
    path.to_str().unwrap().to_owned()
}

fn in_folder(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}

/// The tensors of `info --json` by name.
fn tensor(file: &str, name: &str) -> Value {
    let info: Value = serde_json::from_str(&success(&["info", file, "--json"])).unwrap();
    let tensors = info["tensors"].as_array().unwrap().clone();
    tensors.into_iter().find(|tensor| tensor["name"] == name).unwrap_or_else(|| panic!("no {name} in {info}"))
}

#[test]
fn info_lists_tensors_totals_and_metadata() {
    let text = success(&["info", &fixture("flax/net.msgpack")]);
    let line = |words: &[&str]| {
        let found = text.lines().find(|line| words.iter().all(|word| line.contains(word)));
        found.unwrap_or_else(|| panic!("no line with {words:?} in\n{text}"));
    };
    line(&["net.msgpack: Flax"]);
    line(&["params.Conv_0.kernel", "[2, 2, 1, 3]", "float32", "48"]);
    line(&["14 tensors"]);
    line(&["step", "7"]);
    assert_eq!(tensor(&fixture("flax/net.msgpack"), "mask")["bytes"], 2);
    let error = failure(&["info", "/no/such/file"]);
    assert!(error.contains("/no/such/file"), "{error}");
}

#[test]
fn conversions_keep_the_values() {
    let folder = tempfile::tempdir().unwrap();
    let input = fixture("module-v0.safetensors");
    for name in ["model.pt", "model.npz", "model.gguf", "model.safetensors", "folder"] {
        let output = in_folder(&folder, name);
        let text = success(&["convert", &input, &output]);
        assert!(text.contains("2 tensors"), "{text}");
        assert!(success(&["diff", &input, &output]).contains("2 tensors are equal"));
    }
    assert!(folder.path().join("folder/model.safetensors").is_file());
    let half = in_folder(&folder, "half.safetensors");
    success(&["convert", &input, &half, "--dtype", "f16"]);
    assert_eq!(tensor(&half, "weight")["dtype"], "F16");
    // The values are exact in 16 bits.
    let (status, text, _) = kiln(&["diff", &input, &half]);
    assert!(status == Some(1) && text.contains("type F32 and F16"), "{text}");
    success(&["diff", &input, &half, "--tolerance", "1e-3"]);
}

#[test]
fn names_are_renamed_filtered_and_transposed() {
    let folder = tempfile::tempdir().unwrap();
    let output = in_folder(&folder, "out.safetensors");
    let input = fixture("burn/record-15.mpk");
    let words =
        ["convert", &input, &output, "--preset", "burn", "--rename", "layers.*.**=block$1.$2", "--include"];
    success(&[&words[..], &["block*.**", "--exclude", "**.bias", "--transpose", "**.weight"]].concat());
    let info: Value = serde_json::from_str(&success(&["info", &output, "--json"])).unwrap();
    let names: Vec<&str> =
        info["tensors"].as_array().unwrap().iter().map(|tensor| tensor["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["block0.weight", "block1.weight"]);
    assert_eq!(info["tensors"][0]["shape"], serde_json::json!([2, 3]));
    let error = failure(&["convert", &input, &output, "--rename", "x"]);
    assert!(error.contains("PATTERN=REPLACEMENT"), "{error}");
    let error = failure(&["convert", &input, &output, "--include", "(a|b)"]);
    assert!(error.contains("no regular expression") && error.contains("`{weight,bias}`"), "{error}");
}

#[test]
fn shards_have_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let output = in_folder(&folder, "shards");
    let input = fixture("flax/net.msgpack");
    success(&["convert", &input, &output, "--max-shard-size", "64B"]);
    assert!(folder.path().join("shards/model.safetensors.index.json").is_file());
    success(&["diff", &input, &output, "--tolerance", "0.1"]);
    let error = failure(&["convert", &input, &in_folder(&folder, "x.npz"), "--max-shard-size", "1MB"]);
    assert!(error.contains("folder"), "{error}");
    let error = failure(&["convert", &input, &output, "--max-shard-size", "much"]);
    assert!(error.contains("2GB"), "{error}");
    let error = failure(&["convert", &input, &in_folder(&folder, "x.onnx")]);
    assert!(error.contains("`.onnx`") && error.contains(".safetensors"), "{error}");
}

#[test]
fn diff_lists_what_differs() {
    let folder = tempfile::tempdir().unwrap();
    let output = in_folder(&folder, "out.safetensors");
    success(&[
        "convert",
        &fixture("burn/record-15.mpk"),
        &output,
        "--rename",
        "layers.1.**=layers.2.$1",
        "--transpose",
        "head.**",
    ]);
    let (status, text, _) = kiln(&["diff", &fixture("burn/record-15.mpk"), &output]);
    assert_eq!(status, Some(1));
    for expected in ["only in", "shape [3, 2] and [2, 3]", "5 of 9 tensors differ"] {
        assert!(text.contains(expected), "{text}");
    }
    let weights = fixture("module-v0.safetensors");
    let (status, text, _) = kiln(&["diff", &weights, &fixture("checkpoint-1/model.safetensors")]);
    assert!(status == Some(1) && text.contains("differs by up to"), "{text}");
}

/// A small model of Hugging Face: a safetensors file of matrices.
fn matrices(folder: &tempfile::TempDir) -> PathBuf {
    use std::collections::BTreeMap;
    let wave = |rows: usize, columns: usize, step: f32| {
        let values: Vec<f32> = (0..rows * columns).map(|i| (i as f32 * step).sin()).collect();
        kiln_tensor::TensorData::new(values, [rows, columns]).unwrap()
    };
    let tensors = [
        ("a.weight", wave(4, 64, 0.1)),
        ("b.weight", wave(4, 64, 0.3)),
        ("odd.weight", wave(4, 10, 0.2)),
        ("norm.weight", kiln_tensor::TensorData::from([1.0f32; 64])),
    ];
    let path = folder.path().join("model.safetensors");
    let tensors = tensors.map(|(name, data)| (name.to_owned(), data));
    kiln_store::save_tensors(&path, tensors, &BTreeMap::new()).unwrap();
    path
}

#[test]
fn quantize_writes_blocks_of_matrices() {
    let folder = tempfile::tempdir().unwrap();
    let input = matrices(&folder);
    let input = input.to_str().unwrap();
    let output = in_folder(&folder, "model.gguf");
    let error = failure(&["quantize", input, &output, "--format", "q8_0", "--keep", "b*"]);
    assert!(error.contains("no tensor matches `b*`\n  hint: near names: `b.weight`"), "{error}");
    let text = success(&["quantize", input, &output, "--format", "q8_0", "--keep", "b.*"]);
    assert!(text.contains("4 tensors") && text.contains("1 quantised to q8_0"), "{text}");
    assert_eq!(tensor(&output, "a.weight")["blocks"], "q8_0");
    assert_eq!(tensor(&output, "a.weight")["bytes"], 4 * 2 * 34);
    for name in ["b.weight", "odd.weight", "norm.weight"] {
        assert_eq!(tensor(&output, name)["blocks"], Value::Null, "{name}");
    }
    // A step of q8_0 is 1/127.
    success(&["diff", input, &output, "--tolerance", "0.005"]);
    assert_eq!(kiln(&["diff", input, &output]).0, Some(1));

    // GGUF to GGUF keeps blocks, unless they are quantised again.
    let again = in_folder(&folder, "again.gguf");
    let text = success(&["quantize", &output, &again, "--format", "q4_1"]);
    assert_eq!(tensor(&again, "a.weight")["blocks"], "q8_0", "{text}");
    assert_eq!(tensor(&again, "b.weight")["blocks"], "q4_1");
    success(&["quantize", &output, &again, "--format", "q4_1", "--requantize"]);
    assert_eq!(tensor(&again, "a.weight")["blocks"], "q4_1");
    // Other formats get the dequantised elements.
    let plain = in_folder(&folder, "plain.safetensors");
    success(&["convert", &output, &plain]);
    assert_eq!(tensor(&plain, "a.weight")["dtype"], "F32");
    success(&["diff", &output, &plain, "--tolerance", "1e-6"]);

    let error = failure(&["quantize", input, &plain, "--format", "q8_0"]);
    assert!(error.contains(".gguf"), "{error}");
    let error = failure(&["quantize", input, &output, "--format", "q9"]);
    assert!(error.contains("q4_1"), "{error}");
    assert!(fs::metadata(&output).is_ok());
}

/// Blocks are along the inputs of a layer, by which Hugging Face's files of GPT-2 have their rows.
#[test]
fn quantize_transposes_the_matrices_of_gpt2() {
    let folder = tempfile::tempdir().unwrap();
    let config = r#"{"model_type": "gpt2", "vocab_size": 8, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 16,
        "layer_norm_epsilon": 1e-5}"#;
    fs::write(folder.path().join("config.json"), config).unwrap();
    let input = in_folder(&folder, "model.safetensors");
    let tensors = [("h.0.attn.c_attn.weight", 96), ("h.0.mlp.c_fc.weight", 128)].map(|(name, outputs)| {
        let values: Vec<f32> = (0..32 * outputs).map(|i| (i % 23) as f32).collect();
        (name.to_owned(), kiln_tensor::TensorData::new(values, [32, outputs]).unwrap())
    });
    kiln_store::save_tensors(&input, tensors, &Default::default()).unwrap();
    let output = in_folder(&folder, "model.gguf");
    success(&["quantize", &input, &output, "--format", "q8_0"]);
    for (name, outputs) in [("blk.0.attn_qkv.weight", 96), ("blk.0.ffn_up.weight", 128)] {
        let tensor = tensor(&output, name);
        assert_eq!((&tensor["blocks"], &tensor["shape"]), (&json!("q8_0"), &json!([outputs, 32])), "{name}");
    }
}

#[test]
fn rules_that_match_nothing_are_a_warning() {
    let file = fixture("pytorch/parameters.pt");
    let (status, text, error) = kiln(&["info", &file, "--rename", "wait=w", "--exclude", "bias"]);
    assert_eq!(
        (status, error.as_str()),
        (Some(0), "kiln: no tensor matches the rule: rename `wait` to `w`\n")
    );
    assert!(text.contains("weight") && !text.contains("bias"), "{text}");
    // Of two files, a rule may be for one.
    let (status, _, error) = kiln(&["diff", &file, &fixture("pytorch/tensor.pt"), "--rename", "tensor=t"]);
    assert_eq!((status, error.as_str()), (Some(1), ""));
}

#[test]
fn eight_bit_floats_are_converted() {
    let folder = tempfile::tempdir().unwrap();
    let output = in_folder(&folder, "wide.safetensors");
    let input = fixture("float8.safetensors");
    assert_eq!(
        (&tensor(&input, "F8_E4M3")["dtype"], &tensor(&input, "F8_E4M3")["bytes"]),
        (&json!("F8_E4M3"), &json!(256))
    );
    success(&["convert", &input, &output, "--include", "F8_E4M3", "--dtype", "bf16"]);
    assert_eq!(tensor(&output, "F8_E4M3")["dtype"], "BF16");
}
