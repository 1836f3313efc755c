//! Losses.

mod cross_entropy;
mod mse;

pub use cross_entropy::{CrossEntropyLoss, CrossEntropyLossConfig};
pub use mse::MseLoss;

use crate::{Config, plain_data};

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

impl From<Reduction> for kiln_tensor::loss::Reduction {
    fn from(reduction: Reduction) -> kiln_tensor::loss::Reduction {
        match reduction {
            Reduction::Mean => kiln_tensor::loss::Reduction::Mean,
            Reduction::Sum => kiln_tensor::loss::Reduction::Sum,
            Reduction::None => kiln_tensor::loss::Reduction::None,
        }
    }
}
