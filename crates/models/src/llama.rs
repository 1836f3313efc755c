//! The Llama family: Llama 1 to 3, SmolLM, Qwen 1.5 to 3, Mistral and Gemma 1 and 2, by configuration.
//!
//! Papers: Llama ([Touvron et al. 2023](https://arxiv.org/abs/2302.13971)), Llama 3
//! ([Grattafiori et al. 2024](https://arxiv.org/abs/2407.21783)), Mistral
//! ([Jiang et al. 2023](https://arxiv.org/abs/2310.06825)), Qwen2
//! ([Yang et al. 2024](https://arxiv.org/abs/2407.10671)), Qwen3
//! ([Yang et al. 2025](https://arxiv.org/abs/2505.09388)), Gemma
//! ([Mesnard et al. 2024](https://arxiv.org/abs/2403.08295)), Gemma 2
//! ([Riviere et al. 2024](https://arxiv.org/abs/2408.00118)), SmolLM2
//! ([Allal et al. 2025](https://arxiv.org/abs/2502.02737)).

mod config;

pub(crate) use config::activation_named;
pub use config::{LLAMA_MODEL_TYPES, LlamaConfig};

use std::path::Path;

use kiln_backends::Dyn;
use kiln_nn::transformer::FeedForwardActivation;
use kiln_nn::{Module, Param, Projection, TokenEmbedding};
use kiln_store::{DTypePolicy, Weights};
use kiln_tensor::{Backend, DType, Int, Tensor, module};
use kiln_text::{LanguageModel, TokenInput};

use crate::decoding::{
    CacheShape, DecoderCache, LayerCache, Pass, RotaryTable, Scores, join_heads, positions_of, split_heads,
};
use crate::error::Result;
use crate::layers::{FirstValues, match_ends, match_projection};
use crate::loading::{OpenOptions, load, open_folder};

/// A causal language model of the Llama family. The names of the parameters are those of Hugging Face's files.
///
/// | parameter | shape |
/// |---|---|
/// | `model.embed_tokens.weight` | `[vocab_size, hidden_size]` |
/// | `model.layers.N.input_layernorm.weight` | `[hidden_size]` |
/// | `model.layers.N.self_attn.q_proj.weight` | `[num_attention_heads head_dim, hidden_size]` |
/// | `model.layers.N.self_attn.{k,v}_proj.weight` | `[num_key_value_heads head_dim, hidden_size]` |
/// | `model.layers.N.self_attn.o_proj.weight` | `[hidden_size, num_attention_heads head_dim]` |
/// | `model.layers.N.post_attention_layernorm.weight` | `[hidden_size]` |
/// | `model.layers.N.mlp.{gate,up}_proj.weight` | `[intermediate_size, hidden_size]` |
/// | `model.layers.N.mlp.down_proj.weight` | `[hidden_size, intermediate_size]` |
/// | `model.norm.weight` | `[hidden_size]` |
/// | `lm_head.weight`, unless embeddings are tied | `[vocab_size, hidden_size]` |
///
/// Activations have the dtype of the embeddings. Normalisations compute in `f32`.
#[derive(Module, Clone, Debug)]
pub struct Llama<B: Backend = Dyn> {
    /// The layers without the projection to logits.
    pub model: LlamaModel<B>,
    /// The projection to logits; `None` if it is tied to the embeddings.
    pub lm_head: Option<Projection<B>>,
    /// The settings.
    #[module(skip)]
    pub config: LlamaConfig,
}

/// The layers of a [`Llama`] model.
#[derive(Module, Clone, Debug)]
pub struct LlamaModel<B: Backend = Dyn> {
    /// The embeddings of the tokens.
    pub embed_tokens: TokenEmbedding<B>,
    /// The decoder layers.
    pub layers: Vec<LlamaLayer<B>>,
    /// The normalisation of the last layer's output.
    pub norm: LlamaNorm<B>,
}

/// A decoder layer: attention and a gated feed-forward network, each with a normalisation and a residual connection.
#[derive(Module, Clone, Debug)]
pub struct LlamaLayer<B: Backend = Dyn> {
    /// Self-attention.
    pub self_attn: LlamaAttention<B>,
    /// The feed-forward network.
    pub mlp: LlamaMlp<B>,
    /// The normalisation of the input of attention.
    pub input_layernorm: LlamaNorm<B>,
    /// The normalisation of the input of the feed-forward network; in Gemma 2, of the result of attention.
    pub post_attention_layernorm: LlamaNorm<B>,
    /// The normalisation of the input of the feed-forward network in Gemma 2.
    pub pre_feedforward_layernorm: Option<LlamaNorm<B>>,
    /// The normalisation of the result of the feed-forward network in Gemma 2.
    pub post_feedforward_layernorm: Option<LlamaNorm<B>>,
}

