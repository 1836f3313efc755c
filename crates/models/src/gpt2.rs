//! GPT-2 ([Radford et al. 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf)).

use std::path::Path;

use kiln_backends::Dyn;
use kiln_nn::transformer::FeedForwardActivation;
use kiln_nn::{Config, Embedding, LayerNorm, Module, Projection, TokenEmbedding};
use kiln_store::{DTypePolicy, Weights};
use kiln_tensor::{Backend, Int, Tensor};
use kiln_text::{LanguageModel, TokenInput};

use crate::decoding::{
    CacheShape, DecoderCache, LayerCache, Pass, Scores, join_heads, positions_of, split_heads,
};
use crate::error::Result;
use crate::hugging_face::{Fields, check_divisor, check_layers, check_number, parse, unsupported};
use crate::layers::{FirstValues, match_ends, match_projection};
use crate::llama::activation_named;
use crate::loading::{OpenOptions, load, open_folder, stored_name};

/// Settings of a [`Gpt2`] model. The fields have the names of Hugging Face's `config.json`.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_models::Gpt2Config;
/// use kiln_tensor::Tensor;
///
/// let model = Gpt2Config::new(100, 32, 2, 4).init::<Flex>(&Default::default());
/// let ids = Tensor::from_ints([[1, 2, 3]], &Default::default());
/// assert_eq!(model.forward(ids).dims(), [1, 3, 100]);
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct Gpt2Config {
    /// Number of tokens of the vocabulary.
    pub vocab_size: usize,
    /// Number of features of a token between the layers.
    pub n_embd: usize,
    /// Number of layers.
    pub n_layer: usize,
    /// Number of attention heads.
    pub n_head: usize,
    /// The maximum number of tokens of a sequence. Default: 1,024.
    #[config(default = 1024)]
    pub n_positions: usize,
    /// Number of features of the feed-forward network. Default: `4 n_embd`.
    pub n_inner: Option<usize>,
    /// The activation function of the feed-forward network. Default: the tanh approximation of GELU.
    #[config(default = FeedForwardActivation::GeluApproximate)]
    pub activation_function: FeedForwardActivation,
    /// The ε of the layer normalisations. Default: 1e-5.
    #[config(default = 1e-5)]
    pub layer_norm_epsilon: f64,
    /// Whether the logits are computed with the token embeddings. Default: true.
    #[config(default = true)]
    pub tie_word_embeddings: bool,
    /// Standard deviation of initial weights. Default: 0.02.
    #[config(default = 0.02)]
    pub initializer_range: f64,
}

/// The language model GPT-2: learned positions, layer normalisation before each part of a layer, and embeddings that
/// also compute the logits. The names of the parameters are those of Hugging Face's files.
///
/// | parameter | shape |
/// |---|---|
/// | `transformer.wte.weight` | `[vocab_size, n_embd]` |
/// | `transformer.wpe.weight` | `[n_positions, n_embd]` |
/// | `transformer.h.N.{ln_1,ln_2}.{weight,bias}` | `[n_embd]` |
/// | `transformer.h.N.attn.c_attn.weight` | `[3 n_embd, n_embd]` |
/// | `transformer.h.N.attn.c_proj.weight` | `[n_embd, n_embd]` |
/// | `transformer.h.N.mlp.c_fc.weight` | `[n_inner, n_embd]` |
/// | `transformer.h.N.mlp.c_proj.weight` | `[n_embd, n_inner]` |
/// | `transformer.ln_f.{weight,bias}` | `[n_embd]` |
///
/// Hugging Face's files contain the four weights of a layer transposed, `[in, out]`; loading transposes them. Those of a
/// GGUF file have the order of the table, so they stay in quantised blocks.
#[derive(Module, Clone, Debug)]
pub struct Gpt2<B: Backend = Dyn> {
    /// The layers without the projection to logits.
    pub transformer: Gpt2Model<B>,
    /// The projection to logits; `None` if it is tied to the embeddings.
    pub lm_head: Option<Projection<B>>,
    /// The settings.
    #[module(skip)]
    pub config: Gpt2Config,
}

/// The layers of a [`Gpt2`] model.
#[derive(Module, Clone, Debug)]
pub struct Gpt2Model<B: Backend = Dyn> {
    /// The embeddings of the tokens.
    pub wte: TokenEmbedding<B>,
    /// The embeddings of the positions.
    pub wpe: Embedding<B>,
    /// The layers.
    pub h: Vec<Gpt2Layer<B>>,
    /// The normalisation of the last layer's output.
    pub ln_f: LayerNorm<B>,
}

