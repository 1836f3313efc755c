//! The configuration of a model in a GGUF file, in the form of Hugging Face's `config.json`.

use kiln_tensor::DType;
use serde_json::{Map, Value, json};

use super::names::{self, Architecture};
use super::rope::{ROPE_FACTORS, scaling_of_factors};
use super::{GgufFile, Metadata, MetadataValue};
use crate::error::{Result, StoreError};

/// Layers between two with full attention in Gemma 3, which GGUF does not store.
const GEMMA3_PATTERN: u64 = 6;

/// The numbers of layers of the largest Gemma 2 and 3. Their queries are scaled by the model's width per head.
const GEMMA2_27B_LAYERS: u64 = 46;
const GEMMA3_27B_LAYERS: u64 = 62;

/// Returns the configuration of the model with the keys and values of Hugging Face's `config.json`.
///
/// The architectures of [`hugging_face_name`](super::hugging_face_name) are known. Keys:
///
/// * all: `architectures`, `model_type`, `vocab_size`, `tie_word_embeddings`, `bos_token_id`, `eos_token_id`,
///   `pad_token_id`;
/// * Llama, SmolLM3, Qwen, Gemma: `hidden_size`, `num_hidden_layers`, `num_attention_heads`, `num_key_value_heads`,
///   `head_dim`, `intermediate_size`, `max_position_embeddings`, `rms_norm_eps`, `rope_theta`, `rope_scaling`,
///   `hidden_act`, `attention_bias`, `mlp_bias`, `sliding_window`; Gemma: `attn_logit_softcapping`,
///   `final_logit_softcapping`, `query_pre_attn_scalar`, `sliding_window_pattern`, `rope_local_base_freq`;
/// * GPT-2: `n_embd`, `n_layer`, `n_head`, `n_inner`, `n_positions`, `layer_norm_epsilon`, `activation_function`;
/// * BERT: `hidden_size`, `num_hidden_layers`, `num_attention_heads`, `intermediate_size`, `max_position_embeddings`,
///   `type_vocab_size`, `layer_norm_eps`, `hidden_act`.
///
/// Keys whose value the file does not determine are left out, except defaults of the architecture. Embeddings are tied if
/// the file has no `output.weight`. The factors `rope_freqs.weight` become a `rope_scaling` of the type `llama3`; factors
/// that Llama 3 does not have become the type `factors` with a list `factors`.
///
/// # Errors
/// When the architecture is unknown or a required key is missing; the error names it.
pub fn config(file: &GgufFile) -> Result<Value> {
    let name = file.architecture().ok_or_else(|| missing(file, "general.architecture"))?;
    let Some(architecture) = names::architecture(name) else {
        let problem = format!(
            "the architecture `{}` is not supported; supported: {}",
            name.escape_debug(),
            names::supported()
        );
        return Err(StoreError::malformed(file.path(), 0, problem));
    };
    let model = Model { file, metadata: file.metadata(), architecture };
    model.check_numbers()?;
    let mut config = Map::new();
    config.insert("architectures".to_owned(), json!([architecture.class]));
    config.insert("model_type".to_owned(), json!(architecture.model_types[0]));
    match architecture.gguf {
        "gpt2" => model.gpt2(&mut config)?,
        "bert" => model.bert(&mut config)?,
        _ => model.llama_family(&mut config)?,
    }
    model.vocabulary(&mut config)?;
    Ok(Value::Object(config))
}

/// A file, with the prefix of its keys.
struct Model<'a> {
    file: &'a GgufFile,
    metadata: &'a Metadata,
    architecture: &'static Architecture,
}

