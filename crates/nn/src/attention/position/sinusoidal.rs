//! Sinusoidal positional encoding.

use super::table::Table;
use crate::module::forward::forward_modules;
use crate::{Config, Module};
use alloc::vec::Vec;
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Tensor};

/// Settings of a [`PositionalEncoding`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct PositionalEncodingConfig {
    /// Number of features, an even number.
    pub d_model: usize,
    /// Number of positions. Default: 5,000.
    #[config(default = 5_000)]
    pub max_sequence_size: usize,
    /// The base of the frequencies. Default: 10,000.
    #[config(default = 10_000)]
    pub max_timescale: usize,
}

/// Sinusoidal positional encoding ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)): adds
/// `sin(p base^(-2 i / d))` to feature `2 i` at position `p`, and the cosine to feature `2 i + 1`. The table is
/// computed in 64 bits. It is not a parameter: files do not contain it.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::attention::PositionalEncodingConfig;
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// let encoding = PositionalEncodingConfig::new(4).init::<Flex>(&device);
/// let y = encoding.forward(Tensor::zeros([1, 1, 4], &device));
/// assert_eq!(y.into_data().to_vec::<f32>(), [0.0, 1.0, 0.0, 1.0]);
/// ```
#[derive(Module, Clone, Debug)]
pub struct PositionalEncoding<B: Backend = Dyn> {
    table: Table<B>,
}

impl PositionalEncodingConfig {
    /// Returns the encoding with its table on a device.
    ///
    /// # Panics
    /// When `d_model` is odd.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> PositionalEncoding<B> {
        let (d, rows, base) = (self.d_model, self.max_sequence_size, self.max_timescale as f64);
        assert!(
            d.is_multiple_of(2),
            "[PositionalEncoding] d_model is {d}, but features are sine and cosine pairs"
        );
        let rates: Vec<f64> = (0..d / 2).map(|i| libm::pow(base, -2.0 * i as f64 / d as f64)).collect();
        let row = |position: usize| {
            rates.iter().flat_map(move |rate| {
                let angle = position as f64 * rate;
                [libm::sin(angle), libm::cos(angle)]
            })
        };
        PositionalEncoding { table: Table::new((0..rows).flat_map(row).collect(), rows, d, device) }
    }
}

impl<B: Backend> PositionalEncoding<B> {
    /// Adds the encoding of positions from 0 to `[batch, length, d_model]`.
    ///
    /// # Panics
    /// When there are more positions than `max_sequence_size`, or the number of features differs.
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.apply(x, 0)
    }

    /// Adds the encoding of positions from `start` to `[batch, length, d_model]`.
    ///
    /// # Panics
    /// When there are more positions than `max_sequence_size`, or the number of features differs.
    #[track_caller]
    pub fn apply(&self, x: Tensor<B, 3>, start: usize) -> Tensor<B, 3> {
        let ([_, length, d], rows) = (x.dims(), self.table.rows());
        let end = start + length;
        assert!(
            end <= rows,
            "[PositionalEncoding] positions {start}..{end} are beyond the table\n  hint: max_sequence_size is {rows}"
        );
        let table = self.table.on_device(&x.device()).cast(x.dtype());
        let columns = table.dims()[1];
        assert!(columns == d, "[PositionalEncoding] the input has {d} features, d_model is {columns}");
        x + table.narrow(0, start, length).unsqueeze::<3>()
    }
}

forward_modules! {
    PositionalEncoding<B>: 3 => 3;
}