/// A layer of GPT-2: attention and a feed-forward network, each with a normalisation and a residual connection.
#[derive(Module, Clone, Debug)]
pub struct Gpt2Layer<B: Backend = Dyn> {
    /// The normalisation of the input of attention.
    pub ln_1: LayerNorm<B>,
    /// Self-attention.
    pub attn: Gpt2Attention<B>,
    /// The normalisation of the input of the feed-forward network.
    pub ln_2: LayerNorm<B>,
    /// The feed-forward network.
    pub mlp: Gpt2Mlp<B>,
}

/// Causal self-attention with one projection for queries, keys and values.
#[derive(Module, Clone, Debug)]
pub struct Gpt2Attention<B: Backend = Dyn> {
    /// The projection of queries, keys and values, in this order.
    pub c_attn: Projection<B>,
    /// The output projection.
    pub c_proj: Projection<B>,
    #[module(attribute)]
    heads: usize,
}

/// The feed-forward network of GPT-2.
#[derive(Module, Clone, Debug)]
pub struct Gpt2Mlp<B: Backend = Dyn> {
    /// The first layer.
    pub c_fc: Projection<B>,
    /// The second layer.
    pub c_proj: Projection<B>,
    /// The activation function between the layers.
    pub act: FeedForwardActivation,
}

impl Gpt2Config {
    /// Reads the `config.json` of a Hugging Face folder.
    ///
    /// # Errors
    /// When the text is not JSON, a required field is missing, or a setting is not supported.
    pub fn from_hugging_face(json: &str) -> Result<Gpt2Config> {
        let map = parse(json)?;
        let fields = Fields::new(&map);
        match fields.text("model_type")? {
            Some("gpt2") | None => {}
            Some(other) => return Err(unsupported("model_type", other, "gpt2")),
        }
        for field in ["scale_attn_by_inverse_layer_idx", "add_cross_attention"] {
            if fields.flag(field)? == Some(true) {
                return Err(unsupported(field, "true", "false"));
            }
        }
        if fields.flag("scale_attn_weights")? == Some(false) {
            return Err(unsupported("scale_attn_weights", "false", "true"));
        }
        let mut config = Gpt2Config::new(
            fields.required("vocab_size")?,
            fields.required("n_embd")?,
            fields.required("n_layer")?,
            fields.required("n_head")?,
        );
        config.n_positions = fields.integer("n_positions")?.unwrap_or(1024);
        config.n_inner = fields.integer("n_inner")?;
        config.activation_function =
            activation_named(fields.text("activation_function")?.unwrap_or("gelu_new"))?;
        config.layer_norm_epsilon = fields.number("layer_norm_epsilon")?.unwrap_or(1e-5);
        config.tie_word_embeddings = fields.flag("tie_word_embeddings")?.unwrap_or(true);
        config.check()?;
        Ok(config)
    }

    /// Returns an error unless the heads divide the features, and the epsilon is in its range.
    fn check(&self) -> Result<()> {
        check_divisor("n_head", self.n_head, ("n_embd", self.n_embd))?;
        check_layers("n_layer", self.n_layer)?;
        check_number("layer_norm_epsilon", self.layer_norm_epsilon)
    }

    /// Returns a model with random weights on a device.
    ///
    /// # Panics
    /// When `n_head` is not a divisor of `n_embd`, or `layer_norm_epsilon` is negative or above 1.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> Gpt2<B> {
        if let Err(error) = self.check() {
            panic!("[Gpt2] {error}");
        }
        Gpt2::new(self, FirstValues::normal(self.initializer_range), WeightOrder::OutIn, device)
    }
}

/// The order of the axes of the weights of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeightOrder {
    /// `[out, in]`: of linear layers.
    OutIn,
    /// `[in, out]`: of Hugging Face's files.
    InOut,
}

impl WeightOrder {
    /// The order in a file, by the projection of queries, keys and values: it has three outputs for each input.
    fn of(config: &Gpt2Config, weights: &Weights) -> WeightOrder {
        let name = stored_name(weights, "transformer.h.0.attn.c_attn.weight");
        let shape = name.and_then(|name| weights.info(name)).map(|info| info.shape);
        match shape.is_some_and(|shape| *shape == [3 * config.n_embd, config.n_embd]) {
            true => WeightOrder::OutIn,
            false => WeightOrder::InOut,
        }
    }
}

