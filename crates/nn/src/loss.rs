//! Loss functions as modules, beside the [functions](kiln_tensor::loss) that they apply.
//!
//! A loss is a struct of settings with a method `forward`. Each setting has the default of PyTorch; where Burn differs,
//! the loss says so. Losses with defaults for all settings have `new()` or `Default`; the others, and all settings, are
//! in a configuration: `HuberLossConfig::new(0.5).init()`, or `init(&device)` for losses that hold weights. As
//! functions, losses are in [`kiln_tensor::loss`].
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_nn::loss::{HuberLossConfig, Reduction};
//! use kiln_tensor::Tensor;
//!
//! let loss = HuberLossConfig::new(0.5).init();
//! let predictions = Tensor::<Flex, 2>::from([[0.25, 2.0]]);
//! let targets = predictions.zeros_like();
//! assert_eq!(loss.forward(predictions, targets, Reduction::Sum).item::<f32>(), 0.03125 + 0.875);
//! ```
//!
//! * regression: [`MseLoss`], [`L1Loss`], [`LpLoss`], [`SmoothL1Loss`], [`HuberLoss`]
//! * likelihood: [`KlDivLoss`], [`PoissonNllLoss`], [`GaussianNllLoss`]
//! * binary or multi-label classification: [`BinaryCrossEntropyLoss`], [`BceWithLogitsLoss`], [`FocalLoss`],
//!   [`SoftMarginLoss`], [`MultiLabelSoftMarginLoss`], [`MultiLabelMarginLoss`]
//! * classification: [`CrossEntropyLoss`], [`NllLoss`], [`MultiMarginLoss`], [`AdaptiveLogSoftmaxWithLoss`]
//! * ranking, embeddings: [`MarginRankingLoss`], [`HingeEmbeddingLoss`], [`CosineEmbeddingLoss`],
//!   [`TripletMarginLoss`], [`TripletMarginWithDistanceLoss`], [`InfoNceLoss`]
//! * sequences: [`CtcLoss`], [`RnntLoss`]
//! * images: [`DiceLoss`], [`GramMatrixLoss`]
//!
//! **Reduction.** As in Burn, `forward` has the [`Reduction`] as its last argument, and `forward_no_reduction` returns
//! the losses in their shape. Exceptions, also as in Burn: the reduction of [`CrossEntropyLoss`], [`NllLoss`],
//! [`BinaryCrossEntropyLoss`], [`BceWithLogitsLoss`] and [`CosineEmbeddingLoss`] is a setting; [`SmoothL1Loss`],
//! [`CtcLoss`] and [`RnntLoss`] return losses without reduction from `forward`, and have `forward_with_reduction`.
//!
//! **Errors** of shapes and settings are panics that name the loss, the shapes and the remedy.

/// Implements `forward`, with a reduction, and `forward_no_reduction` of a loss of tensors of equal shape.
macro_rules! elementwise {
    (
        $loss:ident($first:ident, $($operand:ident),*):
        $function:path, $method:ident($($setting:ident),*); $shapes:literal, $panics:literal
    ) => {
        impl $loss {
            #[doc = concat!("Computes the loss of ", $shapes, ". The output has shape `[1]`, or with")]
            /// [`Reduction::None`] `[elements]`, in row-major order.
            ///
            /// # Panics
            #[doc = $panics]
            #[track_caller]
            pub fn forward<B: Backend, const D: usize>(
                &self,
                $first: Tensor<B, D>,
                $($operand: Tensor<B, D>,)*
                reduction: Reduction,
            ) -> Tensor<B, 1> {
                $function($first, $($operand,)* $(self.$setting,)* reduction)
            }

            #[doc = concat!("Computes the loss of each element of ", $shapes, ". The output has the same shape.")]
            ///
            /// # Panics
            #[doc = $panics]
            #[track_caller]
            pub fn forward_no_reduction<B: Backend, const D: usize>(
                &self,
                $first: Tensor<B, D>,
                $($operand: Tensor<B, D>,)*
            ) -> Tensor<B, D> {
                $first.map(|any| any.$method($($operand.into_any(),)* $(self.$setting,)* Reduction::None))
            }
        }
    };
    ($loss:ident: $function:path, $method:ident($($setting:ident),*); $panics:literal) => {
        elementwise!(
            $loss(predictions, targets): $function, $method($($setting),*);
            "two tensors of equal shape, `[..]`", $panics
        );
    };
}

