//! Loss functions.
//!
//! Definitions and gradients are PyTorch's. [`Reduction`] selects how the losses of a batch are reduced to one of shape
//! `[1]`; with [`Reduction::None`] the result is flat, `[losses]`, in row-major order. The methods of
//! [`AnyTensor`](crate::AnyTensor) (`mse_loss` for [`mse`] and so on) keep the shape in that case, and return errors
//! instead of panicking. Functions panic when predictions and targets differ in shape, because a target that broadcasts
//! is nearly always a mistake.
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_tensor::loss::{self, Reduction};
//! use kiln_tensor::{Int, Tensor};
//!
//! let device = Default::default();
//! let logits = Tensor::<Flex, 2>::from_data([[2.0f32, 0.0], [0.0, 2.0]], &device);
//! let targets = Tensor::<Flex, 1, Int>::from_data([0, 1], &device);
//! let loss = loss::cross_entropy(logits, targets, &Default::default());
//! assert!((loss.into_scalar::<f32>() - 0.126_928).abs() < 1e-5);
//! ```

mod binary;
mod classes;
mod embedding;
mod image;
mod likelihood;
mod pairwise;
mod sequence;

pub use crate::any::{ClassOptions, CtcOptions, Reduction, RnntOptions, TripletOptions};
pub use binary::{binary_cross_entropy, binary_cross_entropy_with_logits, multilabel_soft_margin};
pub use classes::{CrossEntropyTargets, cross_entropy, multi_margin, multilabel_margin, nll};
pub use embedding::{cosine_embedding, info_nce, margin_ranking, triplet_margin, triplet_margin_with};
pub use image::{gram_matrix, gram_matrix_loss};
pub use likelihood::gaussian_nll;
pub use pairwise::{
    dice, hinge_embedding, huber, kl_div, l1, lp, mse, poisson_nll, sigmoid_focal, smooth_l1, soft_margin,
};
pub use sequence::{ctc, rnnt};

use crate::tensor::ok;
use crate::{AnyTensor, Backend, Result, Tensor};

/// Returns one loss unchanged, several flattened.
#[track_caller]
fn flat<B: Backend>(losses: Result<AnyTensor>) -> Tensor<B, 1> {
    Tensor::from_any(ok(losses.and_then(|losses| {
        let count = losses.shape().num_elements();
        losses.reshape([count])
    })))
}
