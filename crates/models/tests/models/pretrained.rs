//! Language models from folders and GGUF files, with their tokenizers.

use std::path::Path;

use kiln_models::{CausalLanguageModel, LlamaConfig, OpenOptions, PretrainedLanguageModel};
use kiln_nn::Module;
use kiln_store::Weights;
use kiln_store::gguf::{self, GgufTensor, Metadata, MetadataArray, MetadataValue};
use kiln_tensor::{BlockFormat, DType, Tensor, TensorData};
use kiln_text::{
    GenerateConfig, LanguageModel, LogitsOf, Message, PerplexityOptions, RenderOptions, TokenInput,
    generate_ids, perplexity,
};

use crate::models::B;
use crate::models::fixture::{assert_close, expected, folder};
use crate::models::published::{self, model};

/// A vocabulary of 24 letters.
fn letters() -> Vec<String> {
    ('a'..='x').map(String::from).collect()
}

fn open(path: &Path) -> PretrainedLanguageModel<B> {
    let options = OpenOptions::new().with_dtype(Some(DType::F32));
    PretrainedLanguageModel::open_with(path, &options, &Default::default()).unwrap()
}

#[track_caller]
fn check_logits(model: &CausalLanguageModel<B>, name: &str) {
    let expected = expected(name);
    let ids = expected.ints::<2>("ids");
    let mut cache = model.new_cache(ids.dims()[0], 8);
    let input = TokenInput::new(ids).with_logits(LogitsOf::All);
    assert_close(model.forward(input, &mut cache), expected.floats("logits"), 1e-4);
}

/// Adds the vocabulary of letters.
fn with_letters(metadata: &mut Metadata) {
    metadata.insert("tokenizer.ggml.model", "gpt2");
    metadata.insert("tokenizer.ggml.pre", "gpt-2");
    metadata.insert("tokenizer.ggml.tokens", MetadataValue::Array(MetadataArray::String(letters())));
    metadata.insert("tokenizer.ggml.merges", MetadataValue::Array(MetadataArray::String(Vec::new())));
}

/// Writes a fixture as a GGUF file.
fn write_gguf(name: &str, path: &Path) {
    let json = std::fs::read_to_string(folder(name).join("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&json).unwrap();
    let mut metadata = gguf::metadata_from_config(&config).unwrap();
    with_letters(&mut metadata);
    let weights = Weights::open(folder(name)).unwrap();
    let tensors = gguf::export(weights.source(), &metadata, &config, Some(DType::F32)).unwrap();
    gguf::save(path, &metadata, tensors).unwrap();
}

#[test]
fn gguf_files_have_the_logits_of_their_checkpoints() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["llama", "llama3", "llama_linear", "qwen3", "gemma", "gpt2"] {
        println!("{name}");
        let path = directory.path().join(format!("{name}.gguf"));
        write_gguf(name, &path);
        let opened = open(&path);
        check_logits(&opened.model, name);
        assert_eq!(opened.tokenizer.encode("bad", false).unwrap(), [1, 0, 3]);
        assert!(opened.chat().err().unwrap().to_string().contains("generator"));
    }
    // Its scale of the scores differs from the one that readers of GGUF derive.
    let json = std::fs::read_to_string(folder("gemma2").join("config.json")).unwrap();
    let error = gguf::metadata_from_config(&serde_json::from_str(&json).unwrap()).unwrap_err();
    assert!(error.to_string().contains("`query_pre_attn_scalar` is 6"), "{error}");
}

/// Writes a random model whose matrices are quantised.
fn write_quantized(path: &Path, format: BlockFormat) {
    let config = LlamaConfig::new(24, 32, 64, 2, 4, 2).with_initializer_range(0.3);
    let model = config.with_tie_word_embeddings(true).init::<B>(&Default::default());
    let json = serde_json::json!({
        "model_type": "llama", "vocab_size": 24, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
        "rope_theta": 1e4,
    });
    let mut metadata = gguf::metadata_from_config(&json).unwrap();
    with_letters(&mut metadata);
    let tensors = model.named_parameters().into_iter().map(|(name, parameter)| {
        let (values, shape) = (parameter.value.to_vec::<f32>().unwrap(), *parameter.value.shape());
        let tensor = match shape.rank() {
            1 => TensorData::new(values, shape).unwrap().into(),
            _ => {
                let mut bytes = vec![0; format.row_bytes(values.len()).unwrap()];
                format.encode(&values, &mut bytes);
                GgufTensor::blocks(bytes, format, shape)
            }
        };
        (gguf::gguf_name("llama", &name).unwrap(), tensor)
    });
    gguf::save(path, &metadata, tensors).unwrap();
}

/// Weights in blocks have the logits of the same weights after dequantisation, but for the rounding of activations.
#[test]
fn quantized_weights_stay_quantized() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    for format in [BlockFormat::Q8_0, BlockFormat::Q4_1] {
        write_quantized(&path, format);
        let logits = |dequantize| {
            let options = OpenOptions::new().with_dequantize(dequantize);
            let opened =
                PretrainedLanguageModel::<B>::open_with(&path, &options, &Default::default()).unwrap();
            let CausalLanguageModel::Llama(model) = &opened.model else { panic!("not a Llama") };
            let expected = (!dequantize).then_some(format);
            assert_eq!(model.model.layers[1].mlp.down_proj.format(), expected);
            assert_eq!(model.model.embed_tokens.format(), expected);
            model.forward(Tensor::from_ints([[3, 1, 4, 1, 5]], &Default::default()))
        };
        let (whole, blocks) = (logits(true), logits(false));
        let greatest = f64::from(whole.clone().abs().max().into_scalar::<f32>());
        assert_close(blocks, whole, 0.03 * greatest);
    }
}

