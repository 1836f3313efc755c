//! Losses of class scores, with class indices as targets.

use super::{ClassOptions, Reduction, flat};
use crate::functions::table::functions;
use crate::{AnyTensor, Backend, Int, Tensor};

/// Targets of [`cross_entropy`] for logits of rank `D`, `[batch, classes, space..]`: class indices, integers
/// `[batch, space..]`, or probabilities, floats with the shape of the logits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the targets of logits of rank {D}",
    label = "neither class indices nor probabilities",
    note = "class indices are integers `[batch, space..]`, without the axis of the classes: `Tensor<B, _, Int>`; floats \
            convert by `.int()`",
    note = "probabilities are floats with the shape of the logits `[batch, classes, space..]`"
)]
pub trait CrossEntropyTargets<B: Backend, const D: usize>: private::Sealed {
    /// Whether the targets are probabilities.
    const ARE_PROBABILITIES: bool;

    /// Converts the targets to an [`AnyTensor`].
    fn into_any(self) -> AnyTensor;

    /// Replaces each of `classes` in the targets by `class`; probabilities do not change.
    #[must_use]
    fn replace_classes(self, classes: &[i64], class: i64) -> Self;
}

macro_rules! classes {
    ($($targets:literal of $logits:literal),*) => {$(
        impl<B: Backend> CrossEntropyTargets<B, $logits> for Tensor<B, $targets, Int> {
            const ARE_PROBABILITIES: bool = false;

            fn into_any(self) -> AnyTensor {
                Tensor::into_any(self)
            }

            fn replace_classes(self, classes: &[i64], class: i64) -> Self {
                let others = classes.iter().filter(|&&other| other != class);
                others.fold(self, |targets, &other| {
                    targets.clone().mask_fill(targets.equal_elem(other), class)
                })
            }
        }
    )*};
}

// One impl for each rank, so that the rank of the targets determines the rank of the logits.
classes!(1 of 2, 2 of 3, 3 of 4, 4 of 5, 5 of 6, 6 of 7, 7 of 8, 8 of 9, 9 of 10, 10 of 11, 11 of 12);

impl<B: Backend, const D: usize> CrossEntropyTargets<B, D> for Tensor<B, D> {
    const ARE_PROBABILITIES: bool = true;

    fn into_any(self) -> AnyTensor {
        Tensor::into_any(self)
    }

    fn replace_classes(self, _classes: &[i64], _class: i64) -> Self {
        self
    }
}

mod private {
    use crate::{Backend, Kind, Tensor};

    pub trait Sealed {}
    impl<B: Backend, const D: usize, K: Kind> Sealed for Tensor<B, D, K> {}
}

functions! {
    flat;

    /// Computes the cross-entropy of logits `[batch, classes, space..]` and targets: class indices `[batch, space..]` in
    /// `0..classes`, or probabilities with the shape of the logits.
    ///
    /// The loss of a class index is `-log softmax(logits)[target]`, that of probabilities `-Σ target log softmax(logits)`.
    /// See [`ClassOptions`] for weights, ignored classes, smoothing and reduction; the default is the mean, `[1]`. The mean
    /// over probabilities divides by the number of rows. A class index that is neither in range nor ignored is an error of
    /// the result, reported when the result is read.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor, loss};
    ///
    /// let logits = Tensor::<Flex, 2>::from([[2.0, 0.0], [0.0, 2.0]]);
    /// let classes = Tensor::<Flex, 1, Int>::from([0, 1]);
    /// let probabilities = Tensor::<Flex, 2>::from([[1.0, 0.0], [0.0, 1.0]]);
    /// let loss = loss::cross_entropy(logits.clone(), classes, &Default::default());
    /// assert!((loss.item::<f32>() - 0.126_928).abs() < 1e-5);
    /// let same = loss::cross_entropy(logits, probabilities, &Default::default());
    /// assert!((loss.item::<f32>() - same.item::<f32>()).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// When the shapes are incompatible, the smoothing is not between 0 and 1, or probabilities are combined with an
    /// ignored class.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cross_entropy.html)
    #[doc(alias = "cross_entropy_with_logits")]
    pub fn cross_entropy[B: Backend, const D: usize](
        logits: Tensor<B, D>,
        targets: impl CrossEntropyTargets<B, D> as any,
        options: &ClassOptions,
    ) -> Tensor<B, 1> = cross_entropy_loss;

    /// Computes the negative log-likelihood `-log_probabilities[target]`: log-probabilities are
    /// `[batch, classes, space..]`, targets `[batch, space..]`.
    ///
    /// # Panics
    /// When the shapes are incompatible, or with label smoothing.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.nll_loss.html)
    #[doc(alias = "nll_loss")]
    pub fn nll[B: Backend, const D: usize, const T: usize](
        log_probabilities: Tensor<B, D>,
        targets: Tensor<B, T, Int> as any,
        options: &ClassOptions,
    ) -> Tensor<B, 1> = nll_loss;

    /// Computes the multi-class margin loss, `Σ max(0, margin - x[target] + x[i])^power / classes` over the wrong classes
    /// `i`, times the weight of the target's class. Scores are `[batch, classes]`, targets `[batch]`, weights `[classes]`.
    /// The power is 1 or 2; PyTorch's defaults are 1 and margin 1.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.multi_margin_loss.html)
    ///
    /// # Panics
    /// When the shapes are incompatible, or the power is neither 1 nor 2.
    pub fn multi_margin[B: Backend](
        scores: Tensor<B, 2>,
        targets: Tensor<B, 1, Int> as any,
        power: i32,
        margin: f64,
        weight: Option<Tensor<B, 1>> as anys,
        reduction: Reduction,
    ) -> Tensor<B, 1> = multi_margin_loss;

    /// Computes the multi-label margin loss, `Σ max(0, 1 - x[present] + x[absent]) / classes` over all pairs of a listed
    /// and an unlisted class. Scores and targets are `[batch, classes]`; a row of targets lists class indices and ends at
    /// the first -1.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.multilabel_margin_loss.html)
    ///
    /// # Panics
    /// When scores and targets differ in shape.
    pub fn multilabel_margin[B: Backend](
        scores: Tensor<B, 2>,
        targets: Tensor<B, 2, Int> as any,
        reduction: Reduction,
    ) -> Tensor<B, 1> = multilabel_margin_loss;
}
