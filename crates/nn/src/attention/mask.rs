//! Masks for attention: true where a key is hidden.

use super::scores::query_positions;
use crate::Config;
use alloc::vec::Vec;
use kiln_tensor::{Backend, Bool, Int, Tensor, TensorData};

/// Returns a causal mask `[batch, length, length]` for [`MhaInput::mask_attn`](super::MhaInput::mask_attn): true where
/// the key is after the query. [`MhaInput::causal`](super::MhaInput::causal) has the same effect and is faster.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::attention::generate_autoregressive_mask;
///
/// let mask = generate_autoregressive_mask::<Flex>(1, 2, &Default::default());
/// assert_eq!(mask.into_data().to_vec::<bool>(), [false, true, false, false]);
/// ```
#[track_caller]
pub fn generate_autoregressive_mask<B: Backend>(
    batch_size: usize,
    seq_length: usize,
    device: &B::Device,
) -> Tensor<B, 3, Bool> {
    let mask = Tensor::<B, 2, Bool>::triu_mask([seq_length, seq_length], 1, device);
    mask.expand([batch_size, seq_length, seq_length])
}

/// Returns a mask `[1, queries, keys]` for [`MhaInput::mask_attn`](super::MhaInput::mask_attn) that hides keys after
/// the query and keys at least `window` positions before it: query `i` attends to `window` keys, the last of which is
/// at its own position ([Beltagy et al. 2020](https://arxiv.org/abs/2004.05150), causal as in
/// [Mistral](https://arxiv.org/abs/2310.06825)). The last query is at the position of the last key.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::attention::sliding_window_mask;
///
/// let mask = sliding_window_mask::<Flex>(2, 4, 2, &Default::default());
/// let expected = [true, false, false, true, true, true, false, false];
/// assert_eq!(mask.into_data().to_vec::<bool>(), expected);
/// ```
#[track_caller]
pub fn sliding_window_mask<B: Backend>(
    queries: usize,
    keys: usize,
    window: usize,
    device: &B::Device,
) -> Tensor<B, 3, Bool> {
    let query = query_positions::<B>(queries, keys, device).reshape([1, queries, 1]);
    let key = Tensor::<B, 1, Int>::arange(0..keys as i64, device).reshape([1, 1, keys]);
    let after = key.clone().greater(query.clone());
    after.bool_or((key + window).lower_equal(query))
}

/// Padded token sequences and their padding mask; see [`generate_padding_mask`].
#[derive(Clone, Debug)]
pub struct GeneratePaddingMask<B: Backend> {
    /// The tokens, `[batch, length]`.
    pub tensor: Tensor<B, 2, Int>,
    /// True where a token is the padding token, `[batch, length]`.
    pub mask: Tensor<B, 2, Bool>,
}

/// The length to which [`generate_padding_mask`] pads or truncates sequences. `Option<usize>` converts to it: `None` is
/// [`NoMax`](SeqLengthOption::NoMax), and `Some` is [`Max`](SeqLengthOption::Max).
#[derive(Config, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeqLengthOption {
    /// The length of the longest sequence.
    NoMax,
    /// The length of the longest sequence, or this length if it is smaller.
    Max(usize),
    /// This length.
    Fixed(usize),
}

impl From<Option<usize>> for SeqLengthOption {
    fn from(max: Option<usize>) -> SeqLengthOption {
        max.map_or(SeqLengthOption::NoMax, SeqLengthOption::Max)
    }
}

/// Pads token sequences to one length and returns the padding mask. Tokens equal to `pad_token` are padding too.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::attention::generate_padding_mask;
///
/// let padded = generate_padding_mask::<Flex>(0, vec![vec![3, 4], vec![5]], None, &Default::default());
/// assert_eq!(padded.tensor.into_data().to_vec::<i32>(), [3, 4, 5, 0]);
/// assert_eq!(padded.mask.into_data().to_vec::<bool>(), [false, false, false, true]);
/// ```
#[track_caller]
pub fn generate_padding_mask<B: Backend>(
    pad_token: usize,
    tokens_list: Vec<Vec<usize>>,
    seq_length: impl Into<SeqLengthOption>,
    device: &B::Device,
) -> GeneratePaddingMask<B> {
    let longest = tokens_list.iter().map(Vec::len).max().unwrap_or(1);
    let length = match seq_length.into() {
        SeqLengthOption::NoMax => longest,
        SeqLengthOption::Max(max) => longest.min(max),
        SeqLengthOption::Fixed(length) => length,
    };
    let batch = tokens_list.len();
    let padding = core::iter::repeat(pad_token);
    let rows =
        tokens_list.into_iter().flat_map(|tokens| tokens.into_iter().chain(padding.clone()).take(length));
    let tokens: Vec<i64> = rows.map(|token| token as i64).collect();
    let tensor = match TensorData::new(tokens, [batch, length]) {
        Ok(data) => Tensor::<B, 2, Int>::from_data(data, device),
        Err(error) => panic!("{error}"),
    };
    GeneratePaddingMask { mask: tensor.clone().equal_elem(pad_token as i64), tensor }
}
