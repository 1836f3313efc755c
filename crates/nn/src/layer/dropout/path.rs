//! Stochastic depth.

use super::{check_probability, mask, scaled};
use crate::module::forward::forward_modules;
use crate::{Config, Mode, Module};
use kiln_tensor::{Backend, Tensor};

/// Settings of a [`DropPath`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct DropPathConfig {
    /// The probability of setting an example to zero, from 0 to 1.
    pub prob: f64,
    /// Whether to multiply the other examples by `1 / (1 - prob)`, which keeps the mean. Default: true.
    #[config(default = true)]
    pub scale_by_keep: bool,
}

/// Stochastic depth: sets the output of a residual branch to zero for whole examples of a batch, so that the block is
/// the identity for them ([Huang et al. 2016](https://arxiv.org/abs/1603.09382)).
///
/// It is active in training [mode](Mode), and the identity in evaluation mode. Random values come from the device's
/// random stream ([`Backend::seed`]).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{DropPathConfig, Module};
/// use kiln_tensor::Tensor;
///
/// let drop_path = DropPathConfig::new(0.2).init().train();
/// let (x, branch) = (Tensor::<Flex, 2>::ones([8, 4], &Default::default()), Tensor::ones([8, 4], &Default::default()));
/// let y = x + drop_path.forward(branch);
/// // Each row is 1 (dropped) or 1 + 1 / 0.8.
/// let rows = y.clone().max_dim(1) - y.min_dim(1);
/// assert_eq!(rows.max().into_scalar::<f32>(), 0.0);
/// ```
#[doc(alias = "StochasticDepth")]
#[derive(Module, Clone, Debug)]
pub struct DropPath {
    /// The probability of setting an example to zero.
    pub prob: f64,
    /// Whether to multiply the other examples by `1 / (1 - prob)`.
    pub scale_by_keep: bool,
    /// Whether examples are dropped.
    pub mode: Mode,
}

impl DropPathConfig {
    /// Returns the layer.
    ///
    /// # Panics
    /// When `prob` is not between 0 and 1.
    #[track_caller]
    pub fn init(&self) -> DropPath {
        check_probability("drop_path", self.prob);
        DropPath { prob: self.prob, scale_by_keep: self.scale_by_keep, mode: Mode::Auto }
    }
}

impl DropPath {
    /// Sets whole examples of `[batch, ..]` to zero; the output has the same shape.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        if self.prob == 0.0 || !self.mode.is_training(x.engine_stack()) {
            return x;
        }
        let keep = 1.0 - self.prob;
        let scale = if self.scale_by_keep && keep > 0.0 { 1.0 / keep } else { 1.0 };
        let mask = mask(&x, 1, keep) * scale;
        scaled(x, mask)
    }
}

forward_modules! {
    DropPath;
}
