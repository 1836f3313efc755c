//! Frequencies of rotary encodings, and their scaling for contexts that are longer than in training.

use crate::{Config, plain_data};
use alloc::vec::Vec;
use core::f64::consts::PI;

/// Scaling of the frequencies of a [`RotaryEncoding`](super::RotaryEncoding), for contexts that are longer than those
/// of training. The unscaled frequencies are `f_i = theta^(-2 i / d)`. The definitions are those of Hugging Face's
/// `rope_scaling` settings; their names are in parentheses.
#[derive(Config, Clone, Copy, Debug, PartialEq)]
pub enum RotaryScaling {
    /// The frequencies `f_i` (`default`).
    None,
    /// `f_i / factor`: positions are interpolated (`linear`,
    /// [Chen et al. 2023](https://arxiv.org/abs/2306.15595)).
    Linear {
        /// The ratio of the new and the original length.
        factor: f64,
    },
    /// A larger base, `theta factor^(d / (d - 2))`: the highest frequency does not change and the lowest is divided by
    /// `factor` (NTK-aware scaling, [Peng et al. 2023](https://arxiv.org/abs/2309.00071), section 3.1).
    Ntk {
        /// The ratio of the new and the original length.
        factor: f64,
    },
    /// NTK-aware scaling by the length `l` of the sequence: no scaling up to `original_max`, beyond it the base
    /// `theta (factor l / original_max - factor + 1)^(d / (d - 2))` (`dynamic`). Keys in a cache keep the rotation of
    /// the length at which they were added, so cached results differ slightly from those of a whole sequence.
    DynamicNtk {
        /// The ratio of the new and the original length.
        factor: f64,
        /// The length in training.
        original_max: usize,
    },
    /// YaRN: interpolates low frequencies, keeps high ones, and multiplies cosines and sines by an attention factor
    /// (`yarn`, [Peng et al. 2023](https://arxiv.org/abs/2309.00071)). [`RotaryScaling::yarn`] has the defaults of the
    /// paper.
    Yarn {
        /// The ratio of the new and the original length.
        factor: f64,
        /// The length in training.
        original_max: usize,
        /// Frequencies with more rotations than this over the original length do not change.
        beta_fast: f64,
        /// Frequencies with fewer rotations than this over the original length are divided by `factor`.
        beta_slow: f64,
        /// The factor of cosines and sines.
        attention_factor: f64,
    },
    /// Llama 3: divides the frequencies of long wavelengths by `factor`, keeps those of short ones, and interpolates
    /// between (`llama3`, [Grattafiori et al. 2024](https://arxiv.org/abs/2407.21783)).
    Llama3 {
        /// The divisor of low frequencies.
        factor: f64,
        /// Wavelengths above `original_max / low_freq_factor` are long.
        low_freq_factor: f64,
        /// Wavelengths below `original_max / high_freq_factor` are short.
        high_freq_factor: f64,
        /// The length in training.
        original_max: usize,
    },
}

plain_data!(RotaryScaling);

impl RotaryScaling {
    /// Returns YaRN with the paper's constants: 32 and 1 rotations, and the attention factor `0.1 ln(factor) + 1`.
    pub fn yarn(factor: f64, original_max: usize) -> RotaryScaling {
        let attention_factor = if factor > 1.0 { 0.1 * libm::log(factor) + 1.0 } else { 1.0 };
        RotaryScaling::Yarn { factor, original_max, beta_fast: 32.0, beta_slow: 1.0, attention_factor }
    }

    /// Returns Llama 3.1's scaling: factor 8 of 8,192 tokens, with low and high frequency factors 1 and 4.
    pub fn llama3() -> RotaryScaling {
        let (low_freq_factor, high_freq_factor) = (1.0, 4.0);
        RotaryScaling::Llama3 { factor: 8.0, low_freq_factor, high_freq_factor, original_max: 8192 }
    }

    /// The factor of cosines and sines.
    pub(super) fn attention_factor(self) -> f64 {
        match self {
            RotaryScaling::Yarn { attention_factor, .. } => attention_factor,
            RotaryScaling::None
            | RotaryScaling::Linear { .. }
            | RotaryScaling::Ntk { .. }
            | RotaryScaling::DynamicNtk { .. }
            | RotaryScaling::Llama3 { .. } => 1.0,
        }
    }

    /// The length from which the frequencies depend on the length of the sequence.
    pub(super) fn dynamic_from(self) -> Option<usize> {
        match self {
            RotaryScaling::DynamicNtk { original_max, .. } => Some(original_max),
            RotaryScaling::None
            | RotaryScaling::Linear { .. }
            | RotaryScaling::Ntk { .. }
            | RotaryScaling::Yarn { .. }
            | RotaryScaling::Llama3 { .. } => None,
        }
    }

    /// The frequencies of the `d / 2` pairs, for a sequence of this length.
    pub(super) fn frequencies(self, d: usize, theta: f64, length: usize) -> Vec<f64> {
        let with_base = |base: f64| -> Vec<f64> {
            (0..d / 2).map(|i| libm::pow(base, -2.0 * i as f64 / d as f64)).collect()
        };
        let stretched = |by: f64| theta * libm::pow(by, d as f64 / (d as f64 - 2.0));
        match self {
            RotaryScaling::None => with_base(theta),
            RotaryScaling::Linear { factor } => with_base(theta).into_iter().map(|f| f / factor).collect(),
            RotaryScaling::Ntk { factor } => with_base(stretched(factor)),
            RotaryScaling::DynamicNtk { factor, original_max } => {
                let ratio = length.max(original_max) as f64 / original_max.max(1) as f64;
                with_base(stretched(factor * ratio - (factor - 1.0)))
            }
            RotaryScaling::Yarn { factor, original_max, beta_fast, beta_slow, .. } => {
                let ramp = yarn_ramp(d, theta, original_max, beta_fast, beta_slow);
                let blend = |(f, ramp): (f64, f64)| f / factor * ramp + f * (1.0 - ramp);
                with_base(theta).into_iter().zip(ramp).map(blend).collect()
            }
            RotaryScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max } => {
                let scale = |f: f64| {
                    let rotations = original_max as f64 * f / (2.0 * PI);
                    let smooth = (rotations - low_freq_factor) / (high_freq_factor - low_freq_factor);
                    if rotations < low_freq_factor {
                        f / factor
                    } else if rotations > high_freq_factor {
                        f
                    } else {
                        (1.0 - smooth) * f / factor + smooth * f
                    }
                };
                with_base(theta).into_iter().map(scale).collect()
            }
        }
    }
}

/// The share of interpolation of each pair: 0 for pairs with at least `fast` rotations over the original length, 1 for
/// at most `slow` rotations, linear in the index between them.
fn yarn_ramp(d: usize, theta: f64, original: usize, fast: f64, slow: f64) -> impl Iterator<Item = f64> {
    let pair_of = |rotations: f64| {
        d as f64 * libm::log(original as f64 / (rotations * 2.0 * PI)) / (2.0 * libm::log(theta))
    };
    let low = libm::floor(pair_of(fast)).max(0.0);
    let high = libm::ceil(pair_of(slow)).min(d as f64 - 1.0);
    let width = if high == low { 0.001 } else { high - low };
    (0..d / 2).map(move |i| ((i as f64 - low) / width).clamp(0.0, 1.0))
}