#[test]
fn folders_have_tokenizer_and_settings() {
    let directory = tempfile::tempdir().unwrap();
    let tokens: Vec<String> =
        letters().iter().enumerate().map(|(id, token)| format!(r#""{token}": {id}"#)).collect();
    let tokenizer = format!(
        r#"{{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {{"type": "Whitespace"}}, "post_processor": null, "decoder": null,
            "model": {{"type": "WordLevel", "vocab": {{{}}}, "unk_token": "a"}}}}"#,
        tokens.join(",")
    );
    for name in ["qwen2", "gpt2"] {
        let target = directory.path().join(name);
        std::fs::create_dir(&target).unwrap();
        for file in ["config.json", "model.safetensors"] {
            std::fs::copy(folder(name).join(file), target.join(file)).unwrap();
        }
        std::fs::write(target.join("tokenizer.json"), &tokenizer).unwrap();
        let settings =
            r#"{"do_sample": true, "temperature": 0.7, "top_p": 0.9, "top_k": 0, "max_new_tokens": 5}"#;
        std::fs::write(target.join("generation_config.json"), settings).unwrap();
        let template = r#"{"chat_template": "{% for m in messages %}{{ m.content }} {% endfor %}"}"#;
        std::fs::write(target.join("tokenizer_config.json"), template).unwrap();
        let opened = open(&target);
        check_logits(&opened.model, name);
        let generation = &opened.generation;
        assert_eq!((generation.temperature, generation.top_p, generation.top_k), (0.7, Some(0.9), None));
        assert_eq!(generation.max_new_tokens, 5);
        let reply = opened.chat().ok().unwrap().send("b c", |_| ()).unwrap();
        assert!(!reply.text.is_empty());
    }
}