/// Causal self-attention with rotary positions and fewer heads of keys and values than of queries
/// ([Ainslie et al. 2023](https://arxiv.org/abs/2305.13245)).
#[derive(Module, Clone, Debug)]
pub struct LlamaAttention<B: Backend = Dyn> {
    /// The projection of queries.
    pub q_proj: Projection<B>,
    /// The projection of keys.
    pub k_proj: Projection<B>,
    /// The projection of values.
    pub v_proj: Projection<B>,
    /// The output projection.
    pub o_proj: Projection<B>,
    /// The normalisation of each query head, in Qwen3.
    pub q_norm: Option<LlamaNorm<B>>,
    /// The normalisation of each key head, in Qwen3.
    pub k_norm: Option<LlamaNorm<B>>,
    #[module(skip)]
    options: AttentionSettings,
}

/// Settings of the attention of a layer.
#[derive(Clone, Copy, Debug)]
struct AttentionSettings {
    heads: usize,
    kv_heads: usize,
    is_near: bool,
    is_rotary: bool,
    scores: Scores,
}

/// Gated feed-forward network ([Shazeer 2020](https://arxiv.org/abs/2002.05202)): `down(activation(gate(x)) * up(x))`.
#[derive(Module, Clone, Debug)]
pub struct LlamaMlp<B: Backend = Dyn> {
    /// The gate.
    pub gate_proj: Projection<B>,
    /// The values that are gated.
    pub up_proj: Projection<B>,
    /// The output.
    pub down_proj: Projection<B>,
    /// The activation function of the gate.
    pub act_fn: FeedForwardActivation,
}

/// RMS normalisation ([Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467)): `x / √(mean(x²) + ε) * weight`, or
/// `* (1 + weight)` in Gemma.
#[derive(Module, Clone, Debug)]
pub struct LlamaNorm<B: Backend = Dyn> {
    /// `[features]`.
    pub weight: Param<Tensor<B, 1>>,
    /// Added to the mean square for numerical stability.
    pub epsilon: f64,
    /// Whether the factor is `1 + weight`.
    pub adds_one: bool,
}

impl LlamaConfig {
    /// Returns a model with random weights on a device.
    ///
    /// # Panics
    /// When the heads do not divide the features or each other, a list has the wrong length, or `rope_theta` or
    /// `rms_norm_eps` is out of its range.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> Llama<B> {
        if let Err(error) = self.check() {
            panic!("[Llama] {error}");
        }
        Llama::new(self, FirstValues::normal(self.initializer_range), device)
    }
}

impl<B: Backend> Llama<B> {
    pub(crate) fn new(config: &LlamaConfig, values: FirstValues, device: &B::Device) -> Self {
        let table = [config.vocab_size, config.hidden_size];
        let head = || values.projection([config.hidden_size, config.vocab_size], false, device);
        let layer = |index| LlamaLayer::new(config, index, values, device);
        Llama {
            model: LlamaModel {
                embed_tokens: values.table(table, device).into(),
                layers: (0..config.num_hidden_layers).map(layer).collect(),
                norm: LlamaNorm::new(config, config.hidden_size, values, device),
            },
            lm_head: (!config.tie_word_embeddings).then(head),
            config: config.clone(),
        }
    }

    /// Loads a model from a Hugging Face folder: `config.json` and weights in any format of [`Weights`]. Parameters get
    /// the dtype of the embeddings in the file.
    ///
    /// # Errors
    /// When a file cannot be read, the configuration is not supported, or the weights do not match it.
    pub fn from_pretrained(folder: impl AsRef<Path>, device: &B::Device) -> Result<Self> {
        let (config, weights) = open_folder(folder.as_ref(), LlamaConfig::from_hugging_face)?;
        Llama::load(&config, &weights, &OpenOptions::new(), device)
    }

    /// Loads a model of these settings from weights. Their names are those of Hugging Face, with or without the prefix
    /// `model.`.
    ///
    /// # Errors
    /// When the weights cannot be read, or do not match the settings.
    pub fn load(
        config: &LlamaConfig,
        weights: &Weights,
        options: &OpenOptions,
        device: &B::Device,
    ) -> Result<Self> {
        config.check()?;
        let dtype = options.dtype_of(weights, "model.embed_tokens.weight")?;
        let mut model = Llama::new(config, FirstValues::Placeholder(dtype), device);
        if !options.dequantize {
            model.match_blocks(weights, device);
        }
        load(model, weights, DTypePolicy::Cast)
    }

