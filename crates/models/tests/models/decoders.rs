//! Language models: whole sequences, tokens through a cache, and batches with padding.

use kiln_models::{BertConfig, Gpt2, Gpt2Config, Llama, LlamaConfig, cast};
use kiln_tensor::{DType, Tensor};
use kiln_text::{GenerationCache, LanguageModel, LogitsOf, TokenInput};

use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::models::B;
use crate::models::fixture::{Expected, assert_close, expected, folder};

const TOLERANCE: f64 = 1e-4;

fn llama(name: &str) -> Llama<B> {
    cast(Llama::from_pretrained(folder(name), &Default::default()).unwrap(), DType::F32)
}

/// Tests a model against the logits of `transformers`.
fn check<M: LanguageModel<B>>(
    name: &str,
    model: &M,
    forward: impl Fn(&M, Tensor<B, 2, kiln_tensor::Int>) -> Tensor<B, 3>,
) {
    println!("{name}");
    let expected = expected(name);
    let (ids, logits) = (expected.ints::<2>("ids"), expected.floats::<3>("logits"));
    assert_close(forward(model, ids.clone()), logits.clone(), TOLERANCE);
    for split in [&[8][..], &[5, 1, 1, 1], &[1; 8], &[2, 3, 3], &[3, 1, 4]] {
        assert_close(by_parts(model, ids.clone(), split), logits.clone(), TOLERANCE);
    }
    check_padding(model, &expected);
    check_reuse(model, &expected);
}

/// Feeds a sequence to a cache in parts of these lengths.
fn by_parts<M: LanguageModel<B>>(
    model: &M,
    ids: Tensor<B, 2, kiln_tensor::Int>,
    split: &[usize],
) -> Tensor<B, 3> {
    let mut cache = model.new_cache(ids.dims()[0], 12);
    let mut start = 0;
    let part = |&length: &usize| {
        let part = ids.clone().narrow(1, start, length);
        start += length;
        model.forward(TokenInput::new(part).with_logits(LogitsOf::All), &mut cache)
    };
    Tensor::cat(split.iter().map(part).collect(), 1)
}

/// A row with padding has the logits of the row without padding, in the prompt and in later tokens.
fn check_padding<M: LanguageModel<B>>(model: &M, expected: &Expected) {
    let (ids, padding) = (expected.ints::<2>("padded_ids"), expected.ints::<1>("padding"));
    let [batch, length] = ids.dims();
    for prompt in [length, length - 2] {
        let mut cache = model.new_cache(batch, length);
        let input = |start, length| {
            TokenInput::new(ids.clone().narrow(1, start, length)).with_padding(Some(padding.clone()))
        };
        let mut logits = model.forward(input(0, prompt), &mut cache);
        for position in prompt..length {
            logits = model.forward(input(position, 1), &mut cache);
        }
        assert_eq!(logits.dims()[1], 1);
        assert_close(logits.squeeze_dim(1), expected.floats::<2>("padded_logits"), TOLERANCE);
    }
}

/// A cache that was truncated or reset has the logits of a new one.
fn check_reuse<M: LanguageModel<B>>(model: &M, expected: &Expected) {
    let (ids, logits) = (expected.ints::<2>("ids"), expected.floats::<3>("logits"));
    let input =
        |start, length| TokenInput::new(ids.clone().narrow(1, start, length)).with_logits(LogitsOf::All);
    let mut cache = model.new_cache(ids.dims()[0], 12);
    model.forward(input(3, 5), &mut cache);
    cache.reset();
    assert_close(model.forward(input(0, 6), &mut cache), logits.clone().narrow(1, 0, 6), TOLERANCE);
    assert!(cache.truncate(4));
    assert_close(model.forward(input(4, 1), &mut cache), logits.narrow(1, 4, 1), TOLERANCE);
}

#[test]
fn llama_family() {
    let names = [
        "llama",
        "llama3",
        "llama_yarn",
        "llama_linear",
        "mistral",
        "qwen2",
        "qwen3",
        "gemma",
        "gemma2",
        "smollm3",
    ];
    for name in names {
        check(name, &llama(name), |model, ids| model.forward(ids));
    }
}

