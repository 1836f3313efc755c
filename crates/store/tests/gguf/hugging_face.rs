//! Names, layouts and configurations of Hugging Face, against Transformers.

use std::collections::BTreeSet;

use kiln_store::gguf::{
    self, Conversion, ElementType, GgufFile, HuggingFaceGguf, Metadata, PreTokenizer, conversion, gguf_name,
    hugging_face_name,
};
use kiln_store::{TensorContents, TensorSource};
use kiln_tensor::{BlockFormat, DType, Shape, TensorData};
use serde_json::{Value, json};

use super::{bytes, floats, json as load, open, reference};

const ARCHITECTURES: [&str; 4] = ["llama", "qwen2", "gemma2", "gpt2"];

#[test]
fn weights_are_those_that_transformers_loads() {
    for name in ARCHITECTURES {
        let view = HuggingFaceGguf::new(open(&format!("{name}.gguf"))).unwrap();
        let expected = reference(&format!("{name}.safetensors"));
        let names: BTreeSet<&str> = view.names().into_iter().collect();
        assert_eq!(names, expected.names().collect(), "{name}");
        assert_eq!(view.left_out(), [""; 0]);
        for tensor in names {
            assert_eq!(view.info(tensor).unwrap().shape, expected.info(tensor).unwrap().shape, "{tensor}");
            assert_eq!(floats(&view, tensor), floats(&expected, tensor), "{name}: {tensor}");
        }
        let error = view.contents("model.norm.wait").unwrap_err().to_string();
        assert!(error.contains("no tensor `model.norm.wait`"), "{error}");
    }
}

/// The two agree, numbers up to the precision of `f32`.
fn agree(found: &Value, expected: &Value) -> bool {
    match (found.as_f64(), expected.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-6 * b.abs(),
        _ => found == expected,
    }
}

#[test]
fn configurations_are_those_that_transformers_derives() {
    for name in ARCHITECTURES {
        let found = gguf::config(&open(&format!("{name}.gguf"))).unwrap();
        let expected = load(&format!("{name}.json"));
        let mut compared = 0;
        for (key, value) in expected.as_object().unwrap() {
            if let Some(found) = found.get(key) {
                assert!(agree(found, value), "{name}: `{key}` is {found}, expected {value}");
                compared += 1;
            }
        }
        assert!(compared >= 10, "{name}: only {compared} keys");
        if let Some(theta) = expected.get("rope_parameters").and_then(|rope| rope.get("rope_theta")) {
            assert!(agree(&found["rope_theta"], theta), "{found}");
        }
    }
}

#[test]
fn the_configuration_of_gemma_has_its_own_keys() {
    let config = gguf::config(&open("gemma2.gguf")).unwrap();
    assert_eq!(config["architectures"], json!(["Gemma2ForCausalLM"]));
    assert_eq!(config["attn_logit_softcapping"], json!(50.0));
    assert_eq!(config["final_logit_softcapping"], json!(30.0));
    assert_eq!(config["query_pre_attn_scalar"], json!(8));
    assert_eq!(config["sliding_window"], json!(32));
    assert_eq!(config["hidden_act"], json!("gelu_pytorch_tanh"));
}

/// The metadata of an architecture, without the tokenizer.
fn model_metadata(metadata: &Metadata) -> Vec<String> {
    let architecture = metadata.str("general.architecture").unwrap();
    let of_model = metadata.iter().filter(|(key, _)| key.starts_with(&format!("{architecture}.")));
    of_model.map(|(key, value)| format!("{key} = {value:?}")).collect()
}

