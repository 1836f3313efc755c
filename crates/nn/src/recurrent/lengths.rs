//! Sequences of different lengths in one batch.

use alloc::vec::Vec;
use kiln_tensor::{AnyTensor, Backend, Int, Kind, Number, Stack, Tensor, TensorData};

/// The lengths of the sequences of a padded batch: a slice, array or vector of `usize`, or an integer tensor `[batch]`.
pub trait SequenceLengths<B: Backend> {
    /// Returns the lengths as a tensor `[batch]` on a stack.
    ///
    /// # Panics
    /// When there is not one length per sequence, or a length on the host is more than `longest`. Lengths in a tensor
    /// are not read: one above `longest` is the same as `longest`.
    #[track_caller]
    fn into_tensor(self, batch: usize, longest: usize, stack: &Stack) -> Tensor<B, 1, Int>;
}

impl<B: Backend, L: AsRef<[usize]> + ?Sized> SequenceLengths<B> for &L {
    #[track_caller]
    fn into_tensor(self, batch: usize, longest: usize, stack: &Stack) -> Tensor<B, 1, Int> {
        let lengths = self.as_ref();
        check_count(lengths.len(), batch);
        check_longest(lengths, longest);
        let lengths: Vec<i64> = lengths.iter().map(|&length| length as i64).collect();
        let data = TensorData::from(lengths).convert(stack.int_dtype());
        Tensor::from_any(AnyTensor::from_data(data, stack))
    }
}

impl<B: Backend> SequenceLengths<B> for Tensor<B, 1, Int> {
    #[track_caller]
    fn into_tensor(self, batch: usize, _longest: usize, _stack: &Stack) -> Tensor<B, 1, Int> {
        check_count(self.dims()[0], batch);
        self
    }
}

#[track_caller]
fn check_count(count: usize, batch: usize) {
    assert!(count == batch, "[lengths] there are {count} lengths for a batch of {batch} sequences");
}

#[track_caller]
fn check_longest(lengths: &[usize], longest: usize) {
    if let Some((index, length)) = lengths.iter().enumerate().find(|(_, length)| **length > longest) {
        panic!("[lengths] sequence {index} has length {length}, but the input has {longest} steps");
    }
}

/// Pads sequences `[length, ..]` of different lengths to the longest and stacks them: `[batch, longest, ..]` with
/// `batch_first`, otherwise `[longest, batch, ..]`.
///
/// <https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pad_sequence.html>
///
/// [`unpad_sequence`] is the inverse. The result and the lengths are operands of `forward_packed` of the recurrent
/// modules.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::rnn::{pad_sequence, unpad_sequence};
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// let sequences: Vec<Tensor<Flex, 1>> =
///     vec![Tensor::from_floats([1.0, 2.0, 3.0], &device), Tensor::from_floats([4.0], &device)];
/// let padded: Tensor<Flex, 2> = pad_sequence(sequences, true, 0.0);
/// assert_eq!(padded.clone().into_data().to_vec::<f32>(), [1.0, 2.0, 3.0, 4.0, 0.0, 0.0]);
/// let sequences: Vec<Tensor<Flex, 1>> = unpad_sequence(padded, &[3, 1], true);
/// assert_eq!(sequences[1].clone().into_data().to_vec::<f32>(), [4.0]);
/// ```
///
/// # Panics
/// When there are no sequences, their shapes differ in more than axis 0, or `D2` is not `D + 1`.
#[track_caller]
pub fn pad_sequence<B: Backend, const D: usize, const D2: usize, K: Kind>(
    sequences: Vec<Tensor<B, D, K>>,
    batch_first: bool,
    padding: impl Number,
) -> Tensor<B, D2, K> {
    let longest = sequences.iter().map(|sequence| sequence.dims()[0]).max();
    let Some(longest) = longest else {
        panic!("[pad_sequence] there are no sequences\n  hint: the result has the shape of the longest")
    };
    let padding = padding.scalar();
    let padded = |sequence: Tensor<B, D, K>| {
        let missing = longest - sequence.dims()[0];
        let mut pads = [(0, 0); D];
        pads[0] = (0, missing);
        if missing == 0 { sequence } else { sequence.pad(pads, padding) }
    };
    let padded = sequences.into_iter().map(padded).collect();
    Tensor::stack(padded, if batch_first { 0 } else { 1 })
}

/// Splits a padded batch into its sequences, `[length, ..]` each. `padded` is `[batch, longest, ..]` with
/// `batch_first`, otherwise `[longest, batch, ..]`. The inverse of [`pad_sequence`].
///
/// <https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.unpad_sequence.html>
///
/// # Panics
/// When there is not one length per sequence, a length is above `longest`, or `D2` is not `D - 1`.
#[track_caller]
pub fn unpad_sequence<B: Backend, const D: usize, const D2: usize, K: Kind>(
    padded: Tensor<B, D, K>,
    lengths: &[usize],
    batch_first: bool,
) -> Vec<Tensor<B, D2, K>> {
    let dims = padded.dims();
    assert!(D >= 2, "[unpad_sequence] the batch has shape {dims:?}, but needs axes for batch and length");
    let (batch, longest) = if batch_first { (dims[0], dims[1]) } else { (dims[1], dims[0]) };
    check_count(lengths.len(), batch);
    check_longest(lengths, longest);
    let axis = if batch_first { 0 } else { 1 };
    let sequences = padded.unbind::<D2>(axis).into_iter().zip(lengths);
    sequences.map(|(sequence, &length)| sequence.narrow(0, 0, length)).collect()
}