/// Implements `forward`, with a reduction, and `forward_no_reduction` of a loss with one number per example.
macro_rules! per_example {
    (
        $loss:ident $(<const $d:ident>)? ($first:ident, $second:ident: $rank:tt):
        $function:path, ($($setting:ident),*); $shapes:literal, $panics:literal
    ) => {
        impl $loss {
            #[doc = concat!("Computes the loss of ", $shapes, ". The output has shape `[1]`, or with")]
            /// [`Reduction::None`] `[batch]`.
            ///
            /// # Panics
            #[doc = $panics]
            #[track_caller]
            pub fn forward<B: Backend $(, const $d: usize)?>(
                &self,
                $first: Tensor<B, $rank>,
                $second: Tensor<B, $rank>,
                reduction: Reduction,
            ) -> Tensor<B, 1> {
                $function($first, $second, $(self.$setting,)* reduction)
            }

            /// Computes the loss of each example, `[batch]`.
            ///
            /// # Panics
            #[doc = $panics]
            #[track_caller]
            pub fn forward_no_reduction<B: Backend $(, const $d: usize)?>(
                &self,
                $first: Tensor<B, $rank>,
                $second: Tensor<B, $rank>,
            ) -> Tensor<B, 1> {
                self.forward($first, $second, Reduction::None)
            }
        }
    };
}

mod adaptive;
mod binary;
mod classes;
mod cross_entropy;
mod embedding;
mod image;
mod likelihood;
mod margin;
mod regression;
mod sequence;

pub use adaptive::{AdaptiveLogSoftmaxOutput, AdaptiveLogSoftmaxWithLoss, AdaptiveLogSoftmaxWithLossConfig};
pub use binary::{
    BceWithLogitsLoss, BceWithLogitsLossConfig, BinaryCrossEntropyLoss, BinaryCrossEntropyLossConfig,
    FocalLoss, FocalLossConfig, MultiLabelSoftMarginLoss, MultiLabelSoftMarginLossConfig, SoftMarginLoss,
};
pub use classes::{MultiLabelMarginLoss, MultiMarginLoss, MultiMarginLossConfig, NllLoss, NllLossConfig};
pub use cross_entropy::{CrossEntropyLoss, CrossEntropyLossConfig};
pub use embedding::{
    CosineEmbeddingLoss, CosineEmbeddingLossConfig, InfoNceLoss, InfoNceLossConfig, TripletMarginLoss,
    TripletMarginLossConfig, TripletMarginWithDistanceLoss, TripletMarginWithDistanceLossConfig,
};
pub use image::{DiceLoss, DiceLossConfig, GramMatrixLoss};
pub use likelihood::{
    GaussianNllLoss, GaussianNllLossConfig, KlDivLoss, KlDivLossConfig, PoissonNllLoss, PoissonNllLossConfig,
};
pub use margin::{HingeEmbeddingLoss, HingeEmbeddingLossConfig, MarginRankingLoss, MarginRankingLossConfig};
pub use regression::{
    HuberLoss, HuberLossConfig, L1Loss, LpLoss, LpLossConfig, MseLoss, SmoothL1Loss, SmoothL1LossConfig,
};
pub use sequence::{CtcLoss, CtcLossConfig, RnntLoss, RnntLossConfig};

pub use kiln_tensor::loss::*;

use crate::{Config, Param, plain_data};
use alloc::vec::Vec;
use kiln_tensor::{Backend, DType, Tensor};

plain_data!(Reduction);

impl Config for Reduction {}

/// Returns weights of a configuration as a buffer, `[classes]`.
fn weight_buffer<B: Backend>(weights: Option<&Vec<f32>>, device: &B::Device) -> Option<Param<Tensor<B, 1>>> {
    weights.map(|weights| Param::buffer(Tensor::from_data(weights.as_slice(), device)))
}

/// Returns the weights in a dtype.
#[track_caller]
fn weights_as<B: Backend>(weights: Option<&Param<Tensor<B, 1>>>, dtype: DType) -> Option<Tensor<B, 1>> {
    weights.map(|weights| weights.val().cast(dtype))
}
