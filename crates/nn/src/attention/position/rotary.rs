//! Rotary position encoding.

use super::frequencies::RotaryScaling;
use super::table::{Table, tensor};
use crate::attention::MhaCache;
use crate::module::forward::forward_modules;
use crate::{Config, Module};
use alloc::vec::Vec;
use kiln_backends::Dyn;
use kiln_tensor::module::{self, RotaryLayout};
use kiln_tensor::{Backend, Int, Tensor};

/// Settings of a [`RotaryEncoding`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct RotaryEncodingConfig {
    /// Number of positions.
    pub max_sequence_length: usize,
    /// Number of rotated features of each head, an even number. Heads with more features keep the others unchanged.
    pub d_model: usize,
    /// The base of the frequencies. Default: 10,000.
    #[config(default = 10_000.0)]
    pub theta: f64,
    /// The rotated pairs: features `2 i` and `2 i + 1` (true: the paper, GPT-J, Llama's original files), or `i` and
    /// `i + d / 2` (false: GPT-NeoX, Hugging Face's files of Llama, Mistral and Qwen). Default: true.
    #[config(default = true)]
    pub interleaved: bool,
    /// Scaling of the frequencies for long contexts. Default: none.
    #[config(default = RotaryScaling::None)]
    pub scaling: RotaryScaling,
}

/// Rotary position encoding (RoPE, [Su et al. 2021](https://arxiv.org/abs/2104.09864)): rotates pair `i` of the
/// features of a head at position `p` by the angle `p theta^(-2 i / d)`. Scores of rotated queries and keys depend on
/// the difference of their positions.
///
/// The tables of cosines and sines are computed in 64 bits. They are not parameters: files do not contain them.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::attention::{MhaInput, MultiHeadAttentionConfig, RotaryEncodingConfig};
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// let rotary = RotaryEncodingConfig::new(64, 4).init::<Flex>(&device);
/// let attention = MultiHeadAttentionConfig::new(8, 2).init::<Flex>(&device);
/// let x = Tensor::<Flex, 3>::ones([1, 5, 8], &device);
/// let y = attention.forward(MhaInput::self_attn(x).rotary(rotary.angles(0, 5)).causal());
/// assert_eq!(y.context.dims(), [1, 5, 8]);
/// ```
#[derive(Module, Clone, Debug)]
pub struct RotaryEncoding<B: Backend = Dyn> {
    cos: Table<B>,
    sin: Table<B>,
    /// Number of rotated features.
    pub d_model: usize,
    /// The base of the frequencies.
    pub theta: f64,
    /// Whether pairs are adjacent features.
    pub interleaved: bool,
    /// Scaling of the frequencies.
    pub scaling: RotaryScaling,
}

/// Cosines and sines of the positions of some tokens, `[length, d / 2]`; see [`RotaryEncoding::angles`].
#[derive(Clone, Debug)]
pub struct RotaryAngles<B: Backend = Dyn> {
    /// Cosines, `[length, d / 2]`.
    pub cos: Tensor<B, 2>,
    /// Sines, `[length, d / 2]`.
    pub sin: Tensor<B, 2>,
    /// The rotated pairs.
    pub layout: RotaryLayout,
}

impl RotaryEncodingConfig {
    /// Returns the encoding with its tables on a device.
    ///
    /// # Panics
    /// When `d_model` is odd, or 2 with a scaling that changes the base.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> RotaryEncoding<B> {
        let d = self.d_model;
        assert!(d.is_multiple_of(2), "[RotaryEncoding] d_model is {d}, but features are rotated in pairs");
        let length = self.scaling.dynamic_from().unwrap_or(self.max_sequence_length);
        self.init_with_frequencies(&self.scaling.frequencies(d, self.theta, length), device)
    }

    /// Returns the encoding with explicit frequencies, one for each pair, in place of `theta` and `scaling`. The
    /// attention factor of the scaling still applies.
    ///
    /// # Panics
    /// When the number of frequencies is not `d_model / 2`.
    #[track_caller]
    pub fn init_with_frequencies<B: Backend>(
        &self,
        frequencies: &[f64],
        device: &B::Device,
    ) -> RotaryEncoding<B> {
        let (d, rows) = (self.d_model, self.max_sequence_length);
        assert!(
            2 * frequencies.len() == d,
            "[RotaryEncoding] {} frequencies, but d_model is {d}\n  hint: pass one for each pair",
            frequencies.len()
        );
        let factor = self.scaling.attention_factor();
        let table = |f| Table::new(turned(frequencies, 0, rows, factor, f), rows, d / 2, device);
        let RotaryEncodingConfig { theta, interleaved, scaling, .. } = *self;
        RotaryEncoding {
            cos: table(libm::cos),
            sin: table(libm::sin),
            d_model: d,
            theta,
            interleaved,
            scaling,
        }
    }
}

/// A function of the angles of `rows` positions from `start`, row by row. In `f64`: 32 bits cannot represent the
/// fraction of a late position's angle.
fn turned(frequencies: &[f64], start: usize, rows: usize, factor: f64, f: fn(f64) -> f64) -> Vec<f64> {
    let row = |position: usize| frequencies.iter().map(move |rate| factor * f(position as f64 * rate));
    (start..start + rows).flat_map(row).collect()
}

