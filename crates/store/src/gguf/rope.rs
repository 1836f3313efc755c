//! Frequency factors of Llama 3's rotary embeddings.
//!
//! `config.json` describes them by five numbers, GGUF stores the factors as the tensor `rope_freqs.weight`.

use kiln_tensor::TensorData;
use serde_json::{Value, json};

/// The name of the tensor of factors in GGUF.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// The parameters of Llama 3.1, 3.2 and 3.3 besides `factor`.
const LOW_FREQUENCY_FACTOR: f64 = 1.0;
const HIGH_FREQUENCY_FACTOR: f64 = 4.0;
const ORIGINAL_CONTEXT: f64 = 8192.0;

/// The scaling of frequencies in Llama 3.
#[derive(Clone, Copy, Debug)]
struct Llama3 {
    factor: f64,
    low: f64,
    high: f64,
    context: f64,
}

impl Llama3 {
    /// The divisor of the frequency of each pair of elements. Frequencies with a wavelength above `context / low` are
    /// divided by `factor`, those below `context / high` are unchanged, with a smooth transition between. Source: Llama
    /// 3.1, <https://arxiv.org/abs/2407.21783>, and its reference code.
    fn factors(&self, theta: f64, head_dim: usize) -> Vec<f32> {
        let factor = |pair: usize| {
            let wavelength = 2.0 * std::f64::consts::PI * theta.powf(2.0 * pair as f64 / head_dim as f64);
            if wavelength < self.context / self.high {
                return 1.0;
            }
            if wavelength > self.context / self.low {
                return self.factor as f32;
            }
            let smooth = (self.context / wavelength - self.low) / (self.high - self.low);
            (1.0 / ((1.0 - smooth) / self.factor + smooth)) as f32
        };
        (0..head_dim / 2).map(factor).collect()
    }
}

/// Returns the tensor `rope_freqs.weight` of a GGUF file for a `config.json` of Hugging Face: `f32` of shape
/// `[head_dim / 2]`. `None` unless its `rope_scaling` has the type `llama3`.
///
/// ```
/// use kiln_store::gguf::rope_factors;
///
/// let scaling = serde_json::json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
///     "high_freq_factor": 4.0, "original_max_position_embeddings": 8192});
/// let config = serde_json::json!({"head_dim": 128, "rope_theta": 500000.0, "rope_scaling": scaling});
/// let factors = rope_factors(&config).unwrap().to_vec::<f32>();
/// assert_eq!((factors[0], factors[63]), (1.0, 8.0));
/// ```
pub fn rope_factors(config: &Value) -> Option<TensorData> {
    let scaling = rope_scaling(config)?;
    if rope_type(scaling)? != "llama3" {
        return None;
    }
    let number = |key: &str, default: f64| scaling.get(key).and_then(Value::as_f64).unwrap_or(default);
    let scale = Llama3 {
        factor: number("factor", 8.0),
        low: number("low_freq_factor", LOW_FREQUENCY_FACTOR),
        high: number("high_freq_factor", HIGH_FREQUENCY_FACTOR),
        context: number("original_max_position_embeddings", ORIGINAL_CONTEXT),
    };
    Some(scale.factors(rope_theta(config), usize::try_from(head_dim(config)?).ok()?).into())
}

/// Returns the `rope_scaling` of `config.json` for a tensor of factors: that of Llama 3 if it has its shape, otherwise the
/// factors themselves.
pub(super) fn scaling_of_factors(factors: &[f32], theta: f64) -> Value {
    let factor = factors.iter().copied().fold(1.0f32, f32::max);
    let scale = Llama3 {
        factor: factor.into(),
        low: LOW_FREQUENCY_FACTOR,
        high: HIGH_FREQUENCY_FACTOR,
        context: ORIGINAL_CONTEXT,
    };
    let expected = scale.factors(theta, 2 * factors.len());
    if expected.iter().zip(factors).all(|(a, b)| (a - b).abs() <= 1e-4 * a.abs()) {
        return json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": LOW_FREQUENCY_FACTOR,
            "high_freq_factor": HIGH_FREQUENCY_FACTOR,
            "original_max_position_embeddings": ORIGINAL_CONTEXT as u64,
        });
    }
    json!({ "rope_type": "factors", "factors": factors })
}

/// The parameters of scaling, in the key of Transformers 4 or 5. Of a model with several kinds of attention, those of full
/// attention.
pub(super) fn rope_scaling(config: &Value) -> Option<&Value> {
    let object = |key: &str| config.get(key).filter(|scaling| scaling.is_object());
    let scaling = object("rope_scaling").or_else(|| object("rope_parameters"))?;
    Some(scaling.get("full_attention").filter(|inner| inner.is_object()).unwrap_or(scaling))
}

pub(super) fn rope_type(scaling: &Value) -> Option<&str> {
    ["rope_type", "type"].into_iter().find_map(|key| scaling.get(key)).and_then(Value::as_str)
}

/// The base of the frequencies. Default: 10,000.
pub(super) fn rope_theta(config: &Value) -> f64 {
    let nested = || rope_scaling(config).and_then(|scaling| scaling.get("rope_theta"));
    let own = config.get("rope_theta").filter(|theta| theta.is_number());
    own.or_else(nested).and_then(Value::as_f64).unwrap_or(10_000.0)
}

/// The number of elements of a head.
pub(super) fn head_dim(config: &Value) -> Option<u64> {
    let number = |key: &str| config.get(key).and_then(Value::as_u64);
    number("head_dim").or_else(|| number("hidden_size")?.checked_div(number("num_attention_heads")?))
}