impl Model<'_> {
    /// Refuses numbers that JSON does not have: they would become `null`, and so the default.
    fn check_numbers(&self) -> Result<()> {
        let is_finite = |value: &MetadataValue| value.as_f64().is_none_or(f64::is_finite);
        match self.metadata.iter().find(|(_, value)| !is_finite(value)) {
            Some((key, value)) => {
                let problem = format!("`{}` is {value}, expected a finite number", key.escape_debug());
                Err(StoreError::malformed(self.file.path(), 0, problem))
            }
            None => Ok(()),
        }
    }

    fn llama_family(&self, config: &mut Map<String, Value>) -> Result<()> {
        let (width, heads) = (self.required("embedding_length")?, self.required("attention.head_count")?);
        let head_dim = self.head_dim(&width, &heads);
        let theta = self.float("rope.freq_base").unwrap_or(10_000.0);
        let mut set = |key: &str, value: Value| {
            config.insert(key.to_owned(), value);
        };
        set("num_key_value_heads", self.integers("attention.head_count_kv").unwrap_or(heads.clone()));
        set("hidden_size", width);
        set("num_attention_heads", heads);
        set("num_hidden_layers", self.required("block_count")?);
        set("intermediate_size", self.required("feed_forward_length")?);
        set("max_position_embeddings", self.required("context_length")?);
        set("rms_norm_eps", json!(self.required_float("attention.layer_norm_rms_epsilon")?));
        set("rope_theta", json!(theta));
        set("rope_scaling", self.rope_scaling(theta)?);
        set("attention_bias", json!(self.has("blk.0.attn_q.bias")));
        set("mlp_bias", json!(self.has("blk.0.ffn_up.bias")));
        set("sliding_window", self.integers("attention.sliding_window").unwrap_or(Value::Null));
        if let Some(head_dim) = head_dim {
            set("head_dim", json!(head_dim));
        }
        if let (Some(rotated), Some(head_dim)) = (self.integer("rope.dimension_count"), head_dim)
            && rotated != head_dim
        {
            set("partial_rotary_factor", json!(rotated as f64 / head_dim as f64));
        }
        match self.architecture.gguf {
            "gemma" | "gemma2" | "gemma3" => self.gemma(config, head_dim),
            _ => {
                config.insert("hidden_act".to_owned(), json!("silu"));
            }
        }
        Ok(())
    }

    fn gemma(&self, config: &mut Map<String, Value>, head_dim: Option<u64>) {
        let mut set = |key: &str, value: Value| {
            config.insert(key.to_owned(), value);
        };
        set("hidden_act", json!("gelu_pytorch_tanh"));
        set("hidden_activation", json!("gelu_pytorch_tanh"));
        for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
            set(key, self.float(key).map_or(Value::Null, |cap| json!(cap)));
        }
        let generation = self.architecture.gguf;
        let size = ModelSize {
            layers: self.integer("block_count"),
            width: self.integer("embedding_length"),
            heads: self.integer("attention.head_count"),
            head_dim,
        };
        if let Some(scalar) = query_scalar(generation, size) {
            set("query_pre_attn_scalar", json!(scalar));
        }
        if generation == "gemma3" {
            let pattern = self.integer("attention.sliding_window_pattern").unwrap_or(GEMMA3_PATTERN);
            set("sliding_window_pattern", json!(pattern));
            set("rope_local_base_freq", json!(self.float("rope.freq_base_swa").unwrap_or(10_000.0)));
        }
    }

    fn gpt2(&self, config: &mut Map<String, Value>) -> Result<()> {
        let mut set = |key: &str, value: Value| {
            config.insert(key.to_owned(), value);
        };
        set("n_embd", self.required("embedding_length")?);
        set("n_layer", self.required("block_count")?);
        set("n_head", self.required("attention.head_count")?);
        set("n_positions", self.required("context_length")?);
        set("n_inner", self.required("feed_forward_length")?);
        set("layer_norm_epsilon", json!(self.required_float("attention.layer_norm_epsilon")?));
        set("activation_function", json!("gelu_new"));
        Ok(())
    }

    fn bert(&self, config: &mut Map<String, Value>) -> Result<()> {
        let mut set = |key: &str, value: Value| {
            config.insert(key.to_owned(), value);
        };
        set("hidden_size", self.required("embedding_length")?);
        set("num_hidden_layers", self.required("block_count")?);
        set("num_attention_heads", self.required("attention.head_count")?);
        set("intermediate_size", self.required("feed_forward_length")?);
        set("max_position_embeddings", self.required("context_length")?);
        set("layer_norm_eps", json!(self.required_float("attention.layer_norm_epsilon")?));
        set("hidden_act", json!("gelu"));
        let types = self.metadata.u64("tokenizer.ggml.token_type_count");
        let rows = || self.rows("token_types.weight");
        if let Some(types) = types.or_else(rows) {
            set("type_vocab_size", json!(types));
        }
        Ok(())
    }

    fn vocabulary(&self, config: &mut Map<String, Value>) -> Result<()> {
        let tokens = || Some(self.metadata.array("tokenizer.ggml.tokens")?.len() as u64);
        let size = self.integer("vocab_size").or_else(|| self.rows("token_embd.weight")).or_else(tokens);
        let size = size.ok_or_else(|| missing(self.file, &self.key("vocab_size")))?;
        config.insert("vocab_size".to_owned(), json!(size));
        config.insert("tie_word_embeddings".to_owned(), json!(!self.has("output.weight")));
        for (key, stored) in [
            ("bos_token_id", "tokenizer.ggml.bos_token_id"),
            ("eos_token_id", "tokenizer.ggml.eos_token_id"),
            ("pad_token_id", "tokenizer.ggml.padding_token_id"),
        ] {
            if let Some(id) = self.metadata.u64(stored) {
                config.insert(key.to_owned(), json!(id));
            }
        }
        Ok(())
    }

    /// `rope_scaling` of the metadata or of the tensor of factors; null if frequencies are not scaled.
    fn rope_scaling(&self, theta: f64) -> Result<Value> {
        if let Some(info) = self.file.info(ROPE_FACTORS)
            && info.dtype == Some(DType::F32)
            && info.blocks.is_none()
        {
            let data = self.file.contents(ROPE_FACTORS)?.into_data();
            let data = data.map_err(|error| StoreError::malformed(self.file.path(), 0, error.to_string()))?;
            return Ok(scaling_of_factors(&data.to_vec::<f32>(), theta));
        }
        let kind = self.metadata.str(&self.key("rope.scaling.type"));
        let Some(kind) = kind.filter(|&kind| kind != "none") else { return Ok(Value::Null) };
        let mut scaling = Map::new();
        scaling.insert("rope_type".to_owned(), json!(kind));
        for (key, stored) in [
            ("factor", "rope.scaling.factor"),
            ("attention_factor", "rope.scaling.attn_factor"),
            ("beta_fast", "rope.scaling.yarn_beta_fast"),
            ("beta_slow", "rope.scaling.yarn_beta_slow"),
        ] {
            if let Some(value) = self.float(stored) {
                scaling.insert(key.to_owned(), json!(value));
            }
        }
        if let Some(context) = self.integer("rope.scaling.original_context_length") {
            scaling.insert("original_max_position_embeddings".to_owned(), json!(context));
        }
        Ok(Value::Object(scaling))
    }

    fn head_dim(&self, width: &Value, heads: &Value) -> Option<u64> {
        self.integer("attention.key_length").or_else(|| width.as_u64()?.checked_div(heads.as_u64()?))
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture.gguf)
    }

    fn integer(&self, key: &str) -> Option<u64> {
        self.metadata.u64(&self.key(key))
    }

    fn float(&self, key: &str) -> Option<f64> {
        self.metadata.f64(&self.key(key))
    }

    /// An integer of the model, or an array with one for each layer. An array of equal integers is one integer.
    fn integers(&self, key: &str) -> Option<Value> {
        let value = self.metadata.get(&self.key(key))?;
        if let MetadataValue::Array(array) = value {
            let layers = array.integers()?;
            return match layers.split_first() {
                Some((first, rest)) if rest.iter().all(|other| other == first) => Some(json!(first)),
                Some(_) => Some(json!(layers)),
                None => None,
            };
        }
        value.as_u64().map(|integer| json!(integer))
    }

    fn required(&self, key: &str) -> Result<Value> {
        self.integers(key).ok_or_else(|| missing(self.file, &self.key(key)))
    }

    fn required_float(&self, key: &str) -> Result<f64> {
        self.float(key).ok_or_else(|| missing(self.file, &self.key(key)))
    }

    fn has(&self, tensor: &str) -> bool {
        self.file.info(tensor).is_some()
    }

    fn rows(&self, tensor: &str) -> Option<u64> {
        self.file.info(tensor)?.shape.first().map(|&rows| rows as u64)
    }
}