impl<B: Backend> RotaryEncoding<B> {
    /// Rotates `[.., length, features]` at positions from 0. The output has the same shape.
    ///
    /// # Panics
    /// When there are more positions than `max_sequence_length`, or fewer features than `d_model`.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        self.apply(x, 0)
    }

    /// Rotates `[.., length, features]` at positions from `start`.
    ///
    /// # Panics
    /// When there are more positions than `max_sequence_length`, or fewer features than `d_model`.
    #[track_caller]
    pub fn apply<const D: usize>(&self, x: Tensor<B, D>, start: usize) -> Tensor<B, D> {
        assert!(D >= 2, "[RotaryEncoding] the input needs the axes [.., length, features]");
        self.angles_on(start, x.dims()[D - 2], &x.device()).apply(x)
    }

    /// Rotates `[.., length, features]` at positions `[length]`, such as those of a
    /// [`StaticCache`](crate::attention::StaticCache). A position out of range is an error of the result.
    ///
    /// # Panics
    /// When the scaling is dynamic, or there are fewer features than `d_model`.
    #[track_caller]
    pub fn apply_at<const D: usize>(&self, x: Tensor<B, D>, positions: Tensor<B, 1, Int>) -> Tensor<B, D> {
        self.angles_at(positions).apply(x)
    }

    /// Returns cosines and sines of `length` positions from `start`, for
    /// [`MhaInput::rotary`](crate::attention::MhaInput::rotary) of all layers of a model. They are on the device of the
    /// encoding.
    ///
    /// # Panics
    /// When there are more positions than `max_sequence_length`.
    #[track_caller]
    pub fn angles(&self, start: usize, length: usize) -> RotaryAngles<B> {
        let device = self.cos.device();
        self.angles_on(start, length, &device)
    }

    /// Returns cosines and sines of positions `[length]`. A position out of range is an error of the result.
    ///
    /// # Panics
    /// When the scaling is dynamic: its frequencies depend on the length, which must be known on the host.
    #[track_caller]
    pub fn angles_at(&self, positions: Tensor<B, 1, Int>) -> RotaryAngles<B> {
        assert!(
            self.scaling.dynamic_from().is_none(),
            "[RotaryEncoding] dynamic scaling needs positions on the host\n  hint: call `angles` or `apply`"
        );
        let device = positions.device();
        let rows = |table: &Table<B>| table.on_device(&device).select(0, positions.clone());
        RotaryAngles { cos: rows(&self.cos), sin: rows(&self.sin), layout: self.layout() }
    }

    /// Returns cosines and sines of the next `length` tokens of a cache.
    ///
    /// # Panics
    /// When the cache is of cross-attention, which has no positions.
    #[track_caller]
    pub fn angles_after(&self, cache: &MhaCache<B>, length: usize) -> RotaryAngles<B> {
        match cache.len() {
            Some(start) => self.angles(start, length),
            None => self.angles_at(cache.positions(length)),
        }
    }

    fn layout(&self) -> RotaryLayout {
        if self.interleaved { RotaryLayout::Interleaved } else { RotaryLayout::Halves }
    }

    #[track_caller]
    fn angles_on(&self, start: usize, length: usize, device: &B::Device) -> RotaryAngles<B> {
        let (end, rows) = (start + length, self.cos.rows());
        assert!(
            end <= rows,
            "[RotaryEncoding] positions {start}..{end} are beyond the table\n  \
             hint: max_sequence_length is {rows}"
        );
        let layout = self.layout();
        if self.scaling.dynamic_from().is_some_and(|original| end > original) {
            let rates = self.scaling.frequencies(self.d_model, self.theta, end);
            let shape = [length, self.d_model / 2];
            let table = |f| tensor(turned(&rates, start, length, 1.0, f), shape, device);
            return RotaryAngles { cos: table(libm::cos), sin: table(libm::sin), layout };
        }
        let rows = |table: &Table<B>| table.on_device(device).narrow(0, start, length);
        RotaryAngles { cos: rows(&self.cos), sin: rows(&self.sin), layout }
    }
}

impl<B: Backend> RotaryAngles<B> {
    /// Rotates the first features of `[.., length, features]`. The output has the same shape and dtype.
    ///
    /// # Panics
    /// When there are fewer features than the angles rotate, or another number of positions.
    #[track_caller]
    pub fn apply<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let (features, [_, pairs]) = (x.dims()[D - 1], self.cos.dims());
        assert!(
            2 * pairs <= features,
            "[RotaryEncoding] the input has {features} features, the encoding rotates {}\n  \
             hint: d_model of the encoding is the number of features of one head, or less",
            2 * pairs
        );
        let rotate = |x: Tensor<B, D>| {
            let (cos, sin) = (self.cos.clone().cast(x.dtype()), self.sin.clone().cast(x.dtype()));
            module::rotary_embedding(x, cos, sin, self.layout)
        };
        if 2 * pairs == features {
            return rotate(x);
        }
        let rest = x.clone().narrow(D - 1, 2 * pairs, features - 2 * pairs);
        Tensor::cat(alloc::vec![rotate(x.narrow(D - 1, 0, 2 * pairs)), rest], D - 1)
    }

    /// Returns the angles of `length` of the tokens, from `start`.
    #[must_use]
    pub(crate) fn narrow(&self, start: usize, length: usize) -> RotaryAngles<B> {
        let rows = |table: &Tensor<B, 2>| table.clone().narrow(0, start, length);
        RotaryAngles { cos: rows(&self.cos), sin: rows(&self.sin), layout: self.layout }
    }
}

forward_modules! {
    RotaryEncoding<B>;
}