#[test]
fn exported_models_equal_the_original() {
    for name in ARCHITECTURES {
        let original = open(&format!("{name}.gguf"));
        let config = gguf::config(&original).unwrap();
        let mut metadata = gguf::metadata_from_config(&config).unwrap();
        let found: BTreeSet<String> = model_metadata(&metadata).into_iter().collect();
        for entry in model_metadata(original.metadata()) {
            // llama.cpp takes the size of the vocabulary of GPT-2 from the tokenizer.
            assert!(found.contains(&entry) || entry.starts_with("gpt2.vocab_size"), "{entry}: {found:#?}");
        }
        metadata.insert("general.name", name);
        let checkpoint = reference(&format!("{name}.safetensors"));
        let tensors = gguf::export(&checkpoint, &metadata, &config, None).unwrap();
        let file = GgufFile::from_bytes(gguf::to_bytes(&metadata, tensors).unwrap()).unwrap();
        let names: BTreeSet<&str> = file.names().collect();
        assert_eq!(names, original.names().collect(), "{name}");
        for tensor in names {
            assert_eq!(file.info(tensor), original.info(tensor), "{name}: {tensor}");
            assert_eq!(bytes(&file, tensor), bytes(&original, tensor), "{name}: {tensor}");
        }
    }
}

#[test]
fn exported_matrices_are_cast() {
    let checkpoint = reference("llama.safetensors");
    let config = gguf::config(&open("llama.gguf")).unwrap();
    let metadata = gguf::metadata_from_config(&config).unwrap();
    let tensors = gguf::export(&checkpoint, &metadata, &config, Some(DType::F16)).unwrap();
    let file = GgufFile::from_bytes(gguf::to_bytes(&metadata, tensors).unwrap()).unwrap();
    for name in file.names() {
        let expected = if name.ends_with("norm.weight") { DType::F32 } else { DType::F16 };
        assert_eq!(file.info(name).unwrap().dtype, Some(expected), "{name}");
        // The numbers of the fixture are exact in `f16`.
        assert_eq!(floats(&file, name), floats(&open("llama.gguf"), name), "{name}");
    }
    let foreign = reference("gpt2.safetensors");
    let error = gguf::export(&foreign, &metadata, &config, None).unwrap_err().to_string();
    assert!(error.contains("the architecture `llama` of llama.cpp has no such tensor"), "{error}");
}

#[test]
fn export_types() {
    let wanted = ElementType::Blocks(BlockFormat::Q4_K);
    let of = |name, shape: &[usize]| gguf::export_type(name, &Shape::new(shape), wanted);
    assert_eq!(of("blk.0.attn_q.weight", &[4, 512]), wanted);
    assert_eq!(of("blk.0.attn_q.weight", &[4, 96]), ElementType::Blocks(BlockFormat::Q8_0));
    assert_eq!(of("blk.0.attn_q.weight", &[4, 20]), ElementType::Plain(DType::F16));
    assert_eq!(of("output_norm.weight", &[512]), ElementType::Plain(DType::F32));
    assert_eq!(of("position_embd.weight", &[512, 512]), ElementType::Plain(DType::F32));
}

#[test]
fn names_of_the_python_package() {
    let all = load("names.json");
    for (architecture, names) in all.as_object().unwrap() {
        for (name, stored) in names.as_object().unwrap() {
            let stored = stored.as_str().unwrap();
            assert_eq!(hugging_face_name(architecture, stored).as_deref(), Some(name.as_str()));
            assert_eq!(gguf_name(architecture, name).as_deref(), Some(stored));
        }
    }
    let name = "layers.3.self_attn.q_proj.weight";
    for prefix in ["", "model.", "language_model.model."] {
        let found = gguf_name("llama", &format!("{prefix}{name}"));
        assert_eq!(found.as_deref(), Some("blk.3.attn_q.weight"), "{prefix}");
    }
    let word = gguf_name("bert", "bert.embeddings.word_embeddings.weight");
    assert_eq!(word.as_deref(), Some("token_embd.weight"));
    for other in ["rope_freqs.weight", "blk..attn_q.weight", "blk.x.attn_q.weight", "blk.0.attn_q", "", "."] {
        assert_eq!(hugging_face_name("llama", other), None, "{other}");
    }
    assert_eq!(hugging_face_name("mamba", "token_embd.weight"), None);
    assert_eq!(gguf::architecture_of("mistral"), Some("llama"));
}

