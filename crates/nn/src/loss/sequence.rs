//! Losses of label sequences without alignment: CTC and the RNN transducer.

use super::Reduction;
use crate::module::plain::{default_modules, plain_module};
use kiln_tensor::loss::{self, CtcOptions, RnntOptions};
use kiln_tensor::{Backend, Int, Tensor};

plain_module! {
    /// CTC loss ([Graves et al. 2006](https://www.cs.toronto.edu/~graves/icml_2006.pdf)): the negative logarithm of the
    /// probability of label sequences, summed over all alignments with time.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::loss::{CtcLoss, Reduction};
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let log = Tensor::<Flex, 3>::from([[[0.5, 0.5]], [[0.5, 0.5]]]).log();
    /// let (targets, one) = (Tensor::<Flex, 2, Int>::from([[1]]), Tensor::<Flex, 1, Int>::from([1]));
    /// // Of four equally likely paths, three spell the label: `1 1`, `1 -` and `- 1`.
    /// let loss = CtcLoss::default().forward(log, targets, one.clone() + 1, one);
    /// assert!((loss.item::<f32>() + 0.75f32.ln()).abs() < 1e-6);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.CTCLoss.html)
    #[doc(alias = "CTCLoss")]
    #[derive(Copy)]
    CtcLoss
    #[derive(Copy, Eq)]
    CtcLossConfig {
        /// The blank class. Default: 0.
        blank: usize = 0,
        /// Whether the loss of a target without alignment, because it is too long, is 0 rather than infinite. Default:
        /// no.
        zero_infinity: bool = false,
    }
}

impl CtcLoss {
    /// Computes the loss of each example, `[batch]`, as [`forward_with_reduction`](CtcLoss::forward_with_reduction).
    ///
    /// # Panics
    /// When the shapes are incompatible, or the blank is not a class.
    #[track_caller]
    pub fn forward<B: Backend, const T: usize>(
        &self,
        log_probabilities: Tensor<B, 3>,
        targets: Tensor<B, T, Int>,
        input_lengths: Tensor<B, 1, Int>,
        target_lengths: Tensor<B, 1, Int>,
    ) -> Tensor<B, 1> {
        let reduction = Reduction::None;
        self.forward_with_reduction(log_probabilities, targets, input_lengths, target_lengths, reduction)
    }

    /// Computes the loss of log-probabilities `[time, batch, classes]` and targets `[batch, length]`, where elements
    /// beyond an example's length are ignored; both kinds of lengths are `[batch]`. The output has shape `[1]`.
    ///
    /// Targets of rank 1 are those of all examples, concatenated; that waits for the device. The mean divides each loss
    /// by the length of its target (at least 1) first, as in PyTorch; Burn divides by 0 for an empty target.
    ///
    /// # Panics
    /// When the shapes are incompatible, or the blank is not a class.
    #[track_caller]
    pub fn forward_with_reduction<B: Backend, const T: usize>(
        &self,
        log_probabilities: Tensor<B, 3>,
        targets: Tensor<B, T, Int>,
        input_lengths: Tensor<B, 1, Int>,
        target_lengths: Tensor<B, 1, Int>,
        reduction: Reduction,
    ) -> Tensor<B, 1> {
        let options = CtcOptions { blank: self.blank, zero_infinity: self.zero_infinity, reduction };
        loss::ctc(log_probabilities, targets, input_lengths, target_lengths, options)
    }
}

plain_module! {
    /// RNN transducer loss ([Graves 2012](https://arxiv.org/abs/1211.3711)): the negative logarithm of the probability
    /// of label sequences, summed over all alignments with time. Unlike in CTC, each label depends on the labels before
    /// it.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::loss::RnntLoss;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let logits = Tensor::<Flex, 4>::zeros([1, 2, 2, 2], &Default::default());
    /// let (targets, one) = (Tensor::<Flex, 2, Int>::from([[0]]), Tensor::<Flex, 1, Int>::from([1]));
    /// // Two alignments, each of one label and two blanks of probability 1/2.
    /// let loss = RnntLoss::default().forward(logits, targets, one.clone() + 1, one);
    /// assert!((loss.item::<f32>() - 4f32.ln()).abs() < 1e-6);
    /// ```
    ///
    /// [torchaudio](https://docs.pytorch.org/audio/stable/generated/torchaudio.transforms.RNNTLoss.html)
    #[doc(alias = "RNNTLoss")]
    #[derive(Copy)]
    RnntLoss
    #[derive(Copy, Eq)]
    RnntLossConfig {
        /// The blank class; negative numbers count from the end. Default: -1, the last class, as in torchaudio; Burn's
        /// default is 0.
        blank: i64 = -1,
        /// Whether the scores are logits, to which a log-softmax is applied; otherwise they are log-probabilities.
        /// Default: yes.
        logits: bool = true,
    }
}

impl RnntLoss {
    /// Computes the loss of each example, `[batch]`, as [`forward_with_reduction`](RnntLoss::forward_with_reduction).
    ///
    /// # Panics
    /// When the shapes are incompatible, or the blank is not a class.
    #[track_caller]
    pub fn forward<B: Backend>(
        &self,
        logits: Tensor<B, 4>,
        targets: Tensor<B, 2, Int>,
        logit_lengths: Tensor<B, 1, Int>,
        target_lengths: Tensor<B, 1, Int>,
    ) -> Tensor<B, 1> {
        self.forward_with_reduction(logits, targets, logit_lengths, target_lengths, Reduction::None)
    }

    /// Computes the loss of logits `[batch, time, labels + 1, classes]` and targets `[batch, labels]`, where elements
    /// beyond an example's length are ignored; both kinds of lengths are `[batch]`. The output has shape `[1]`.
    ///
    /// Logit lengths are from 1 to `time` and target lengths at most `labels`; other lengths, and classes out of range,
    /// poison the result: reading it returns the error. The mean is that over the batch.
    ///
    /// # Panics
    /// When the shapes are incompatible, or the blank is not a class.
    #[track_caller]
    pub fn forward_with_reduction<B: Backend>(
        &self,
        logits: Tensor<B, 4>,
        targets: Tensor<B, 2, Int>,
        logit_lengths: Tensor<B, 1, Int>,
        target_lengths: Tensor<B, 1, Int>,
        reduction: Reduction,
    ) -> Tensor<B, 1> {
        let options = RnntOptions { blank: self.blank, logits: self.logits, reduction };
        loss::rnnt(logits, targets, logit_lengths, target_lengths, options)
    }
}

default_modules! {
    CtcLoss CtcLossConfig;
    RnntLoss RnntLossConfig;
}
