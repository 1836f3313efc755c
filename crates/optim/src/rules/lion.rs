//! The Lion optimizer.

use crate::config::optimizer_config;
use crate::error::{Result, below_one, not_negative};
use crate::math::ema;
use crate::{GradientClipping, ParameterState, PerParameter, StepOptions, Update, UpdateRule};
use kiln_nn::Config;
use kiln_tensor::AnyTensor;

/// The Lion optimizer, created by [`LionConfig`].
pub type Lion = PerParameter<LionRule>;

/// Options of [`Lion`] ([Chen et al. 2023](https://arxiv.org/abs/2302.06675)), with the formulas and defaults of the
/// paper. A usual learning rate is 0.0001.
///
/// With gradient `g`: `p = (1 - lr weight_decay) p - lr sign(beta_1 m + (1 - beta_1) g)`, then
/// `m = beta_2 m + (1 - beta_2) g`.
///
/// ```
/// use kiln_optim::LionConfig;
///
/// let optimizer = LionConfig::new().with_weight_decay(0.1).init();
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct LionConfig {
    /// The factor of the momentum in the update, in `[0, 1)`. Default: 0.9.
    #[config(default = 0.9)]
    pub beta_1: f64,
    /// Decay rate of the momentum, in `[0, 1)`. Default: 0.99.
    #[config(default = 0.99)]
    pub beta_2: f64,
    /// The decoupled weight decay: at least 0. Default: 0.
    #[config(default = 0.0)]
    #[config(into = crate::decay::WeightDecayConfig)]
    pub weight_decay: f64,
    /// Gradient clipping before the update. Default: none.
    pub grad_clipping: Option<GradientClipping>,
}

impl LionConfig {
    /// Returns the update rule, for a [`ParameterGroup`](crate::ParameterGroup).
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn rule(&self) -> Result<LionRule> {
        below_one("lion", "beta_1", self.beta_1)?;
        below_one("lion", "beta_2", self.beta_2)?;
        not_negative("lion", "weight_decay", self.weight_decay)?;
        Ok(LionRule { options: self.clone() })
    }
}

optimizer_config!(LionConfig, Lion);

/// The update rule of [`Lion`].
#[derive(Clone, Debug)]
pub struct LionRule {
    options: LionConfig,
}

const MEAN: &str = "exp_avg";

impl UpdateRule for LionRule {
    fn name(&self) -> &'static str {
        "lion"
    }

    fn slots(&self) -> &'static [&'static str] {
        &[MEAN]
    }

    fn weight_decay(&self) -> f64 {
        self.options.weight_decay
    }

    fn update(
        &self,
        _value: &AnyTensor,
        gradient: AnyTensor,
        state: &mut ParameterState,
        options: StepOptions,
    ) -> Result<Update> {
        let LionConfig { beta_1, beta_2, .. } = self.options;
        let mut direction = gradient.clone().mul_scalar(1.0 - beta_1)?;
        if let Some(mean) = state.get(MEAN) {
            direction = direction.add(mean.clone().mul_scalar(beta_1)?)?;
        }
        ema(state, MEAN, gradient, beta_2)?;
        let keep = 1.0 - options.learning_rate * options.weight_decay;
        Ok(Update { keep, step: direction.sign()?.mul_scalar(options.learning_rate)? })
    }
}