#[test]
fn conversions_follow_the_architecture() {
    let of = |architecture: &str, name| {
        let mut metadata = Metadata::new();
        metadata.insert("general.architecture", architecture);
        metadata.insert(format!("{architecture}.attention.head_count"), 8u32);
        metadata.insert(format!("{architecture}.attention.head_count_kv"), vec![2u32, 4]);
        conversion(&metadata, name)
    };
    assert_eq!(of("llama", "blk.1.attn_q.weight"), Conversion::InterleavedRows { heads: 8 });
    assert_eq!(of("llama", "blk.1.attn_k.bias"), Conversion::InterleavedRows { heads: 4 });
    assert_eq!(of("llama", "blk.0.attn_k.weight"), Conversion::InterleavedRows { heads: 2 });
    assert_eq!(of("llama", "blk.0.attn_v.weight"), Conversion::None);
    assert_eq!(of("llama", "blk.0.attn_norm.weight"), Conversion::None);
    assert_eq!(of("qwen3", "blk.0.attn_q.weight"), Conversion::None);
    assert_eq!(of("gemma3", "blk.0.attn_q_norm.weight"), Conversion::OnePlus);
    assert_eq!(of("gemma", "output_norm.weight"), Conversion::OnePlus);
    assert_eq!(of("gpt2", "blk.0.attn_qkv.weight"), Conversion::Transposed);
    assert_eq!(of("gpt2", "blk.0.attn_qkv.bias"), Conversion::None);
    assert_eq!(of("bert", "blk.0.attn_output.weight"), Conversion::None);
}

#[test]
fn rows_of_blocks_are_reordered_whole() {
    let rows: Vec<u8> = (0..8u8).flat_map(|row| [row; 18]).collect();
    let contents = || TensorContents::Host(TensorData::new(rows.clone(), [8, 18]).unwrap());
    let order = |contents: TensorContents| -> Vec<u8> {
        contents.into_data().unwrap().bytes().chunks(18).map(|row| row[0]).collect()
    };
    let checkpoint = gguf::unpermute_rows(contents(), 2).unwrap();
    assert_eq!(order(checkpoint), [0, 2, 1, 3, 4, 6, 5, 7]);
    let checkpoint = gguf::unpermute_rows(contents(), 1).unwrap();
    assert_eq!(order(checkpoint), [0, 2, 4, 6, 1, 3, 5, 7]);
    let back = gguf::permute_rows(gguf::unpermute_rows(contents(), 1).unwrap(), 1).unwrap();
    assert_eq!(order(back), [0, 1, 2, 3, 4, 5, 6, 7]);
    for heads in [0, 3, 8] {
        let error = gguf::unpermute_rows(contents(), heads).unwrap_err().to_string();
        assert!(error.contains(&format!("heads = {heads}: the 8 rows do not divide")), "{error}");
    }
}