#[test]
fn errors_say_what_is_supported() {
    let directory = tempfile::tempdir().unwrap();
    let open =
        |path: &Path| PretrainedLanguageModel::<B>::open(path, &Default::default()).unwrap_err().to_string();
    assert!(open(&folder("llama").join("model.safetensors")).contains("config.json"));
    for (file, text) in [("config.json", r#"{"model_type": "t5"}"#), ("tokenizer.json", "{}")] {
        std::fs::write(directory.path().join(file), text).unwrap();
    }
    open(directory.path());
    let error = LlamaConfig::from_hugging_face(r#"{"model_type": "t5"}"#).unwrap_err();
    assert!(error.to_string().contains("llama, mistral, qwen2"));
}

/// The ids that llama.cpp generates.
#[test]
fn smollm2_continues_as_llama_cpp_does() {
    let Some(path) = model("SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let opened = PretrainedLanguageModel::<B>::open(path, &Default::default()).unwrap();
    assert!(opened.chat_template.is_some());
    let config = GenerateConfig::new().with_max_new_tokens(8);
    let prompt = vec![504, 3575, 282, 4649, 314];
    let batch = generate_ids(&opened.model, &[prompt.clone(), vec![504, 2988], prompt], &config).unwrap();
    let expected = [7042, 30, 198, 198, 504, 2988, 314, 42];
    assert_eq!(batch.rows[0].ids, expected);
    assert_eq!(batch.rows[2].ids, expected);
}

/// The logits after a prompt whose tokens the model receives in parts of this length.
fn logits_after(model: &CausalLanguageModel<B>, prompt: &[u32], part: usize) -> Tensor<B, 3> {
    let mut cache = model.new_cache(1, prompt.len());
    let mut forward = |ids: &[u32]| {
        let ids = TensorData::new(ids.iter().map(|&id| i64::from(id)).collect(), [1, ids.len()]).unwrap();
        model.forward(TokenInput::new(Tensor::from_data(ids, &Default::default())), &mut cache)
    };
    let start = prompt.len() - (prompt.len() - 1) % part - 1;
    prompt[..start].chunks(part).for_each(|ids| drop(forward(ids)));
    forward(&prompt[start..])
}

/// PyTorch continues the prompt with 504 and the text, from the dequantised weights in `f32`.
#[test]
fn smollm2_answers_a_prompt_at_once_as_token_by_token() {
    let Some(path) = model("SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let question = "What is the capital of France?";
    let answer = |dequantize: bool| {
        let options = OpenOptions::new().with_dequantize(dequantize);
        let opened = PretrainedLanguageModel::<B>::open_with(&path, &options, &Default::default()).unwrap();
        let render = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
        let template = opened.chat_template.as_ref().unwrap();
        let prompt = template.render(&[Message::user(question)], &render).unwrap();
        let prompt = opened.tokenizer.encode(&prompt, false).unwrap();
        assert!(prompt.len() > 16, "{prompt:?}");
        let whole = logits_after(&opened.model, &prompt, prompt.len());
        for part in [1, 8, 9] {
            assert_close(logits_after(&opened.model, &prompt, part), whole.clone(), 0.05);
        }
        assert_eq!(whole.clone().argmax(2).into_data().to_vec::<i64>(), [504]);
        let config = GenerateConfig::new().with_max_new_tokens(16);
        let batch = [prompt.clone(), vec![504, 2988], prompt];
        let batch = generate_ids(&opened.model, &batch, &config).unwrap();
        assert_eq!((batch.rows[0].ids[0], &batch.rows[0].ids), (504, &batch.rows[2].ids));
        let mut chat = opened.chat().unwrap().with_config(config);
        assert_eq!(chat.send(question, |_| ()).unwrap().text, "The capital of France is Paris.");
        whole
    };
    assert_close(answer(false), answer(true), 0.05);
}

/// The perplexity that `transformers` computes from the dequantised weights; see `fixtures/published.py`.
#[test]
fn smollm2_has_the_perplexity_of_transformers() {
    let Some(path) = model("SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let expected = &published::expected()["smollm"];
    let value = expected["perplexity"].as_f64().unwrap();
    let window = expected["window"].as_u64().unwrap() as usize;
    for dequantize in [true, false] {
        let options = OpenOptions::new().with_dequantize(dequantize);
        let opened = PretrainedLanguageModel::<B>::open_with(&path, &options, &Default::default()).unwrap();
        let ids = opened.tokenizer.encode(expected["text"].as_str().unwrap(), true).unwrap();
        assert_eq!(serde_json::json!(ids), expected["ids"]);
        let found = perplexity(&opened.model, &ids, &PerplexityOptions::new(window)).unwrap();
        println!("dequantized {dequantize}: {} and {value}", found.value());
        assert_eq!(Some(found.losses.len() as u64), expected["tokens"].as_u64());
        assert!((found.value() / value - 1.0).abs() < 1e-3);
    }
}
