//! Losses of feature maps.

use super::Reduction;
use crate::any::formula::widened;
use crate::{AnyTensor, Result};
use kiln_ir::Var;

const AXES: &str = "[batch, channels, space..]";

impl AnyTensor {
    /// Computes the Gram matrices `[batch, channels, channels]` of features `[batch, channels, space..]`. See
    /// [`loss::gram_matrix`](crate::loss::gram_matrix).
    ///
    /// # Errors
    /// When the dtype is not a float, or there are fewer than two axes.
    pub fn gram_matrix(self) -> Result<AnyTensor> {
        self.check_float("gram_matrix")?;
        self.check_rank("gram_matrix", 2, AXES)?;
        Ok(self.expression(|x| gram(&x, 1.0)))
    }

    /// Computes the mean squared difference of Gram matrices, divided by twice the number of spatial positions, per
    /// example. See [`loss::gram_matrix_loss`](crate::loss::gram_matrix_loss).
    ///
    /// # Errors
    /// As [`mse_loss`](AnyTensor::mse_loss), and when there are fewer than two axes.
    pub fn gram_matrix_loss(self, target: AnyTensor, reduction: Reduction) -> Result<AnyTensor> {
        self.check_rank("gram_matrix_loss", 2, AXES)?;
        let batch = self.shape()[0];
        let space: usize = self.shape()[2..].iter().product();
        // Features are scaled before the product, whose sums would overflow 16 bits.
        let scale = 1.0 / libm::sqrt(2.0 * space.max(1) as f64);
        let losses = self.compared("gram_matrix_loss", target, Reduction::None, |x, t| {
            // Below a mixed-precision layer, products are stored in 16 bits, too few for their squares.
            (widened(&gram(&x, scale)) - gram(&t, scale)).square().mean(&[1, 2]).reshape([batch])
        })?;
        reduction.of(losses)
    }
}

/// Computes the Gram matrices of features times a scale.
fn gram<'e>(features: &Var<'e>, scale: f64) -> Var<'e> {
    let shape = features.shape();
    let flat = features.reshape([shape[0], shape[1], shape[2..].iter().product()]);
    let flat = if scale == 1.0 { flat } else { flat * scale };
    flat.matmul(&flat.transpose())
}