#[test]
fn frequency_factors_of_llama_3() {
    let load = load("rope.json");
    let factors = gguf::rope_factors(&load["config"]).unwrap().to_vec::<f32>();
    let expected: Vec<f64> = load["factors"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
    assert_eq!(factors.len(), expected.len());
    for (factor, expected) in factors.iter().zip(&expected) {
        assert!((f64::from(*factor) - expected).abs() < 2e-3 * expected, "{factors:?}");
    }
    let mut config = load["config"].clone();
    for (key, value) in [
        ("model_type", json!("llama")),
        ("hidden_size", json!(64)),
        ("num_hidden_layers", json!(1)),
        ("num_attention_heads", json!(1)),
        ("intermediate_size", json!(64)),
        ("max_position_embeddings", json!(131_072)),
        ("rms_norm_eps", json!(1e-5)),
        ("vocab_size", json!(8)),
    ] {
        config[key] = value;
    }
    let metadata = gguf::metadata_from_config(&config).unwrap();
    let with = |factors: TensorData| {
        let named = [("rope_freqs.weight".to_owned(), factors.into())];
        gguf::config(&GgufFile::from_bytes(gguf::to_bytes(&metadata, named).unwrap()).unwrap()).unwrap()
    };
    let scaling = with(factors.into())["rope_scaling"].clone();
    assert_eq!(scaling["rope_type"], "llama3");
    assert_eq!(scaling["factor"], 32.0);
    let other = with(TensorData::from([1.0f32, 3.0]))["rope_scaling"].clone();
    assert_eq!(other, json!({"rope_type": "factors", "factors": [1.0, 3.0]}));
}

#[test]
fn scaling_of_frequencies_round_trips() {
    let mut config = gguf::config(&open("llama.gguf")).unwrap();
    let scaling = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768});
    config["rope_scaling"] = scaling.clone();
    let metadata = gguf::metadata_from_config(&config).unwrap();
    let file = GgufFile::from_bytes(gguf::to_bytes(&metadata, []).unwrap()).unwrap();
    assert_eq!(gguf::config(&file).unwrap()["rope_scaling"], scaling);
    let parameters = json!({"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0});
    for rope in [parameters.clone(), json!({"full_attention": parameters, "sliding_attention": {}})] {
        let mut config = config.clone();
        config["rope_scaling"] = Value::Null;
        config["rope_theta"] = Value::Null;
        config["rope_parameters"] = rope;
        let metadata = gguf::metadata_from_config(&config).unwrap();
        assert_eq!(metadata.f64("llama.rope.freq_base"), Some(1e6));
        assert_eq!(metadata.f64("llama.rope.scaling.factor"), Some(8.0));
    }
    config["rope_scaling"] = json!({"rope_type": "dynamic", "factor": 2.0});
    let error = gguf::metadata_from_config(&config).unwrap_err().to_string();
    assert!(error.contains("`rope_scaling` of the type `dynamic` cannot be written"), "{error}");
}

#[test]
fn incomplete_configurations_are_errors() {
    let error = |config: Value| gguf::metadata_from_config(&config).unwrap_err().to_string();
    assert_eq!(error(json!({})), "config.json: has no `model_type`");
    assert!(error(json!({"model_type": "mamba"})).contains("`mamba` is not supported; supported: llama, "));
    assert!(error(json!({"model_type": "llama"})).contains("has no `num_attention_heads`"));
    let bad = json!({"model_type": "gpt2", "n_embd": -1});
    assert!(error(bad).contains("`n_embd` is -1, but should be an integer of 32 bits"));
    let mut metadata = Metadata::new();
    metadata.insert("general.architecture", "llama");
    metadata.insert("llama.embedding_length", "wide");
    let file = GgufFile::from_bytes(gguf::to_bytes(&metadata, []).unwrap()).unwrap();
    let error = gguf::config(&file).unwrap_err().to_string();
    assert!(error.contains("`llama.embedding_length` has the value `wide`"), "{error}");
    metadata.insert("llama.rope.freq_base", f32::NAN);
    let file = GgufFile::from_bytes(gguf::to_bytes(&metadata, []).unwrap()).unwrap();
    let error = gguf::config(&file).unwrap_err().to_string();
    assert!(error.contains("`llama.rope.freq_base` is NaN, expected a finite number"), "{error}");
    metadata.insert("general.architecture", "mamba");
    let bytes = gguf::to_bytes(&metadata, []).unwrap();
    let error = gguf::config(&GgufFile::from_bytes(bytes.clone()).unwrap()).unwrap_err().to_string();
    assert!(error.contains("the architecture `mamba` is not supported"), "{error}");
    assert!(HuggingFaceGguf::new(GgufFile::from_bytes(bytes).unwrap()).is_err());
}

#[test]
fn byte_level_tokenizers_equal_those_of_the_python_package() {
    let tokenizer = load("tokenizer/tokenizer.json");
    let config = load("tokenizer/tokenizer_config.json");
    let found = gguf::tokenizer_metadata(&tokenizer, Some(&config), None).unwrap();
    let file = open("tokenizer.gguf");
    let expected = file.metadata().iter().filter(|(key, _)| key.starts_with("tokenizer."));
    let mut count = 0;
    for (key, value) in expected {
        assert_eq!(found.get(key), Some(value), "{key}");
        count += 1;
    }
    assert_eq!(found.len(), count, "{:?}", found.iter().map(|(key, _)| key).collect::<Vec<_>>());
}

#[test]
fn splitting_rules_are_detected() {
    let split = |digits: &str| {
        let regex = format!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        );
        json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": regex}}, {"type": "ByteLevel"}]}})
    };
    assert_eq!(PreTokenizer::detect(&split(r"\p{N}{1,3}")), Some(PreTokenizer::LlamaBpe));
    assert_eq!(PreTokenizer::detect(&split(r"\p{N}")), None, "a name without NFC");
    let normalized = |mut tokenizer: Value, normalizer: Value| {
        tokenizer["normalizer"] = normalizer;
        PreTokenizer::detect(&tokenizer)
    };
    let nfc = || json!({"type": "NFC"});
    assert_eq!(normalized(split(r"\p{N}"), nfc()), Some(PreTokenizer::Qwen2));
    let sequence = json!({"type": "Sequence", "normalizers": [nfc()]});
    assert_eq!(normalized(split(r"\p{N}"), sequence), Some(PreTokenizer::Qwen2));
    assert_eq!(normalized(split(r"\p{N}{1,3}"), nfc()), None);
    assert_eq!(PreTokenizer::detect(&split(r"\p{N}{1,9}")), None);
    let gpt2 = json!({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}});
    assert_eq!(PreTokenizer::detect(&gpt2), Some(PreTokenizer::Gpt2));
    assert_eq!(normalized(gpt2.clone(), nfc()), Some(PreTokenizer::Olmo));
    assert_eq!(
        normalized(gpt2.clone(), json!({"type": "Sequence", "normalizers": []})),
        Some(PreTokenizer::Gpt2)
    );
    assert_eq!(normalized(gpt2, json!({"type": "NFKC"})), None);
    let smollm = load("tokenizer/tokenizer.json");
    assert_eq!(PreTokenizer::detect(&smollm), Some(PreTokenizer::SmolLm));
    assert_eq!(normalized(smollm, nfc()), Some(PreTokenizer::CommandR));
    assert_eq!(PreTokenizer::detect(&json!({"pre_tokenizer": null})), None);
}