#[test]
fn gpt2() {
    let model = Gpt2::from_pretrained(folder("gpt2"), &Default::default()).unwrap();
    check("gpt2", &cast(model, DType::F32), |model, ids| model.forward(ids));
}

/// The number of keys that attention covers doubles as the cache fills.
#[test]
fn cache_beyond_the_first_256_keys() {
    let config =
        LlamaConfig::new(20, 8, 12, 2, 2, 1).with_max_position_embeddings(600).with_initializer_range(0.3);
    let model = config.init::<B>(&Default::default());
    let ids: Vec<i64> = (0..520).map(|i| (i * 7 + i / 5) % 20).collect();
    let ids = Tensor::from_ints(kiln_tensor::TensorData::new(ids, [1, 520]).unwrap(), &Default::default());
    let whole = model.forward(ids.clone());
    let mut cache = model.new_cache(1, 560);
    model.forward_cache(TokenInput::new(ids.clone().narrow(1, 0, 254)), &mut cache);
    for position in 254..520 {
        let logits = model.forward_cache(TokenInput::new(ids.clone().narrow(1, position, 1)), &mut cache);
        if position % 5 == 0 || (254..260).contains(&position) || (510..516).contains(&position) {
            assert_close(logits, whole.clone().narrow(1, position, 1), TOLERANCE);
        }
    }
    assert_eq!(cache.len(), 520);
}

