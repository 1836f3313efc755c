//! BERT ([Devlin et al. 2018](https://arxiv.org/abs/1810.04805)), MiniLM
//! ([Wang et al. 2020](https://arxiv.org/abs/2002.10957)) and sentence embeddings
//! ([Reimers and Gurevych 2019](https://arxiv.org/abs/1908.10084)).

use std::path::Path;

use kiln_backends::Dyn;
use kiln_nn::transformer::FeedForwardActivation;
use kiln_nn::{Config, Embedding, LayerNorm, Linear, Module};
use kiln_store::{DTypePolicy, Weights};
use kiln_tensor::module::{self, AttentionMask, AttentionOptions};
use kiln_tensor::{Backend, Int, Tensor};

use crate::decoding::{join_heads, split_heads};
use crate::error::Result;
use crate::hugging_face::{Fields, check_divisor, check_layers, check_number, parse, unsupported};
use crate::layers::FirstValues;
use crate::llama::activation_named;
use crate::loading::{OpenOptions, load, open_folder, stored_name};

/// Settings of a [`Bert`] model. The fields have the names of Hugging Face's `config.json`.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_models::BertConfig;
/// use kiln_tensor::Tensor;
///
/// let model = BertConfig::new(100, 32, 64, 2, 4).init::<Flex>(&Default::default());
/// let ids = Tensor::from_ints([[1, 2, 3]], &Default::default());
/// assert_eq!(model.forward(ids, None).dims(), [1, 3, 32]);
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct BertConfig {
    /// Number of tokens of the vocabulary.
    pub vocab_size: usize,
    /// Number of features of a token between the layers.
    pub hidden_size: usize,
    /// Number of features of the feed-forward network.
    pub intermediate_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Number of attention heads, a divisor of `hidden_size`.
    pub num_attention_heads: usize,
    /// The maximum number of tokens of a sequence. Default: 512.
    #[config(default = 512)]
    pub max_position_embeddings: usize,
    /// Number of types of tokens: the two texts of a pair. Default: 2.
    #[config(default = 2)]
    pub type_vocab_size: usize,
    /// The activation function of the feed-forward network. Default: exact GELU.
    #[config(default = FeedForwardActivation::Gelu)]
    pub hidden_act: FeedForwardActivation,
    /// The ε of the layer normalisations. Default: 1e-12.
    #[config(default = 1e-12)]
    pub layer_norm_eps: f64,
    /// Whether the model has the layer that pools the first token. Default: true.
    #[config(default = true)]
    pub pooler: bool,
    /// Standard deviation of initial weights. Default: 0.02.
    #[config(default = 0.02)]
    pub initializer_range: f64,
}

/// The encoder BERT. The names of the parameters are those of Hugging Face's `BertModel`.
///
/// | parameter | shape |
/// |---|---|
/// | `embeddings.word_embeddings.weight` | `[vocab_size, hidden_size]` |
/// | `embeddings.position_embeddings.weight` | `[max_position_embeddings, hidden_size]` |
/// | `embeddings.token_type_embeddings.weight` | `[type_vocab_size, hidden_size]` |
/// | `encoder.layer.N.attention.self.{query,key,value}.weight` | `[hidden_size, hidden_size]` |
/// | `encoder.layer.N.attention.output.dense.weight` | `[hidden_size, hidden_size]` |
/// | `encoder.layer.N.intermediate.dense.weight` | `[intermediate_size, hidden_size]` |
/// | `encoder.layer.N.output.dense.weight` | `[hidden_size, intermediate_size]` |
/// | `pooler.dense.weight` | `[hidden_size, hidden_size]` |
///
/// The linear layers have biases, and `LayerNorm` follows the embeddings and each `output.dense`.
#[derive(Module, Clone, Debug)]
pub struct Bert<B: Backend = Dyn> {
    /// The sum of the embeddings of tokens, positions and types.
    pub embeddings: BertEmbeddings<B>,
    /// The layers.
    pub encoder: BertEncoder<B>,
    /// The layer that pools the first token.
    pub pooler: Option<BertPooler<B>>,
    /// The settings.
    #[module(skip)]
    pub config: BertConfig,
}