    /// Prepares the layers for the quantised blocks of a file.
    fn match_blocks(&mut self, weights: &Weights, device: &B::Device) {
        let embedding = ("model.embed_tokens", &mut self.model.embed_tokens);
        match_ends(embedding, &mut self.lm_head, weights, device);
        for (index, layer) in self.model.layers.iter_mut().enumerate() {
            let (attention, mlp) = (&mut layer.self_attn, &mut layer.mlp);
            let projections = [
                ("self_attn.q_proj", &mut attention.q_proj),
                ("self_attn.k_proj", &mut attention.k_proj),
                ("self_attn.v_proj", &mut attention.v_proj),
                ("self_attn.o_proj", &mut attention.o_proj),
                ("mlp.gate_proj", &mut mlp.gate_proj),
                ("mlp.up_proj", &mut mlp.up_proj),
                ("mlp.down_proj", &mut mlp.down_proj),
            ];
            for (name, projection) in projections {
                match_projection(projection, &format!("model.layers.{index}.{name}"), weights, device);
            }
        }
    }

    /// Computes the logits `[batch, length, vocab_size]` of the tokens after each of `[batch, length]`.
    ///
    /// # Panics
    /// When the length is 0 or exceeds `max_position_embeddings`.
    #[track_caller]
    pub fn forward(&self, ids: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        self.logits(self.hidden_states(TokenInput::new(ids), None))
    }

    /// Computes the logits of new tokens, `[batch, positions, vocab_size]`, and adds their keys and values to a cache.
    ///
    /// # Panics
    /// When the batch is not that of the cache, or the tokens do not fit in the cache.
    #[track_caller]
    pub fn forward_cache(&self, input: TokenInput<B>, cache: &mut DecoderCache<B>) -> Tensor<B, 3> {
        let logits = input.logits;
        let x = self.hidden_states(input, Some(cache));
        self.logits(positions_of(logits, x))
    }

    /// Returns the output of the last layer before its normalisation, `[batch, length, hidden_size]`.
    #[track_caller]
    fn hidden_states(&self, input: TokenInput<B>, cache: Option<&mut DecoderCache<B>>) -> Tensor<B, 3> {
        let (dims @ [_, length], device) = (input.ids.dims(), input.ids.device());
        // Quantised embeddings are expanded to `f32`.
        let x = self.model.embed_tokens.forward(input.ids).cast(self.model.norm.weight.dtype());
        let x = match self.config.embedding_scale {
            // In the dtype of the embeddings, as Gemma was trained.
            Some(scale) => x * scale,
            None => x,
        };
        let window = self.config.sliding_window;
        match cache {
            Some(cache) => {
                let (pass, layers) = cache.pass(dims, input.padding, window);
                let layers = self.model.layers.iter().zip(layers);
                layers.fold(x, |x, (layer, cache)| layer.forward(x, &pass, Some(cache)))
            }
            None => {
                let rotary = self.rotary_table(length, self.model.norm.weight.dtype(), &device);
                let pass = Pass::whole(length, Some(&rotary), input.padding, window, &device);
                self.model.layers.iter().fold(x, |x, layer| layer.forward(x, &pass, None))
            }
        }
    }

    #[track_caller]
    fn logits(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let x = self.model.norm.forward(x);
        let logits = match &self.lm_head {
            Some(head) => head.forward(x),
            None => self.model.embed_tokens.project(x),
        };
        match self.config.final_logit_softcapping {
            Some(cap) => (logits / cap).tanh() * cap,
            None => logits,
        }
    }

    #[track_caller]
    fn rotary_table(&self, length: usize, dtype: DType, device: &B::Device) -> RotaryTable<B> {
        let max = self.config.max_position_embeddings;
        assert!(length <= max, "[Llama] {length} tokens exceed max_position_embeddings, which is {max}");
        RotaryTable::new(&self.config.rotary(length, device), length, dtype)
    }
}

impl<B: Backend> LanguageModel<B> for Llama<B> {
    type Cache = DecoderCache<B>;

    #[track_caller]
    fn new_cache(&self, batch: usize, max_length: usize) -> DecoderCache<B> {
        let (config, device) = (&self.config, self.device());
        let shape = CacheShape {
            layers: config.num_hidden_layers,
            batch,
            heads: config.num_key_value_heads,
            max_length,
            head_dim: config.head_features(),
        };
        let dtype = self.model.norm.weight.dtype();
        let rotary = self.rotary_table(max_length, dtype, &device);
        DecoderCache::new(shape, dtype, Some(rotary), &device)
    }

    #[track_caller]
    fn forward(&self, input: TokenInput<B>, cache: &mut DecoderCache<B>) -> Tensor<B, 3> {
        self.forward_cache(input, cache)
    }

    fn vocabulary_size(&self) -> usize {
        self.config.vocab_size
    }

    fn max_length(&self) -> usize {
        self.config.max_position_embeddings
    }

    fn device(&self) -> B::Device {
        self.model.norm.weight.device()
    }
}