impl<B: Backend> Gpt2<B> {
    pub(crate) fn new(
        config: &Gpt2Config,
        values: FirstValues,
        order: WeightOrder,
        device: &B::Device,
    ) -> Self {
        let width = config.n_embd;
        let head = || values.projection([width, config.vocab_size], false, device);
        let layer = |_| Gpt2Layer::new(config, values, order, device);
        Gpt2 {
            transformer: Gpt2Model {
                wte: values.table([config.vocab_size, width], device).into(),
                wpe: values.table([config.n_positions, width], device),
                h: (0..config.n_layer).map(layer).collect(),
                ln_f: values.layer_norm(width, config.layer_norm_epsilon, device),
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
        let (config, weights) = open_folder(folder.as_ref(), Gpt2Config::from_hugging_face)?;
        Gpt2::load(&config, &weights, &OpenOptions::new(), device)
    }

    /// Loads a model of these settings from weights. Their names are those of Hugging Face, with or without the prefix
    /// `transformer.`.
    ///
    /// The weights of the layers are `[in, out]` as in Hugging Face's files, or `[out, in]` as in this module; the shape of
    /// the first `c_attn.weight` tells. Quantised blocks of `[out, in]` stay as they are, and others are dequantised.
    ///
    /// # Errors
    /// When the weights cannot be read, or do not match the settings.
    pub fn load(
        config: &Gpt2Config,
        weights: &Weights,
        options: &OpenOptions,
        device: &B::Device,
    ) -> Result<Self> {
        config.check()?;
        let dtype = options.dtype_of(weights, "transformer.wte.weight")?;
        let order = WeightOrder::of(config, weights);
        let mut model = Gpt2::new(config, FirstValues::Placeholder(dtype), order, device);
        if !options.dequantize {
            model.match_blocks(order, weights, device);
        }
        let mut model = load(model, weights, DTypePolicy::Cast)?;
        if order == WeightOrder::InOut {
            let layers = model.transformer.h.iter_mut();
            layers.flat_map(Gpt2Layer::projections).for_each(|(_, projection)| transpose(projection));
        }
        Ok(model)
    }

    /// Prepares the layers for the quantised blocks of a file. Blocks cannot be transposed.
    fn match_blocks(&mut self, order: WeightOrder, weights: &Weights, device: &B::Device) {
        let embedding = ("transformer.wte", &mut self.transformer.wte);
        match_ends(embedding, &mut self.lm_head, weights, device);
        if order == WeightOrder::InOut {
            return;
        }
        for (index, layer) in self.transformer.h.iter_mut().enumerate() {
            for (name, projection) in layer.projections() {
                match_projection(projection, &format!("transformer.h.{index}.{name}"), weights, device);
            }
        }
    }

    /// Computes the logits `[batch, length, vocab_size]` of the tokens after each of `[batch, length]`.
    ///
    /// # Panics
    /// When the length is 0 or exceeds `n_positions`.
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

    /// Returns the output of the last layer before its normalisation, `[batch, length, n_embd]`.
    #[track_caller]
    fn hidden_states(&self, input: TokenInput<B>, cache: Option<&mut DecoderCache<B>>) -> Tensor<B, 3> {
        let (dims @ [_, length], device) = (input.ids.dims(), input.ids.device());
        let x = self.transformer.wte.forward(input.ids).cast(self.transformer.wpe.weight.dtype());
        let padding = input.padding;
        match cache {
            Some(cache) => {
                let (pass, layers) = cache.pass(dims, padding.clone(), None);
                let x = self.positioned(x, &pass, padding, &device);
                let layers = self.transformer.h.iter().zip(layers);
                layers.fold(x, |x, (layer, cache)| layer.forward(x, &pass, Some(cache)))
            }
            None => {
                self.check_length(length);
                let pass = Pass::whole(length, None, padding.clone(), None, &device);
                let x = self.positioned(x, &pass, padding, &device);
                self.transformer.h.iter().fold(x, |x, layer| layer.forward(x, &pass, None))
            }
        }
    }

    /// Adds the embeddings of the positions.
    #[track_caller]
    fn positioned(
        &self,
        x: Tensor<B, 3>,
        pass: &Pass<B>,
        padding: Option<Tensor<B, 1, Int>>,
        device: &B::Device,
    ) -> Tensor<B, 3> {
        let length = x.dims()[1];
        x + self.transformer.wpe.forward(pass.positions(length, padding, device))
    }

    #[track_caller]
    fn logits(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let x = self.transformer.ln_f.forward(x);
        match &self.lm_head {
            Some(head) => head.forward(x),
            None => self.transformer.wte.project(x),
        }
    }

    #[track_caller]
    fn check_length(&self, length: usize) {
        let max = self.config.n_positions;
        assert!(length <= max, "[Gpt2] {length} tokens exceed n_positions, which is {max}");
    }
}

/// Swaps the axes of a weight.
fn transpose<B: Backend>(projection: &mut Projection<B>) {
    if let Projection::Float(linear) = projection {
        let weight = linear.weight.val();
        linear.weight.set(weight.transpose());
    }
}

impl<B: Backend> LanguageModel<B> for Gpt2<B> {
    type Cache = DecoderCache<B>;

    #[track_caller]
    fn new_cache(&self, batch: usize, max_length: usize) -> DecoderCache<B> {
        self.check_length(max_length);
        let (config, device) = (&self.config, self.device());
        let shape = CacheShape {
            layers: config.n_layer,
            batch,
            heads: config.n_head,
            max_length,
            head_dim: config.n_embd / config.n_head,
        };
        DecoderCache::new(shape, self.transformer.wpe.weight.dtype(), None, &device)
    }

    #[track_caller]
    fn forward(&self, input: TokenInput<B>, cache: &mut DecoderCache<B>) -> Tensor<B, 3> {
        self.forward_cache(input, cache)
    }

    fn vocabulary_size(&self) -> usize {
        self.config.vocab_size
    }

    fn max_length(&self) -> usize {
        self.config.n_positions
    }

    fn device(&self) -> B::Device {
        self.transformer.wpe.weight.device()
    }
}

impl<B: Backend> Gpt2Layer<B> {
    fn new(config: &Gpt2Config, values: FirstValues, order: WeightOrder, device: &B::Device) -> Self {
        let width = config.n_embd;
        let inner = config.n_inner.unwrap_or(4 * width);
        let norm = || values.layer_norm(width, config.layer_norm_epsilon, device);
        let projection = |input: usize, output: usize| {
            let mut projection = values.projection([input, output], true, device);
            if order == WeightOrder::InOut {
                transpose(&mut projection);
            }
            projection
        };
        Gpt2Layer {
            ln_1: norm(),
            attn: Gpt2Attention {
                c_attn: projection(width, 3 * width),
                c_proj: projection(width, width),
                heads: config.n_head,
            },
            ln_2: norm(),
            mlp: Gpt2Mlp {
                c_fc: projection(width, inner),
                c_proj: projection(inner, width),
                act: config.activation_function,
            },
        }
    }

    /// The linear layers, with their names in the layer.
    fn projections(&mut self) -> [(&'static str, &mut Projection<B>); 4] {
        let (attention, mlp) = (&mut self.attn, &mut self.mlp);
        [
            ("attn.c_attn", &mut attention.c_attn),
            ("attn.c_proj", &mut attention.c_proj),
            ("mlp.c_fc", &mut mlp.c_fc),
            ("mlp.c_proj", &mut mlp.c_proj),
        ]
    }

    #[track_caller]
    fn forward(&self, x: Tensor<B, 3>, pass: &Pass<B>, cache: Option<&mut LayerCache<B>>) -> Tensor<B, 3> {
        let x = x.clone() + self.attn.forward(self.ln_1.forward(x), pass, cache);
        x.clone() + self.mlp.forward(self.ln_2.forward(x))
    }
}

impl<B: Backend> Gpt2Attention<B> {
    #[track_caller]
    fn forward(&self, x: Tensor<B, 3>, pass: &Pass<B>, cache: Option<&mut LayerCache<B>>) -> Tensor<B, 3> {
        let width = x.dims()[2];
        let all = self.c_attn.forward(x);
        let part = |index: usize| split_heads(all.clone().narrow(2, index * width, width), self.heads);
        let scores = Scores { scale: None, soft_cap: None };
        let context = pass.attend(part(0), part(1), part(2), cache, false, scores);
        self.c_proj.forward(join_heads(context))
    }
}

impl<B: Backend> Gpt2Mlp<B> {
    #[track_caller]
    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.c_proj.forward(self.act.forward(self.c_fc.forward(x)))
    }
}