/// The embeddings of [`Bert`].
#[derive(Module, Clone, Debug)]
pub struct BertEmbeddings<B: Backend = Dyn> {
    /// The embeddings of the tokens.
    pub word_embeddings: Embedding<B>,
    /// The embeddings of the positions.
    pub position_embeddings: Embedding<B>,
    /// The embeddings of the types of tokens.
    pub token_type_embeddings: Embedding<B>,
    /// The normalisation of the sum.
    #[module(rename = "LayerNorm")]
    pub layer_norm: LayerNorm<B>,
}

/// The layers of [`Bert`].
#[derive(Module, Clone, Debug)]
pub struct BertEncoder<B: Backend = Dyn> {
    /// The layers.
    pub layer: Vec<BertLayer<B>>,
}

/// A layer of BERT: attention and a feed-forward network, each with a normalisation after its residual connection.
#[derive(Module, Clone, Debug)]
pub struct BertLayer<B: Backend = Dyn> {
    /// Self-attention with its output layer.
    pub attention: BertAttention<B>,
    /// The first layer of the feed-forward network.
    pub intermediate: BertIntermediate<B>,
    /// The second layer of the feed-forward network, with its normalisation.
    pub output: BertOutput<B>,
}

/// Self-attention of [`Bert`].
#[derive(Module, Clone, Debug)]
pub struct BertAttention<B: Backend = Dyn> {
    /// The projections of queries, keys and values.
    #[module(rename = "self")]
    pub projections: BertSelfAttention<B>,
    /// The output projection, with its normalisation.
    pub output: BertOutput<B>,
}

/// The projections of queries, keys and values.
#[derive(Module, Clone, Debug)]
pub struct BertSelfAttention<B: Backend = Dyn> {
    /// The projection of queries.
    pub query: Linear<B>,
    /// The projection of keys.
    pub key: Linear<B>,
    /// The projection of values.
    pub value: Linear<B>,
    #[module(attribute)]
    heads: usize,
}

/// A linear layer with an activation function.
#[derive(Module, Clone, Debug)]
pub struct BertIntermediate<B: Backend = Dyn> {
    /// The linear layer.
    pub dense: Linear<B>,
    /// The activation function.
    pub activation: FeedForwardActivation,
}

/// A linear layer whose result is added to a residual and normalised.
#[derive(Module, Clone, Debug)]
pub struct BertOutput<B: Backend = Dyn> {
    /// The linear layer.
    pub dense: Linear<B>,
    /// The normalisation of the sum.
    #[module(rename = "LayerNorm")]
    pub layer_norm: LayerNorm<B>,
}

/// The layer that pools the first token: `tanh(dense(x))`.
#[derive(Module, Clone, Debug)]
pub struct BertPooler<B: Backend = Dyn> {
    /// The linear layer.
    pub dense: Linear<B>,
}

impl BertConfig {
    /// Reads the `config.json` of a Hugging Face folder.
    ///
    /// # Errors
    /// When the text is not JSON, a required field is missing, or a setting is not supported.
    pub fn from_hugging_face(json: &str) -> Result<BertConfig> {
        let map = parse(json)?;
        let fields = Fields::new(&map);
        match fields.text("model_type")? {
            Some("bert") | None => {}
            Some(other) => return Err(unsupported("model_type", other, "bert")),
        }
        match fields.text("position_embedding_type")? {
            Some("absolute") | None => {}
            Some(other) => return Err(unsupported("position_embedding_type", other, "absolute")),
        }
        for field in ["is_decoder", "add_cross_attention"] {
            if fields.flag(field)? == Some(true) {
                return Err(unsupported(field, "true", "false"));
            }
        }
        let mut config = BertConfig::new(
            fields.required("vocab_size")?,
            fields.required("hidden_size")?,
            fields.required("intermediate_size")?,
            fields.required("num_hidden_layers")?,
            fields.required("num_attention_heads")?,
        );
        config.max_position_embeddings = fields.integer("max_position_embeddings")?.unwrap_or(512);
        config.type_vocab_size = fields.integer("type_vocab_size")?.unwrap_or(2);
        config.hidden_act = activation_named(fields.text("hidden_act")?.unwrap_or("gelu"))?;
        config.layer_norm_eps = fields.number("layer_norm_eps")?.unwrap_or(1e-12);
        config.check()?;
        Ok(config)
    }