impl<B: Backend> LlamaLayer<B> {
    fn new(config: &LlamaConfig, index: usize, values: FirstValues, device: &B::Device) -> Self {
        let norm = || LlamaNorm::new(config, config.hidden_size, values, device);
        LlamaLayer {
            self_attn: LlamaAttention::new(config, index, values, device),
            mlp: LlamaMlp::new(config, values, device),
            input_layernorm: norm(),
            post_attention_layernorm: norm(),
            pre_feedforward_layernorm: config.post_norms.then(norm),
            post_feedforward_layernorm: config.post_norms.then(norm),
        }
    }

    #[track_caller]
    fn forward(&self, x: Tensor<B, 3>, pass: &Pass<B>, cache: Option<&mut LayerCache<B>>) -> Tensor<B, 3> {
        let attention = self.self_attn.forward(self.input_layernorm.forward(x.clone()), pass, cache);
        match (&self.pre_feedforward_layernorm, &self.post_feedforward_layernorm) {
            (Some(before), Some(after)) => {
                let x = x + self.post_attention_layernorm.forward(attention);
                x.clone() + after.forward(self.mlp.forward(before.forward(x)))
            }
            (None, _) | (_, None) => {
                let x = x + attention;
                x.clone() + self.mlp.forward(self.post_attention_layernorm.forward(x))
            }
        }
    }
}

impl<B: Backend> LlamaAttention<B> {
    fn new(config: &LlamaConfig, index: usize, values: FirstValues, device: &B::Device) -> Self {
        let (width, features) = (config.hidden_size, config.head_features());
        let (heads, kv_heads) = (config.num_attention_heads, config.num_key_value_heads);
        let input = |heads: usize| values.projection([width, heads * features], config.qkv_bias, device);
        let norm = || LlamaNorm::new(config, features, values, device);
        LlamaAttention {
            q_proj: input(heads),
            k_proj: input(kv_heads),
            v_proj: input(kv_heads),
            o_proj: values.projection([heads * features, width], config.output_bias, device),
            q_norm: config.qk_norm.then(norm),
            k_norm: config.qk_norm.then(norm),
            options: AttentionSettings {
                heads,
                kv_heads,
                is_near: config.is_near(index),
                is_rotary: config.is_rotary(index),
                scores: Scores { scale: config.attention_scale, soft_cap: config.attn_logit_softcapping },
            },
        }
    }

    #[track_caller]
    fn forward(&self, x: Tensor<B, 3>, pass: &Pass<B>, cache: Option<&mut LayerCache<B>>) -> Tensor<B, 3> {
        let AttentionSettings { heads, kv_heads, is_near, is_rotary, scores } = self.options;
        // The products follow each other: engines combine those with a common factor.
        let projections = [(&self.q_proj, heads), (&self.k_proj, kv_heads), (&self.v_proj, kv_heads)];
        let [query, key, value] =
            projections.map(|(projection, heads)| split_heads(projection.forward(x.clone()), heads));
        let positioned = |x, norm: &Option<LlamaNorm<B>>| {
            let x = match norm {
                Some(norm) => norm.forward(x),
                None => x,
            };
            if is_rotary { pass.rotated(x) } else { x }
        };
        let (query, key) = (positioned(query, &self.q_norm), positioned(key, &self.k_norm));
        let context = pass.attend(query, key, value, cache, is_near, scores);
        self.o_proj.forward(join_heads(context))
    }
}

impl<B: Backend> LlamaMlp<B> {
    fn new(config: &LlamaConfig, values: FirstValues, device: &B::Device) -> Self {
        let (width, hidden) = (config.hidden_size, config.intermediate_size);
        let projection = |input, output| values.projection([input, output], config.mlp_bias, device);
        LlamaMlp {
            gate_proj: projection(width, hidden),
            up_proj: projection(width, hidden),
            down_proj: projection(hidden, width),
            act_fn: config.hidden_act,
        }
    }

    #[track_caller]
    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let (gate, up) = (self.gate_proj.forward(x.clone()), self.up_proj.forward(x));
        self.down_proj.forward(self.act_fn.forward(gate) * up)
    }
}

impl<B: Backend> LlamaNorm<B> {
    fn new(config: &LlamaConfig, features: usize, values: FirstValues, device: &B::Device) -> Self {
        let first = if config.norm_adds_one { 0.0 } else { 1.0 };
        let weight = values.constant(features, first, device);
        LlamaNorm { weight, epsilon: config.rms_norm_eps, adds_one: config.norm_adds_one }
    }

    #[track_caller]
    fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let weight = self.weight.val();
        if !self.adds_one {
            return module::rms_norm(x, Some(weight), self.epsilon);
        }
        // 16 bits cannot hold `1 + weight`, so the whole normalisation is in `f32`.
        let dtype = x.dtype();
        module::rms_norm(x.cast(DType::F32), Some(weight.cast(DType::F32) + 1), self.epsilon).cast(dtype)
    }
}
