//! GPT-2 in a quantised GGUF file, which the Python package `gguf` wrote.

use std::path::PathBuf;
use std::process::Command;

use kiln_models::{CausalLanguageModel, OpenOptions, PretrainedLanguageModel};
use kiln_store::gguf::{self, GgufFile, HuggingFaceGguf};
use kiln_store::{Mapping, TensorSource, Weights};
use kiln_tensor::{BlockFormat, DType};
use kiln_text::{GenerateConfig, generate_ids};

use crate::models::B;
use crate::models::fixture::{Expected, assert_close, expected, folder};

const NAME: &str = "gpt2_quantized";

fn path() -> PathBuf {
    folder(NAME).join("model.gguf")
}

/// The file under the names and in the layout of Hugging Face.
fn checkpoint() -> HuggingFaceGguf {
    HuggingFaceGguf::new(GgufFile::open(path()).unwrap()).unwrap()
}

fn ids(expected: &Expected, name: &str) -> Vec<u32> {
    expected.data(name).iter::<i64>().map(|id| u32::try_from(id).unwrap()).collect()
}

/// PyTorch computes the expected values from the weights that the package `gguf` dequantises. Blocks differ by the
/// rounding of activations to two bytes.
#[test]
fn blocks_continue_text_as_the_dequantised_model_does() {
    let expected = expected(NAME);
    for dequantize in [true, false] {
        let options = OpenOptions::new().with_dequantize(dequantize);
        let opened = PretrainedLanguageModel::<B>::open_with(path(), &options, &Default::default()).unwrap();
        let CausalLanguageModel::Gpt2(model) = &opened.model else { panic!("not a GPT-2") };
        let formats = [BlockFormat::Q8_0, BlockFormat::Q4_0].map(|format| (!dequantize).then_some(format));
        for (layer, format) in model.transformer.h.iter().zip(formats) {
            let (attention, mlp) = (&layer.attn, &layer.mlp);
            for projection in [&attention.c_attn, &attention.c_proj, &mlp.c_fc, &mlp.c_proj] {
                assert_eq!(projection.format(), format);
            }
        }
        assert_eq!(model.transformer.wte.format(), formats[0]);
        let logits = expected.floats::<3>("logits");
        let greatest = f64::from(logits.clone().abs().max().into_scalar::<f32>());
        let tolerance = if dequantize { 1e-4 } else { 3e-4 * greatest };
        assert_close(model.forward(expected.ints("ids")), logits, tolerance);
        let config = GenerateConfig::new().with_max_new_tokens(8);
        let generated = generate_ids(&opened.model, &[ids(&expected, "prompt")], &config).unwrap();
        assert_eq!(generated.rows[0].ids, ids(&expected, "continuation"));
    }
}

#[test]
fn matrices_of_checkpoints_are_dequantised_to_be_transposed() {
    let name = "transformer.h.1.mlp.c_fc.weight";
    let view = checkpoint();
    let info = view.info(name).unwrap();
    assert_eq!((&*info.shape, info.dtype, info.blocks), (&[32, 64][..], Some(DType::F32), None));
    let values = view.contents(name).unwrap().into_data().unwrap();
    assert_eq!(values.to_vec::<f32>(), expected(NAME).data("c_fc").to_vec::<f32>());
    let view = view.transpose(false);
    let info = view.info(name).unwrap();
    assert_eq!((&*info.shape, info.blocks), (&[64, 32][..], Some(BlockFormat::Q4_0)));
    assert_eq!(view.contents(name).unwrap().ty().dtype, DType::U8);
}

/// The blocks of an export are those of the package `gguf`. They are along the inputs of a layer, so a checkpoint is
/// transposed before it is quantised.
#[test]
fn checkpoints_are_quantised_along_the_inputs() {
    let original = GgufFile::open(path()).unwrap();
    let config = gguf::config(&original).unwrap();
    let metadata = gguf::metadata_from_config(&config).unwrap();
    let quantized = |weights: Weights| {
        let is_matrix = |name: &str| name.ends_with(".weight") && !name.contains("wpe");
        let format = move |name: &str, info: &kiln_store::TensorInfo| {
            (info.shape.rank() == 2 && is_matrix(name)).then_some(BlockFormat::Q8_0)
        };
        weights.quantized(format).unwrap()
    };
    let checkpoint = Weights::from_source(checkpoint());
    let transposed = quantized(checkpoint.mapped(&Mapping::new().transpose_conv1d()).unwrap());
    let tensors = gguf::export(transposed.source(), &metadata, &config, None).unwrap();
    let exported = GgufFile::from_bytes(gguf::to_bytes(&metadata, tensors).unwrap()).unwrap();
    let blocks =
        |file: &GgufFile, name: &str| file.contents(name).unwrap().into_data().unwrap().bytes().to_vec();
    for name in original.names() {
        let info = exported.info(name).unwrap();
        assert_eq!(info.shape, original.info(name).unwrap().shape, "{name}");
        let is_matrix = name.ends_with(".weight") && info.shape.rank() == 2;
        assert_eq!(info.blocks.is_some(), is_matrix && name != "position_embd.weight", "{name}");
        if info == original.info(name).unwrap() {
            assert_eq!(blocks(&exported, name), blocks(&original, name), "{name}");
        }
    }
    let wrong = quantized(checkpoint);
    let error = gguf::export(wrong.source(), &metadata, &config, None).unwrap_err().to_string();
    assert!(error.contains("hint: apply `Mapping::transpose_conv1d` before"), "{error}");
}

/// Prints the ids of the greedy continuation, by llama.cpp.
const COMPLETE: &str = r"
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_parallel, params.n_gpu_layers, params.warmup = 64, 1, 0, False
server = xllamacpp.Server(params)
prompt = [int(id) for id in sys.argv[2:]]
answer = server.handle_completions({'prompt': prompt, 'max_tokens': 8, 'temperature': 0, 'n_probs': 1})
print('ANSWER', *(token['id'] for token in answer['choices'][0]['logprobs']['content']))
";

#[test]
fn llama_cpp_continues_in_the_same_way() {
    let Some(python) = std::env::var_os("KILN_PYTHON") else {
        println!("skipped: KILN_PYTHON does not name an interpreter with the package xllamacpp");
        return;
    };
    let expected = expected(NAME);
    let prompt = ids(&expected, "prompt").into_iter().map(|id| id.to_string());
    let output = Command::new(python).args(["-c", COMPLETE]).arg(path()).args(prompt).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if errors.contains("No module named") {
        println!("skipped: the interpreter of KILN_PYTHON has no package xllamacpp");
        return;
    }
    let answer = text.lines().find_map(|line| line.strip_prefix("ANSWER "));
    let answer = answer.unwrap_or_else(|| panic!("{errors}"));
    let continued: Vec<u32> = answer.split(' ').map(|id| id.parse().unwrap()).collect();
    assert_eq!(continued, ids(&expected, "continuation"));
}