    /// Returns an error unless the heads divide the features, and the epsilon is in its range.
    fn check(&self) -> Result<()> {
        check_divisor("num_attention_heads", self.num_attention_heads, ("hidden_size", self.hidden_size))?;
        check_layers("num_hidden_layers", self.num_hidden_layers)?;
        check_number("layer_norm_eps", self.layer_norm_eps)
    }

    /// Returns a model with random weights on a device.
    ///
    /// # Panics
    /// When `num_attention_heads` is not a divisor of `hidden_size`, or `layer_norm_eps` is negative or above 1.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> Bert<B> {
        if let Err(error) = self.check() {
            panic!("[Bert] {error}");
        }
        Bert::new(self, FirstValues::normal(self.initializer_range), device)
    }
}

impl<B: Backend> Bert<B> {
    fn new(config: &BertConfig, values: FirstValues, device: &B::Device) -> Self {
        let width = config.hidden_size;
        let table = |rows| values.table([rows, width], device);
        let layer = |_| BertLayer::new(config, values, device);
        let pooler = || BertPooler { dense: values.linear([width, width], device) };
        Bert {
            embeddings: BertEmbeddings {
                word_embeddings: table(config.vocab_size),
                position_embeddings: table(config.max_position_embeddings),
                token_type_embeddings: table(config.type_vocab_size),
                layer_norm: values.layer_norm(width, config.layer_norm_eps, device),
            },
            encoder: BertEncoder { layer: (0..config.num_hidden_layers).map(layer).collect() },
            pooler: config.pooler.then(pooler),
            config: config.clone(),
        }
    }

    /// Loads a model from a Hugging Face folder: `config.json` and weights in any format of [`Weights`]. The model has a
    /// pooler if the weights do. The head of pre-training, `cls`, is skipped.
    ///
    /// # Errors
    /// When a file cannot be read, the configuration is not supported, or the weights do not match it.
    pub fn from_pretrained(folder: impl AsRef<Path>, device: &B::Device) -> Result<Self> {
        let (config, weights) = open_folder(folder.as_ref(), BertConfig::from_hugging_face)?;
        Bert::load(&config, &weights, &OpenOptions::new(), device)
    }

    /// Loads a model of these settings from weights. Their names are those of Hugging Face's `BertModel`, with or
    /// without the prefix `bert.`. The model has a pooler if the weights do.
    ///
    /// # Errors
    /// When the weights cannot be read, or do not match the settings.
    pub fn load(
        config: &BertConfig,
        weights: &Weights,
        options: &OpenOptions,
        device: &B::Device,
    ) -> Result<Self> {
        config.check()?;
        let pooler = stored_name(weights, "pooler.dense.weight").is_some();
        let config = config.clone().with_pooler(pooler);
        let dtype = options.dtype_of(weights, "embeddings.word_embeddings.weight")?;
        load(Bert::new(&config, FirstValues::Placeholder(dtype), device), weights, DTypePolicy::Cast)
    }

    /// Computes the features `[batch, length, hidden_size]` of token ids `[batch, length]`. `lengths`, `[batch]`, are
    /// the numbers of tokens of each row before its padding; `None` if no row has padding. All tokens are of type 0.
    ///
    /// # Panics
    /// When the length exceeds `max_position_embeddings`.
    #[track_caller]
    pub fn forward(&self, ids: Tensor<B, 2, Int>, lengths: Option<Tensor<B, 1, Int>>) -> Tensor<B, 3> {
        let types = Tensor::zeros([1, ids.dims()[1]], &ids.device());
        self.forward_types(ids, types, lengths)
    }