/// The size of a model; `None` for numbers that a file does not contain.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelSize {
    pub(super) layers: Option<u64>,
    pub(super) width: Option<u64>,
    pub(super) heads: Option<u64>,
    pub(super) head_dim: Option<u64>,
}

/// Returns the `query_pre_attn_scalar` of an architecture in GGUF: the scores of Gemma 2 and 3 are divided by its square
/// root. GGUF has no key for it, so llama.cpp derives it from the size of the model: the length of a head, or the width
/// per head of the largest models. `None` of other architectures, and if the size is not known.
pub(super) fn query_scalar(architecture: &str, size: ModelSize) -> Option<u64> {
    let largest = match architecture {
        "gemma2" => GEMMA2_27B_LAYERS,
        "gemma3" => GEMMA3_27B_LAYERS,
        _ => return None,
    };
    if size.layers == Some(largest) { size.width?.checked_div(size.heads?) } else { size.head_dim }
}

fn missing(file: &GgufFile, key: &str) -> StoreError {
    let problem = match file.metadata().get(key) {
        Some(value) => {
            format!("the metadata key `{key}` has the value `{value}`, which is not of the expected type")
        }
        None => format!("the metadata has no key `{key}`"),
    };
    StoreError::malformed(file.path(), 0, problem)
}
