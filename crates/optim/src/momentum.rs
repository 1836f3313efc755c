//! Momentum as an option of SGD.

use kiln_nn::Config;

/// Momentum with its options, under the name and with the defaults that Burn uses; see
/// [`SgdConfig::with_momentum`](crate::SgdConfig::with_momentum).
#[derive(Config, Clone, Copy, Debug, PartialEq)]
pub struct MomentumConfig {
    /// The momentum factor: at least 0. Default: 0.9.
    #[config(default = 0.9)]
    pub momentum: f64,
    /// The dampening: `1 - dampening` is the factor of the gradient. Default: 0.1.
    #[config(default = 0.1)]
    pub dampening: f64,
    /// Whether to use Nesterov momentum, which requires a dampening of 0. Default: no.
    #[config(default = false)]
    pub nesterov: bool,
}

impl Default for MomentumConfig {
    fn default() -> MomentumConfig {
        MomentumConfig::new()
    }
}

/// The momentum of SGD: a factor alone, or all options of momentum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SgdMomentum {
    /// The factor. Dampening and Nesterov momentum are options of their own.
    Factor(f64),
    /// All options.
    Options(MomentumConfig),
}

impl From<f64> for SgdMomentum {
    fn from(factor: f64) -> SgdMomentum {
        SgdMomentum::Factor(factor)
    }
}

impl From<MomentumConfig> for SgdMomentum {
    fn from(options: MomentumConfig) -> SgdMomentum {
        SgdMomentum::Options(options)
    }
}

/// `None` is no momentum.
impl From<Option<MomentumConfig>> for SgdMomentum {
    fn from(options: Option<MomentumConfig>) -> SgdMomentum {
        SgdMomentum::Options(options.unwrap_or(MomentumConfig {
            momentum: 0.0,
            dampening: 0.0,
            nesterov: false,
        }))
    }
}