    /// Computes [`forward`](Bert::forward) with types of tokens, `[batch, length]` or `[1, length]`.
    ///
    /// # Panics
    /// When the length exceeds `max_position_embeddings`.
    #[track_caller]
    pub fn forward_types(
        &self,
        ids: Tensor<B, 2, Int>,
        types: Tensor<B, 2, Int>,
        lengths: Option<Tensor<B, 1, Int>>,
    ) -> Tensor<B, 3> {
        let [_, length] = ids.dims();
        let max = self.config.max_position_embeddings;
        assert!(length <= max, "[Bert] {length} tokens exceed max_position_embeddings, which is {max}");
        let visible = lengths.map(|lengths| {
            let batch = lengths.dims()[0];
            module::padding_mask(lengths, length).reshape([batch, 1, 1, length])
        });
        let x = self.embeddings.forward(ids, types);
        let mask = visible.map(AttentionMask::Visible);
        self.encoder.layer.iter().fold(x, |x, layer| layer.forward(x, mask.clone()))
    }

    /// Pools the first token of features `[batch, length, hidden_size]`: `[batch, hidden_size]`. `None` if the model has
    /// no pooler.
    #[track_caller]
    pub fn pool(&self, features: Tensor<B, 3>) -> Option<Tensor<B, 2>> {
        let pooler = self.pooler.as_ref()?;
        let [batch, _, width] = features.dims();
        let first = features.narrow(1, 0, 1).reshape([batch, width]);
        Some(pooler.dense.forward(first).tanh())
    }
}

impl<B: Backend> BertEmbeddings<B> {
    #[track_caller]
    fn forward(&self, ids: Tensor<B, 2, Int>, types: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let length = ids.dims()[1];
        let positions = self.position_embeddings.weight.val().narrow(0, 0, length).unsqueeze::<3>();
        let x = self.word_embeddings.forward(ids) + self.token_type_embeddings.forward(types) + positions;
        self.layer_norm.forward(x)
    }
}

impl<B: Backend> BertLayer<B> {
    fn new(config: &BertConfig, values: FirstValues, device: &B::Device) -> Self {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let square = || values.linear([width, width], device);
        let output = |input| BertOutput {
            dense: values.linear([input, width], device),
            layer_norm: values.layer_norm(width, config.layer_norm_eps, device),
        };
        BertLayer {
            attention: BertAttention {
                projections: BertSelfAttention {
                    query: square(),
                    key: square(),
                    value: square(),
                    heads: config.num_attention_heads,
                },
                output: output(width),
            },
            intermediate: BertIntermediate {
                dense: values.linear([width, inner], device),
                activation: config.hidden_act,
            },
            output: output(inner),
        }
    }

    #[track_caller]
    fn forward(&self, x: Tensor<B, 3>, mask: Option<AttentionMask<B>>) -> Tensor<B, 3> {
        let context = self.attention.projections.forward(x.clone(), mask);
        let x = self.attention.output.forward(context, x);
        let wide = self.intermediate.activation.forward(self.intermediate.dense.forward(x.clone()));
        self.output.forward(wide, x)
    }
}

impl<B: Backend> BertSelfAttention<B> {
    #[track_caller]
    fn forward(&self, x: Tensor<B, 3>, mask: Option<AttentionMask<B>>) -> Tensor<B, 3> {
        let heads = |linear: &Linear<B>| split_heads(linear.forward(x.clone()), self.heads);
        let (query, key, value) = (heads(&self.query), heads(&self.key), heads(&self.value));
        join_heads(module::attention(query, key, value, mask, AttentionOptions::default()))
    }
}

impl<B: Backend> BertOutput<B> {
    #[track_caller]
    fn forward(&self, x: Tensor<B, 3>, residual: Tensor<B, 3>) -> Tensor<B, 3> {
        self.layer_norm.forward(self.dense.forward(x) + residual)
    }
}
