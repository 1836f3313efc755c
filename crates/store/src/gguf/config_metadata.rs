//! The metadata of a GGUF file from Hugging Face's `config.json`.

use std::path::Path;

use serde_json::Value;

use super::config::{ModelSize, query_scalar};
use super::metadata::Metadata;
use super::names;
use super::rope::{head_dim, rope_scaling, rope_theta, rope_type};
use crate::error::{Result, StoreError};

/// Mean pooling in `bert.pooling_type`, that of sentence transformers.
const MEAN_POOLING: u32 = 1;

/// Returns the metadata of a GGUF file for a model with this `config.json`: the inverse of [`config`](super::config).
///
/// Add the tokenizer by [`tokenizer_metadata`](super::tokenizer_metadata). A `rope_scaling` of the type `llama3` is a
/// tensor in GGUF, [`rope_factors`](super::rope_factors); [`export`](super::export) adds it.
///
/// ```
/// use kiln_store::gguf::metadata_from_config;
///
/// let config = serde_json::json!({
///     "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
///     "num_key_value_heads": 3, "intermediate_size": 1536, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
///     "rope_theta": 100000, "vocab_size": 49152,
/// });
/// let metadata = metadata_from_config(&config)?;
/// assert_eq!(metadata.str("general.architecture"), Some("llama"));
/// assert_eq!(metadata.u64("llama.attention.head_count_kv"), Some(3));
/// # Ok::<(), kiln_store::StoreError>(())
/// ```
///
/// # Errors
/// When `model_type` is unknown, a required key is missing, or the model has an option that GGUF cannot express.
pub fn metadata_from_config(config: &Value) -> Result<Metadata> {
    let Some(model_type) = config.get("model_type").and_then(Value::as_str) else {
        return Err(problem("has no `model_type`".to_owned()));
    };
    // Models of text and images have the configuration of the language model inside.
    let inner = config.get("text_config").filter(|inner| inner.is_object()).unwrap_or(config);
    let Some(architecture) = names::architecture_of(model_type) else {
        let problem_text =
            format!("`model_type` `{model_type}` is not supported; supported: {}", names::supported());
        return Err(problem(problem_text));
    };
    let mut writer = Writer { config: inner, architecture, metadata: Metadata::new() };
    writer.metadata.insert("general.architecture", architecture);
    writer.metadata.insert("general.type", "model");
    if let Some(name) = config.get("_name_or_path").and_then(Value::as_str).filter(|name| !name.is_empty()) {
        writer.metadata.insert("general.name", name);
    }
    match architecture {
        "gpt2" => writer.gpt2()?,
        "bert" => writer.bert()?,
        _ => writer.llama_family()?,
    }
    Ok(writer.metadata)
}

/// Metadata that is being collected.
struct Writer<'a> {
    config: &'a Value,
    architecture: &'static str,
    metadata: Metadata,
}

