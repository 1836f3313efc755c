//! The configuration of the Llama family, and its reader for `config.json`.

use kiln_nn::Config;
use kiln_nn::attention::{RotaryEncoding, RotaryEncodingConfig, RotaryScaling};
use kiln_nn::transformer::FeedForwardActivation;
use kiln_tensor::Backend;

use crate::error::Result;
use crate::hugging_face::{
    Fields, check_divisor, check_layers, check_number, invalid, parse, unsupported, wrong,
};

/// The values of `model_type` that [`LlamaConfig::from_hugging_face`] reads.
pub const LLAMA_MODEL_TYPES: [&str; 7] = ["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "smollm3"];

/// Settings of a [`Llama`](super::Llama) model. The fields have the names of Hugging Face's `config.json` where one
/// exists.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_models::LlamaConfig;
/// use kiln_tensor::Tensor;
///
/// let config = LlamaConfig::new(100, 32, 64, 2, 4, 2);
/// let model = config.init::<Flex>(&Default::default());
/// let ids = Tensor::from_ints([[1, 2, 3]], &Default::default());
/// assert_eq!(model.forward(ids).dims(), [1, 3, 100]);
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct LlamaConfig {
    /// Number of tokens of the vocabulary.
    pub vocab_size: usize,
    /// Number of features of a token between the layers.
    pub hidden_size: usize,
    /// Number of features of the feed-forward network.
    pub intermediate_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Number of query heads.
    pub num_attention_heads: usize,
    /// Number of heads of keys and values, a divisor of `num_attention_heads`.
    pub num_key_value_heads: usize,
    /// Number of features of each head. Default: `hidden_size / num_attention_heads`.
    pub head_dim: Option<usize>,
    /// The maximum number of tokens of a sequence. Default: 2,048.
    #[config(default = 2048)]
    pub max_position_embeddings: usize,
    /// The ε of the RMS normalisations. Default: 1e-5.
    #[config(default = 1e-5)]
    pub rms_norm_eps: f64,
    /// The base of the rotary frequencies. Default: 10,000.
    #[config(default = 10_000.0)]
    pub rope_theta: f64,
    /// Scaling of the rotary frequencies for long contexts. Default: none.
    #[config(default = RotaryScaling::None)]
    pub rope_scaling: RotaryScaling,
    /// Divisors of the rotary frequencies, one for each pair of features, as GGUF files of Llama 3.1 have them in place
    /// of a scaling. Default: none.
    pub rope_divisors: Option<Vec<f64>>,
    /// Whether each layer rotates queries and keys. SmolLM3 has layers that do not. Default: all do.
    pub rope_layers: Option<Vec<bool>>,
    /// The activation function of the gate. Default: SiLU.
    #[config(default = FeedForwardActivation::Silu)]
    pub hidden_act: FeedForwardActivation,
    /// Whether the projections of queries, keys and values add biases, as in Qwen2. Default: false.
    #[config(default = false)]
    pub qkv_bias: bool,
    /// Whether the output projection of attention adds a bias. Default: false.
    #[config(default = false)]
    pub output_bias: bool,
    /// Whether the feed-forward network adds biases. Default: false.
    #[config(default = false)]
    pub mlp_bias: bool,
    /// Whether each head of queries and keys is normalised, as in Qwen3. Default: false.
    #[config(default = false)]
    pub qk_norm: bool,
    /// Number of keys that a query attends to, the last of which is its own, as in Mistral. Default: all.
    pub sliding_window: Option<usize>,
    /// Whether each layer has the sliding window. Default: all have it.
    pub sliding_layers: Option<Vec<bool>>,
    /// Whether the logits are computed with the token embeddings, without weights of their own. Default: false.
    #[config(default = false)]
    pub tie_word_embeddings: bool,
    /// Factor of the token embeddings, as in Gemma. Default: none.
    pub embedding_scale: Option<f64>,
    /// Whether normalisations scale by `1 + weight`, as in Gemma's safetensors. Default: false.
    #[config(default = false)]
    pub norm_adds_one: bool,
    /// Whether the results of attention and of the feed-forward network are normalised too, as in Gemma 2.
    /// Default: false.
    #[config(default = false)]
    pub post_norms: bool,
    /// Scale of the scores of attention. Default: `1 / √head_dim`.
    pub attention_scale: Option<f64>,
    /// Scores `s` of attention become `cap tanh(s / cap)`, as in Gemma 2. Default: no cap.
    pub attn_logit_softcapping: Option<f64>,
    /// Logits `x` become `cap tanh(x / cap)`, as in Gemma 2. Default: no cap.
    pub final_logit_softcapping: Option<f64>,
    /// Standard deviation of initial weights. Default: 0.02.
    #[config(default = 0.02)]
    pub initializer_range: f64,
}

impl LlamaConfig {
    /// Reads the `config.json` of a Hugging Face folder. The field `model_type` selects the architecture:
    ///
    /// | `model_type` | models | differences from Llama |
    /// |---|---|---|
    /// | `llama` | Llama 1 to 3.3, SmolLM, SmolLM2, TinyLlama, Vicuna | |
    /// | `mistral` | Mistral, Zephyr | sliding window |
    /// | `qwen2` | Qwen 1.5 to 2.5 | biases of queries, keys and values |
    /// | `qwen3` | Qwen 3 | normalised heads of queries and keys |
    /// | `gemma` | Gemma, CodeGemma | scaled embeddings, `1 + weight` in norms, GeGLU |
    /// | `gemma2` | Gemma 2 | also norms of results, soft caps, alternating sliding windows |
    /// | `smollm3` | SmolLM3 | no rotary encoding in each fourth layer |
    ///
    /// Fields that do not change the results of inference, such as dropout, are ignored.
    ///
    /// # Errors
    /// When the text is not JSON, a required field is missing, or a setting is not supported.
    pub fn from_hugging_face(json: &str) -> Result<LlamaConfig> {
        let map = parse(json)?;
        let fields = Fields::new(&map);
        let family = Family::new(fields.text("model_type")?)?;
        let heads = fields.required("num_attention_heads")?;
        let mut config = LlamaConfig::new(
            fields.required("vocab_size")?,
            fields.required("hidden_size")?,
            fields.required("intermediate_size")?,
            fields.required("num_hidden_layers")?,
            heads,
            fields.integer("num_key_value_heads")?.unwrap_or(heads),
        );
        config.head_dim = fields.integer("head_dim")?;
        config.max_position_embeddings = fields.integer("max_position_embeddings")?.unwrap_or(2048);
        config.rms_norm_eps = fields.number("rms_norm_eps")?.unwrap_or(1e-6);
        config.hidden_act = activation(&fields, family)?;
        config.tie_word_embeddings = fields.flag("tie_word_embeddings")?.unwrap_or(family.ties());
        config.mlp_bias = fields.flag("mlp_bias")?.unwrap_or(false);
        config.initializer_range = fields.number("initializer_range")?.unwrap_or(0.02);
        (config.rope_theta, config.rope_scaling) = rotary(&fields, config.max_position_embeddings)?;
        config.rope_divisors = divisors(&fields)?;
        config.read_attention(&fields, family)?;
        config.read_gemma(&fields, family)?;
        config.check()?;
        Ok(config)
    }

    fn read_attention(&mut self, fields: &Fields<'_>, family: Family) -> Result<()> {
        let bias = fields.flag("attention_bias")?.unwrap_or(false);
        (self.qkv_bias, self.output_bias) = match family {
            Family::Qwen2 => (true, false),
            Family::Llama
            | Family::Mistral
            | Family::Qwen3
            | Family::Gemma
            | Family::Gemma2
            | Family::SmolLm3 => (bias, bias),
        };
        self.qk_norm = family == Family::Qwen3;
        self.rope_layers = match family {
            Family::SmolLm3 => Some(self.rotary_layers(fields)?),
            Family::Llama
            | Family::Mistral
            | Family::Qwen2
            | Family::Qwen3
            | Family::Gemma
            | Family::Gemma2 => None,
        };
        let used = fields.flag("use_sliding_window")?.unwrap_or(family.uses_window());
        self.sliding_window = if used { fields.integer("sliding_window")? } else { None };
        self.sliding_layers = match self.sliding_window {
            Some(_) => self.windowed_layers(fields, family)?,
            None => None,
        };
        Ok(())
    }

    /// Returns the layers of SmolLM3 with a rotary encoding. The list is 1 for them, despite its name.
    fn rotary_layers(&self, fields: &Fields<'_>) -> Result<Vec<bool>> {
        if let Some(list) = fields.integers("no_rope_layers")? {
            return Ok(list.into_iter().map(|rotates| rotates != 0).collect());
        }
        let interval = fields.integer("no_rope_layer_interval")?.unwrap_or(4).max(1);
        Ok((1..=self.num_hidden_layers).map(|layer| !layer.is_multiple_of(interval)).collect())
    }

    /// Returns the layers with a sliding window: a list of them, or the rule of the family.
    fn windowed_layers(&self, fields: &Fields<'_>, family: Family) -> Result<Option<Vec<bool>>> {
        let layers = self.num_hidden_layers;
        if let Some(types) = fields.texts("layer_types")? {
            if types.len() != layers {
                let expected = format!("a list of {layers} layers");
                let found = format!("a list of {} values", types.len());
                return Err(invalid("layer_types", found, expected));
            }
            let is_near = |ty: &str| match ty {
                "sliding_attention" => Ok(true),
                "full_attention" => Ok(false),
                other => Err(unsupported("layer_types", other, "full_attention, sliding_attention")),
            };
            return types.into_iter().map(is_near).collect::<Result<Vec<bool>>>().map(Some);
        }
        match family {
            Family::Gemma2 => Ok(Some((0..layers).map(|layer| layer % 2 == 0).collect())),
            Family::Qwen2 | Family::Qwen3 => {
                let first = fields.integer("max_window_layers")?.unwrap_or(28);
                Ok(Some((0..layers).map(|layer| layer >= first).collect()))
            }
            Family::Llama | Family::Mistral | Family::Gemma | Family::SmolLm3 => Ok(None),
        }
    }

    fn read_gemma(&mut self, fields: &Fields<'_>, family: Family) -> Result<()> {
        if !matches!(family, Family::Gemma | Family::Gemma2) {
            return Ok(());
        }
        self.norm_adds_one = true;
        self.embedding_scale = Some((self.hidden_size as f64).sqrt());
        self.head_dim = self.head_dim.or(Some(256));
        if family == Family::Gemma2 {
            self.post_norms = true;
            let scale = fields.number("query_pre_attn_scalar")?.unwrap_or(256.0);
            self.attention_scale = Some(1.0 / scale.sqrt());
            self.attn_logit_softcapping = fields.number("attn_logit_softcapping")?;
            self.final_logit_softcapping = fields.number("final_logit_softcapping")?;
        }
        Ok(())
    }

    /// Returns an error unless the settings fit each other.
    ///
    /// # Errors
    /// When the heads do not divide the features or each other, or a list has the wrong length.
    pub(crate) fn check(&self) -> Result<()> {
        let (heads, kv_heads) = (self.num_attention_heads, self.num_key_value_heads);
        let fail = |field: &str, found: usize, expected: String| Err(invalid(field, found, expected));
        if heads == 0 || self.head_dim.is_none() {
            check_divisor("num_attention_heads", heads, ("hidden_size", self.hidden_size))?;
        }
        check_divisor("num_key_value_heads", kv_heads, ("num_attention_heads", heads))?;
        let head = self.head_features();
        if head == 0 || !head.is_multiple_of(2) {
            return fail("head_dim", head, "an even number, since features are rotated in pairs".to_owned());
        }
        if self.sliding_window == Some(0) {
            return fail("sliding_window", 0, "at least 1".to_owned());
        }
        let layers = self.num_hidden_layers;
        check_layers("num_hidden_layers", layers)?;
        for (field, list) in [("sliding_layers", &self.sliding_layers), ("rope_layers", &self.rope_layers)] {
            if let Some(list) = list.as_ref().filter(|list| list.len() != layers) {
                return fail(field, list.len(), format!("{layers} values, one for each layer"));
            }
        }
        check_number("rms_norm_eps", self.rms_norm_eps)?;
        check_number("rope_theta", self.rope_theta)?;
        match self.rope_divisors.as_ref().filter(|list| list.len() != head / 2) {
            Some(list) => fail("rope_divisors", list.len(), format!("{} values, half of head_dim", head / 2)),
            None => Ok(()),
        }
    }

    /// Returns the number of features of each head.
    pub fn head_features(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    /// Returns whether queries of a layer attend to the sliding window only.
    pub(crate) fn is_near(&self, layer: usize) -> bool {
        let all = self.sliding_window.is_some();
        self.sliding_layers.as_ref().map_or(all, |layers| all && layers.get(layer).copied().unwrap_or(false))
    }

    /// Returns whether a layer rotates queries and keys.
    pub(crate) fn is_rotary(&self, layer: usize) -> bool {
        self.rope_layers.as_ref().is_none_or(|layers| layers.get(layer).copied().unwrap_or(true))
    }

    /// Returns the rotary encoding of the first `length` positions.
    pub(crate) fn rotary<B: Backend>(&self, length: usize, device: &B::Device) -> RotaryEncoding<B> {
        let features = self.head_features();
        let config = RotaryEncodingConfig::new(length, features)
            .with_theta(self.rope_theta)
            .with_interleaved(false)
            .with_scaling(self.rope_scaling);
        let Some(divisors) = &self.rope_divisors else { return config.init(device) };
        let frequency = |(pair, divisor): (usize, &f64)| {
            self.rope_theta.powf(-2.0 * pair as f64 / features as f64) / divisor
        };
        let frequencies: Vec<f64> = divisors.iter().enumerate().map(frequency).collect();
        config.init_with_frequencies(&frequencies, device)
    }
}

/// The architectures of the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Llama,
    Mistral,
    Qwen2,
    Qwen3,
    Gemma,
    Gemma2,
    SmolLm3,
}

impl Family {
    fn new(model_type: Option<&str>) -> Result<Family> {
        Ok(match model_type {
            Some("llama") => Family::Llama,
            Some("mistral") => Family::Mistral,
            Some("qwen2") => Family::Qwen2,
            Some("qwen3") => Family::Qwen3,
            Some("gemma") => Family::Gemma,
            Some("gemma2") => Family::Gemma2,
            Some("smollm3") => Family::SmolLm3,
            Some(other) => return Err(unsupported("model_type", other, &LLAMA_MODEL_TYPES.join(", "))),
            None => return Err(wrong("model_type", None, &LLAMA_MODEL_TYPES.join(", "))),
        })
    }

    /// Whether embeddings are tied where the file does not say so.
    fn ties(self) -> bool {
        match self {
            Family::Gemma | Family::Gemma2 | Family::SmolLm3 => true,
            Family::Llama | Family::Mistral | Family::Qwen2 | Family::Qwen3 => false,
        }
    }

    /// Whether the sliding window is used where the file does not say so.
    fn uses_window(self) -> bool {
        match self {
            Family::Mistral | Family::Gemma2 => true,
            Family::Llama | Family::Qwen2 | Family::Qwen3 | Family::Gemma | Family::SmolLm3 => false,
        }
    }
}

/// Old files of Gemma name exact GELU, but its models were trained with the approximation.
fn activation(fields: &Fields<'_>, family: Family) -> Result<FeedForwardActivation> {
    let name = fields.text("hidden_act")?;
    if !matches!(family, Family::Gemma | Family::Gemma2) {
        return activation_named(name.unwrap_or("silu"));
    }
    let name = match fields.text("hidden_activation")? {
        Some(name) => name,
        None => name.filter(|&name| name != "gelu").unwrap_or("gelu_pytorch_tanh"),
    };
    activation_named(name)
}

/// Returns the activation function of Hugging Face's name.
pub(crate) fn activation_named(name: &str) -> Result<FeedForwardActivation> {
    Ok(match name {
        "silu" | "swish" => FeedForwardActivation::Silu,
        "gelu" => FeedForwardActivation::Gelu,
        "gelu_new" | "gelu_pytorch_tanh" => FeedForwardActivation::GeluApproximate,
        "relu" => FeedForwardActivation::Relu,
        "relu2" => FeedForwardActivation::ReluSquared,
        "tanh" => FeedForwardActivation::Tanh,
        other => {
            let supported = "silu, gelu, gelu_new, gelu_pytorch_tanh, relu, relu2, tanh";
            return Err(unsupported("hidden_act", other, supported));
        }
    })
}

/// Returns base and scaling of the rotary frequencies. Since `transformers` 5 both are in `rope_parameters`.
fn rotary(fields: &Fields<'_>, max_positions: usize) -> Result<(f64, RotaryScaling)> {
    let settings = match fields.object("rope_parameters")? {
        Some(settings) => Some(settings),
        None => fields.object("rope_scaling")?,
    };
    let own = fields.number("rope_theta")?;
    let partial = fields.number("partial_rotary_factor")?;
    let Some(settings) = settings else {
        whole_heads(partial)?;
        return Ok((own.unwrap_or(10_000.0), RotaryScaling::None));
    };
    whole_heads(partial.or(settings.number("partial_rotary_factor")?))?;
    let theta = settings.number("rope_theta")?.or(own).unwrap_or(10_000.0);
    let original = match settings.integer("original_max_position_embeddings")? {
        Some(length) => length,
        None => fields.integer("original_max_position_embeddings")?.unwrap_or(max_positions),
    };
    Ok((theta, scaling(&settings, original)?))
}

/// Returns an error if only a part of each head is rotated.
fn whole_heads(partial_rotary_factor: Option<f64>) -> Result<()> {
    match partial_rotary_factor {
        Some(factor) if factor != 1.0 => Err(unsupported("partial_rotary_factor", &factor.to_string(), "1")),
        Some(_) | None => Ok(()),
    }
}

/// Returns the divisors of frequencies, which configurations of GGUF files have in place of a scaling.
fn divisors(fields: &Fields<'_>) -> Result<Option<Vec<f64>>> {
    match fields.object("rope_scaling")? {
        Some(settings) if settings.text("rope_type")? == Some("factors") => settings.numbers("factors"),
        Some(_) | None => Ok(None),
    }
}

fn scaling(settings: &Fields<'_>, original_max: usize) -> Result<RotaryScaling> {
    let kind = match settings.text("rope_type")? {
        Some(kind) => Some(kind),
        None => settings.text("type")?,
    };
    let number = |field: &str| settings.number(field);
    let required = |field: &str| number(field)?.ok_or_else(|| wrong(field, None, "a number"));
    Ok(match kind.unwrap_or("default") {
        // The divisors of `factors` are a field of their own.
        "default" | "factors" => RotaryScaling::None,
        "linear" => RotaryScaling::Linear { factor: required("factor")? },
        "llama3" => {
            let (low, high) = (required("low_freq_factor")?, required("high_freq_factor")?);
            if low >= high {
                let expected = format!("a number above low_freq_factor = {low}");
                return Err(invalid("high_freq_factor", high, expected));
            }
            let factor = required("factor")?;
            RotaryScaling::Llama3 { factor, low_freq_factor: low, high_freq_factor: high, original_max }
        }
        "yarn" => {
            let factor = required("factor")?;
            RotaryScaling::Yarn {
                factor,
                original_max,
                beta_fast: number("beta_fast")?.unwrap_or(32.0),
                beta_slow: number("beta_slow")?.unwrap_or(1.0),
                attention_factor: yarn_attention_factor(settings, factor)?,
            }
        }
        other => return Err(unsupported("rope_type", other, "default, linear, llama3, yarn")),
    })
}

/// The factor of cosines and sines: given, or `m(mscale) / m(mscale_all_dim)` with `m(s) = 0.1 s ln(factor) + 1`.
fn yarn_attention_factor(settings: &Fields<'_>, factor: f64) -> Result<f64> {
    if let Some(given) = settings.number("attention_factor")? {
        return Ok(given);
    }
    let magnitude = |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 };
    Ok(match (settings.number("mscale")?, settings.number("mscale_all_dim")?) {
        (Some(scale), Some(all)) if scale != 0.0 && all != 0.0 => magnitude(scale) / magnitude(all),
        _ => magnitude(1.0),
    })
}
