//! The Muon optimizer.

use crate::config::{Inputs, optimizer};
use crate::error::Result;
use crate::math::{ema, norm, scalar_type, times};
use crate::{PerParameter, Update};
use kiln_tensor::{AnyTensor, TensorType};
use serde::{Deserialize, Serialize};

/// The Muon optimizer, created by [`MuonConfig`].
pub type Muon = PerParameter<MuonRule>;

optimizer! {
    /// Options of [`Muon`], momentum orthogonalized by Newton-Schulz iterations
    /// ([Jordan et al. 2024](https://kellerjordan.github.io/posts/muon/)), with the formulas of `torch.optim.Muon`. A
    /// usual learning rate is 0.001 with AdamW's RMS, otherwise 0.02.
    ///
    /// With gradient `g`: `m = momentum m + (1 - momentum) g`, with Nesterov momentum
    /// `u = momentum m + (1 - momentum) g`, otherwise `u = m`, and
    /// `p = (1 - lr weight_decay) p - lr s orthogonal(u)`. The iterations run in `f32`, where PyTorch uses `bf16`.
    ///
    /// Parameters must be matrices. Others need a [group](crate::ParameterGroup) with another rule:
    ///
    /// ```
    /// use kiln_optim::{AdamWConfig, MuonConfig, ParameterGroup};
    ///
    /// let adamw = AdamWConfig::new().rule()?;
    /// let others = ParameterGroup::matching("**.bias").rule(adamw).learning_rate(1e-3);
    /// let optimizer = MuonConfig::new().init().with_group(others)?;
    /// # Ok::<(), kiln_optim::OptimError>(())
    /// ```
    pub struct MuonConfig: Muon, MuonRule, "muon" {
        /// The momentum factor. Default: 0.95.
        #[config(range = "[0, 1)", default = 0.95)]
        pub momentum: f64,
        /// Whether to use Nesterov momentum. Default: yes.
        #[config(default = true)]
        pub nesterov: bool,
        /// The number of Newton-Schulz iterations. Default: 5.
        #[config(default = 5)]
        pub iterations: usize,
        /// The smallest norm that a momentum is divided by. Default: 1e-7.
        #[config(range = "(0, inf)", default = 1e-7)]
        pub epsilon: f64,
        /// The scale `s` of the update by the matrix's shape. Default: [`MuonScale::Original`].
        #[config(default = MuonScale::Original)]
        pub scale: MuonScale,
    }
    weight_decay = 0.1: "The decoupled weight decay";
    slots = { BUFFER = "momentum_buffer": Signed };
    rule {
        fn unmet_requirement(&self, parameter: TensorType) -> Option<&'static str> {
            if parameter.rank() == 2 { None } else { Some("a matrix") }
        }
    }
}

impl MuonRule {
    fn formula(&self, Inputs { value, gradient, state, options }: Inputs<'_>) -> Result<Update> {
        let MuonConfig { momentum, nesterov, iterations, epsilon, scale, .. } = self.options;
        let mut direction = ema(state, BUFFER, gradient.clone(), momentum)?;
        if nesterov {
            direction = gradient.lerp_scalar(direction, momentum)?;
        }
        let direction = orthogonalized(direction, iterations, epsilon)?;
        let (rows, columns) = (value.shape()[0] as f64, value.shape()[1] as f64);
        let factor = match scale {
            MuonScale::Original => libm::sqrt(f64::max(1.0, rows / columns)),
            MuonScale::MatchRmsAdamW => 0.2 * libm::sqrt(f64::max(rows, columns)),
        };
        let keep = 1.0 - options.learning_rate * options.weight_decay;
        Ok(Update { keep, step: direction.mul_scalar(options.learning_rate * factor)?.cast(value.dtype())? })
    }
}

/// The scale of Muon's update for a matrix of `n` rows and `m` columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MuonScale {
    /// `sqrt(max(1, n / m))`.
    Original,
    /// `0.2 sqrt(max(n, m))`: the update has the RMS of AdamW's, whose learning rate can be used
    /// ([Liu et al. 2025](https://arxiv.org/abs/2502.16982)).
    MatchRmsAdamW,
}

/// The coefficients of the quintic iteration.
const COEFFICIENTS: (f64, f64, f64) = (3.4445, -4.775, 2.0315);

/// Replaces the singular values of a matrix by values near 1: `X = a X + (b X X' + c (X X')^2) X`.
fn orthogonalized(matrix: AnyTensor, iterations: usize, epsilon: f64) -> Result<AnyTensor> {
    let (a, b, c) = COEFFICIENTS;
    let is_tall = matrix.shape()[0] > matrix.shape()[1];
    let dtype = scalar_type(*matrix.ty()).dtype;
    let mut x = matrix.cast(dtype)?;
    if is_tall {
        x = x.transpose()?;
    }
    let inverse = norm(&x)?.clamp_min(epsilon)?.recip()?;
    x = times(x, inverse)?;
    for _ in 0..iterations {
        let gram = x.clone().matmul(x.clone().transpose()?)?;
        let square = gram.clone().matmul(gram.clone())?.mul_scalar(c)?;
        let update = gram.mul_scalar(b)?.add(square)?;
        x = x.clone().mul_scalar(a)?.add(update.matmul(x)?)?;
    }
    if is_tall { Ok(x.transpose()?) } else { Ok(x) }
}