#[test]
fn settings_that_are_not_supported() {
    let json = |more: &str| {
        format!(
            r#"{{"model_type": "llama", "vocab_size": 8, "hidden_size": 8, "intermediate_size": 8,
                "num_hidden_layers": 1, "num_attention_heads": 2 {more}}}"#
        )
    };
    let error = |more: &str| LlamaConfig::from_hugging_face(&json(more)).unwrap_err().to_string();
    LlamaConfig::from_hugging_face(&json("")).unwrap();
    assert!(error(r#", "model_type": "falcon""#).contains("llama, mistral"));
    assert!(error(r#", "rope_scaling": {"type": "dynamic", "factor": 2}"#).contains("supported are default"));
    assert!(error(r#", "num_attention_heads": 3"#).contains("divisor of hidden_size = 8"));
    assert!(error(r#", "num_key_value_heads": 0"#).contains("num_key_value_heads"));
    assert!(error(r#", "hidden_act": "mish""#).contains("mish"));
    assert!(error(r#", "vocab_size": 1e30"#).contains("integer"));
    assert!(error(r#", "num_hidden_layers": 16000000"#).contains("at most 1024"));
    assert!(error(r#", "partial_rotary_factor": 0.5"#).contains("0.5"));
    assert!(LlamaConfig::from_hugging_face("[]").unwrap_err().to_string().contains("an object"));
    assert!(LlamaConfig::from_hugging_face("{").unwrap_err().to_string().contains("JSON"));
}

/// Numbers that give NaN, divide by zero, or would be allocated are refused by name.
#[test]
fn numbers_out_of_range() {
    let llama = json!({"model_type": "llama", "vocab_size": 8, "hidden_size": 8, "intermediate_size": 8,
        "num_hidden_layers": 1, "num_attention_heads": 2});
    let gpt2 = json!({"model_type": "gpt2", "vocab_size": 8, "n_embd": 8, "n_layer": 1, "n_head": 2});
    let bert = json!({"model_type": "bert", "vocab_size": 8, "hidden_size": 8, "intermediate_size": 8,
        "num_hidden_layers": 1, "num_attention_heads": 2});
    let read = |config: &Value| match config["model_type"].as_str() {
        Some("gpt2") => Gpt2Config::from_hugging_face(&config.to_string()).map(drop),
        Some("bert") => BertConfig::from_hugging_face(&config.to_string()).map(drop),
        _ => LlamaConfig::from_hugging_face(&config.to_string()).map(drop),
    };
    let sizes = [json!(0), json!(-1), json!((1 << 24) + 1), json!(1e30), json!("8")];
    let epsilons = [json!(-1), json!(-1e-300), json!(1.5), json!("nan")];
    let bases = [json!(0), json!(-1), json!(0.5), json!(1e300)];
    let layers = [json!(0), json!(1025), json!(-1)];
    let heads = [json!(0), json!(3), json!(-1)];
    let cases = [
        (&llama, "vocab_size", &sizes[..]),
        (&llama, "hidden_size", &sizes),
        (&llama, "intermediate_size", &sizes),
        (&llama, "max_position_embeddings", &sizes),
        (&llama, "num_hidden_layers", &layers),
        (&llama, "num_attention_heads", &heads),
        (&llama, "num_key_value_heads", &heads),
        (&llama, "rms_norm_eps", &epsilons),
        (&llama, "rope_theta", &bases),
        (&gpt2, "vocab_size", &sizes),
        (&gpt2, "n_embd", &sizes),
        (&gpt2, "n_positions", &sizes),
        (&gpt2, "n_inner", &sizes),
        (&gpt2, "n_layer", &layers),
        (&gpt2, "n_head", &heads),
        (&gpt2, "layer_norm_epsilon", &epsilons),
        (&bert, "vocab_size", &sizes),
        (&bert, "hidden_size", &sizes),
        (&bert, "max_position_embeddings", &sizes),
        (&bert, "type_vocab_size", &sizes),
        (&bert, "num_hidden_layers", &layers),
        (&bert, "num_attention_heads", &heads),
        (&bert, "layer_norm_eps", &epsilons),
    ];
    for (config, field, values) in cases {
        read(config).unwrap();
        for value in values {
            let mut config = config.clone();
            config[field] = value.clone();
            let message = read(&config).unwrap_err().to_string();
            assert!(
                message.contains(&format!("`{field}` is {}", value.to_string().replace('"', "`"))),
                "{message}"
            );
            assert!(message.contains("expected"), "{message}");
        }
    }
}

#[test]
fn numbers_out_of_range_in_code() {
    let json = json!({"model_type": "llama", "vocab_size": 8, "hidden_size": 8, "intermediate_size": 8,
        "num_hidden_layers": 1, "num_attention_heads": 2});
    let valid = LlamaConfig::from_hugging_face(&json.to_string()).unwrap();
    let message = |change: fn(&mut LlamaConfig)| {
        let mut config = valid.clone();
        change(&mut config);
        let built = catch_unwind(AssertUnwindSafe(|| drop(config.init::<B>(&Default::default()))));
        *built.unwrap_err().downcast::<String>().unwrap()
    };
    assert!(
        message(|config| config.rope_theta = 0.0).contains("`rope_theta` is 0, expected a number from 1")
    );
    assert!(message(|config| config.rms_norm_eps = -1.0).contains("`rms_norm_eps` is -1"));
    assert!(message(|config| config.rms_norm_eps = f64::NAN).contains("`rms_norm_eps` is NaN"));
}

#[test]
fn scalings_out_of_range() {
    let error = |scaling: Value| {
        let config = json!({"model_type": "llama", "vocab_size": 8, "hidden_size": 8, "intermediate_size": 8,
            "num_hidden_layers": 1, "num_attention_heads": 2, "rope_scaling": scaling});
        LlamaConfig::from_hugging_face(&config.to_string()).unwrap_err().to_string()
    };
    for factor in [json!(0), json!(-1), json!(1e300)] {
        for kind in ["linear", "yarn", "llama3"] {
            let scaling =
                json!({"rope_type": kind, "factor": factor, "low_freq_factor": 1, "high_freq_factor": 4});
            assert!(error(scaling).contains("`factor` is"), "{kind}");
        }
    }
    let bands = |low: f64, high: f64| json!({"rope_type": "llama3", "factor": 8, "low_freq_factor": low, "high_freq_factor": high});
    assert!(error(bands(0.0, 4.0)).contains("`low_freq_factor` is 0.0"));
    assert!(
        error(bands(4.0, 4.0))
            .contains("`high_freq_factor` is 4, expected a number above low_freq_factor = 4")
    );
    let yarn = json!({"rope_type": "yarn", "factor": 4, "beta_fast": 0});
    assert!(error(yarn).contains("`beta_fast` is 0"));
    assert!(error(json!({"rope_type": "factors", "factors": [1.0, 0.0]})).contains("`factors`"));
    let original = json!({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 0});
    assert!(error(original).contains("`original_max_position_embeddings` is 0"));
}