#[test]
fn other_tokenizers_are_errors() {
    let error = |tokenizer: Value| gguf::tokenizer_metadata(&tokenizer, None, None).unwrap_err().to_string();
    assert!(error(json!({})).contains("has no `model`"));
    assert!(error(json!({"model": {"type": "Unigram"}})).contains("only byte-level BPE"));
    let characters = json!({"model": {"type": "BPE"}, "decoder": {"type": "Sequence"}});
    assert!(error(characters).contains("a BPE of characters"));
    let mut tokenizer = load("tokenizer/tokenizer.json");
    tokenizer["pre_tokenizer"] = json!({"type": "Whitespace"});
    assert!(error(tokenizer.clone()).contains("whose name in llama.cpp is unknown"));
    let named = gguf::tokenizer_metadata(&tokenizer, None, Some("gpt-2")).unwrap();
    assert_eq!(named.str("tokenizer.ggml.pre"), Some("gpt-2"));
    tokenizer["model"]["vocab"]["far"] = json!(u64::MAX);
    let error = gguf::tokenizer_metadata(&tokenizer, None, Some("gpt-2")).unwrap_err().to_string();
    assert!(error.contains("for `far`; ids are below 4000000"), "{error}");
    tokenizer["model"]["vocab"]["far"] = json!(3);
    let error = gguf::tokenizer_metadata(&tokenizer, None, Some("gpt-2")).unwrap_err().to_string();
    assert!(error.contains("has the id 3 for"), "{error}");
}

#[test]
fn gaps_in_the_ids_are_filled() {
    let tokenizer = json!({
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b", ["a", " b"]]},
        "added_tokens": [{"id": 4, "content": "<s>", "special": true}],
    });
    let metadata = gguf::tokenizer_metadata(&tokenizer, None, Some("gpt-2")).unwrap();
    let tokens = metadata.strings("tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens, ["a", "b", "[PAD2]", "[PAD3]", "<s>"]);
    assert_eq!(metadata.integers("tokenizer.ggml.token_type"), Some(vec![1, 1, 5, 5, 3]));
    assert_eq!(metadata.strings("tokenizer.ggml.merges").unwrap(), ["a b", "a Ġb"]);
}
