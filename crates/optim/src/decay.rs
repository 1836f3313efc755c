//! Weight decay as an option of optimizers.

use kiln_nn::Config;

/// Weight decay under the name that Burn uses. Optimizers take it, an `Option` of it or the number itself:
///
/// ```
/// use kiln_optim::AdamConfig;
/// use kiln_optim::decay::WeightDecayConfig;
///
/// let config = AdamConfig::new().with_weight_decay(Some(WeightDecayConfig::new(5e-5)));
/// assert_eq!(config, AdamConfig::new().with_weight_decay(5e-5));
/// ```
#[derive(Config, Clone, Copy, Debug, PartialEq)]
pub struct WeightDecayConfig {
    /// The factor of the parameter: at least 0.
    pub penalty: f64,
}

impl From<f64> for WeightDecayConfig {
    fn from(penalty: f64) -> WeightDecayConfig {
        WeightDecayConfig { penalty }
    }
}

/// `None` is no weight decay.
impl From<Option<WeightDecayConfig>> for WeightDecayConfig {
    fn from(config: Option<WeightDecayConfig>) -> WeightDecayConfig {
        config.unwrap_or(WeightDecayConfig { penalty: 0.0 })
    }
}

impl From<WeightDecayConfig> for f64 {
    fn from(config: WeightDecayConfig) -> f64 {
        config.penalty
    }
}
