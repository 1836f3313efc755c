//! Loss functions as modules.

mod cross_entropy;
mod mse;

pub use cross_entropy::{CrossEntropyLoss, CrossEntropyLossConfig};
pub use mse::MseLoss;

pub use kiln_tensor::loss::Reduction;

use crate::{Config, plain_data};

plain_data!(Reduction);

impl Config for Reduction {}
