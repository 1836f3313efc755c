//! Losses of label sequences without alignment.

use super::{CtcOptions, RnntOptions, flat};
use crate::functions::table::functions;
use crate::{Backend, Int, Tensor};

functions! {
    flat;

    /// Computes the CTC loss: the negative logarithm of the probability of label sequences, summed over all alignments with
    /// time ([Graves et al. 2006](https://www.cs.toronto.edu/~graves/icml_2006.pdf)).
    ///
    /// Log-probabilities are `[time, batch, classes]`, lengths `[batch]`. Targets are `[batch, length]`, where elements
    /// beyond an example's length are ignored. With `T = 1` the targets of all examples are concatenated, which waits for
    /// the device. See [`CtcOptions`]. If a target is longer than its input allows, the loss is infinite, or 0 with
    /// `zero_infinity`.
    ///
    /// The gradient is with respect to the log-probabilities; PyTorch's function returns the gradient of the logits before
    /// a `log_softmax`. Through a `log_softmax` both are equal.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor, loss};
    ///
    /// let device = Default::default();
    /// let log = Tensor::<Flex, 3>::from_data([[[0.5f32, 0.5]], [[0.5, 0.5]]], &device).log();
    /// let one = Tensor::<Flex, 1, Int>::from_data([1], &device);
    /// let targets = Tensor::<Flex, 2, Int>::from_data([[1]], &device);
    /// // Of four equally likely paths, three spell the label: `1 1`, `1 -` and `- 1`.
    /// let loss = loss::ctc(log, targets, one.clone() + 1, one, Default::default());
    /// assert!((loss.into_scalar::<f32>() + 0.75f32.ln()).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// When the shapes are incompatible, or the blank is not a class.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.ctc_loss.html)
    #[doc(alias = "ctc_loss")]
    pub fn ctc[B: Backend, const T: usize](
        log_probabilities: Tensor<B, 3>,
        targets: Tensor<B, T, Int> as any,
        input_lengths: Tensor<B, 1, Int> as any,
        target_lengths: Tensor<B, 1, Int> as any,
        options: CtcOptions,
    ) -> Tensor<B, 1> = ctc_loss;

    /// Computes the RNN transducer loss: the negative logarithm of the probability of label sequences, summed over all
    /// alignments with time ([Graves 2012](https://arxiv.org/abs/1211.3711)).
    ///
    /// Logits are `[batch, time, labels + 1, classes]`, the output of the joint network at each time step after each number
    /// of labels. Targets are `[batch, labels]`, where elements beyond an example's length are ignored; both kinds of
    /// lengths are `[batch]`. At `(t, u)` an alignment emits the blank and moves to `(t + 1, u)`, or label `u` and moves to
    /// `(t, u + 1)`. It ends with a blank at the last time step, after all labels. See [`RnntOptions`].
    ///
    /// Logit lengths are from 1 to `time` and target lengths at most `labels`; other lengths, and classes out of range, are
    /// errors of the result, reported when the result is read.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor, loss};
    ///
    /// let device = Default::default();
    /// let logits = Tensor::<Flex, 4>::zeros([1, 2, 2, 2], &device);
    /// let targets = Tensor::<Flex, 2, Int>::from_data([[0]], &device);
    /// let one = Tensor::<Flex, 1, Int>::from_data([1], &device);
    /// // Two alignments, each of one label and two blanks of probability 1/2.
    /// let loss = loss::rnnt(logits, targets, one.clone() + 1, one, Default::default());
    /// assert!((loss.into_scalar::<f32>() - 4f32.ln()).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// When the shapes are incompatible, or the blank is not a class.
    ///
    /// [torchaudio](https://docs.pytorch.org/audio/stable/generated/torchaudio.functional.rnnt_loss.html)
    #[doc(alias = "rnnt_loss")]
    #[doc(alias = "transducer_loss")]
    pub fn rnnt[B: Backend](
        logits: Tensor<B, 4>,
        targets: Tensor<B, 2, Int> as any,
        logit_lengths: Tensor<B, 1, Int> as any,
        target_lengths: Tensor<B, 1, Int> as any,
        options: RnntOptions,
    ) -> Tensor<B, 1> = rnnt_loss;
}