impl Writer<'_> {
    fn llama_family(&mut self) -> Result<()> {
        let heads = self.required("num_attention_heads")?;
        let head_dim =
            head_dim(self.config).ok_or_else(|| problem("has no `head_dim` or `hidden_size`".to_owned()))?;
        let head_dim = u32::try_from(head_dim).map_err(|_| problem(format!("`head_dim` is {head_dim}")))?;
        let (blocks, context) =
            (self.required("num_hidden_layers")?, self.required("max_position_embeddings")?);
        self.set("block_count", blocks);
        self.set("context_length", context);
        let (width, inner) = (self.required("hidden_size")?, self.required("intermediate_size")?);
        self.set("embedding_length", width);
        self.set("feed_forward_length", inner);
        self.set("attention.head_count", heads);
        self.set("attention.head_count_kv", self.integer("num_key_value_heads")?.unwrap_or(heads));
        let epsilon = self.required_float("rms_norm_eps")?;
        self.metadata.insert(self.key("attention.layer_norm_rms_epsilon"), epsilon);
        self.set("attention.key_length", head_dim);
        self.set("attention.value_length", head_dim);
        let partial = self.float("partial_rotary_factor").unwrap_or(1.0);
        self.set("rope.dimension_count", (f64::from(head_dim) * partial) as u32);
        self.metadata.insert(self.key("rope.freq_base"), rope_theta(self.config) as f32);
        let vocabulary = self.required("vocab_size")?;
        self.set("vocab_size", vocabulary);
        self.rope_scaling()?;
        self.gemma()
    }

    /// Keys that only some Gemma models have, and the sliding window.
    fn gemma(&mut self) -> Result<()> {
        // Qwen 2 lists a window that it does not use.
        let used = self.config.get("use_sliding_window").and_then(Value::as_bool).unwrap_or(true);
        if let Some(window) = self.integer("sliding_window")?.filter(|_| used) {
            self.set("attention.sliding_window", window);
        }
        for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
            if let Some(cap) = self.float(key) {
                self.metadata.insert(self.key(key), cap as f32);
            }
        }
        self.check_query_scale()
    }

    /// Refuses a scale of the scores that readers of GGUF would not derive.
    fn check_query_scale(&self) -> Result<()> {
        let Some(scalar) = self.float("query_pre_attn_scalar") else { return Ok(()) };
        let integer = |key: &str| self.config.get(key).and_then(Value::as_u64);
        let size = ModelSize {
            layers: integer("num_hidden_layers"),
            width: integer("hidden_size"),
            heads: integer("num_attention_heads"),
            head_dim: head_dim(self.config),
        };
        let derived = query_scalar(self.architecture, size);
        match derived.is_none_or(|derived| derived as f64 == scalar) {
            true => Ok(()),
            false => Err(problem(format!("`query_pre_attn_scalar` is {scalar}, which GGUF cannot store"))),
        }
    }

    fn rope_scaling(&mut self) -> Result<()> {
        let Some(scaling) = rope_scaling(self.config) else { return Ok(()) };
        let number = |key: &str| scaling.get(key).and_then(Value::as_f64);
        match rope_type(scaling).unwrap_or("default") {
            // `llama3` is a tensor.
            "default" | "llama3" => Ok(()),
            kind @ ("linear" | "yarn") => {
                self.metadata.insert(self.key("rope.scaling.type"), kind);
                for (key, stored) in [
                    ("factor", "rope.scaling.factor"),
                    ("attention_factor", "rope.scaling.attn_factor"),
                    ("beta_fast", "rope.scaling.yarn_beta_fast"),
                    ("beta_slow", "rope.scaling.yarn_beta_slow"),
                ] {
                    if let Some(value) = number(key) {
                        self.metadata.insert(self.key(stored), value as f32);
                    }
                }
                if let Some(context) = scaling.get("original_max_position_embeddings").and_then(Value::as_u64)
                {
                    let context = u32::try_from(context);
                    let context = context
                        .map_err(|_| problem("`original_max_position_embeddings` exceeds 32 bits".into()))?;
                    self.set("rope.scaling.original_context_length", context);
                }
                Ok(())
            }
            kind => Err(problem(format!(
                "`rope_scaling` of the type `{kind}` cannot be written to GGUF; supported: linear, yarn, llama3"
            ))),
        }
    }

    fn gpt2(&mut self) -> Result<()> {
        let (width, context) = (self.required("n_embd")?, self.required("n_positions")?);
        let (blocks, heads) = (self.required("n_layer")?, self.required("n_head")?);
        self.set("block_count", blocks);
        self.set("context_length", context);
        self.set("embedding_length", width);
        self.set("feed_forward_length", self.integer("n_inner")?.unwrap_or(width.saturating_mul(4)));
        self.set("attention.head_count", heads);
        let epsilon = self.required_float("layer_norm_epsilon")?;
        self.metadata.insert(self.key("attention.layer_norm_epsilon"), epsilon);
        Ok(())
    }

    fn bert(&mut self) -> Result<()> {
        for (key, stored) in [
            ("num_hidden_layers", "block_count"),
            ("max_position_embeddings", "context_length"),
            ("hidden_size", "embedding_length"),
            ("intermediate_size", "feed_forward_length"),
            ("num_attention_heads", "attention.head_count"),
        ] {
            let value = self.required(key)?;
            self.set(stored, value);
        }
        let epsilon = self.required_float("layer_norm_eps")?;
        self.metadata.insert(self.key("attention.layer_norm_epsilon"), epsilon);
        self.metadata.insert(self.key("attention.causal"), false);
        self.set("pooling_type", MEAN_POOLING);
        if let Some(types) = self.integer("type_vocab_size")? {
            self.metadata.insert("tokenizer.ggml.token_type_count", types);
        }
        Ok(())
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn set(&mut self, key: &str, value: u32) {
        self.metadata.insert(self.key(key), value);
    }

    fn integer(&self, key: &str) -> Result<Option<u32>> {
        match self.config.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64().and_then(|value| u32::try_from(value).ok()) {
                Some(value) => Ok(Some(value)),
                None => Err(problem(format!("`{key}` is {value}, but should be an integer of 32 bits"))),
            },
        }
    }

    fn required(&self, key: &str) -> Result<u32> {
        self.integer(key)?.ok_or_else(|| problem(format!("has no `{key}`")))
    }

    fn float(&self, key: &str) -> Option<f64> {
        self.config.get(key).and_then(Value::as_f64)
    }

    fn required_float(&self, key: &str) -> Result<f32> {
        match self.float(key) {
            Some(value) => Ok(value as f32),
            None => Err(problem(format!("has no number `{key}`"))),
        }
    }
}

fn problem(problem: String) -> StoreError {
    StoreError::json(Path::new("config.json"), problem)
}
