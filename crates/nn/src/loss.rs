//! Losses.

mod cross_entropy;
mod mse;

pub use cross_entropy::{CrossEntropyLoss, CrossEntropyLossConfig};
pub use mse::MseLoss;

use crate::{Config, plain_data};
use kiln_tensor::{Backend, Tensor};

/// How the losses of the elements of a batch become one.
#[derive(Config, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// Their mean.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// Each for itself, in row-major order.
    None,
}

plain_data!(Reduction);

impl Reduction {
    #[track_caller]
    fn apply<B: Backend, const D: usize>(self, losses: Tensor<B, D>) -> Tensor<B, 1> {
        match self {
            Reduction::Mean => losses.mean(),
            Reduction::Sum => losses.sum(),
            Reduction::None => {
                let count = losses.num_elements();
                losses.reshape([count])
            }
        }
    }
}
