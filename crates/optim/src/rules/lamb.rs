//! The LAMB optimizer.

use crate::config::optimizer_config;
use crate::error::{Result, below_one, not_negative};
use crate::math::{ema, norm, ratio, times};
use crate::sgd::with_l2_penalty;
use crate::{GradientClipping, ParameterState, PerParameter, SlotCode, StepOptions, Update, UpdateRule};
use kiln_nn::Config;
use kiln_tensor::AnyTensor;

/// The LAMB optimizer, created by [`LambConfig`].
pub type Lamb = PerParameter<LambRule>;

/// Options of [`Lamb`], Adam with layerwise rates for large batches ([You et al.
/// 2020](https://arxiv.org/abs/1904.00962)). A usual learning rate is 0.001.
///
/// With gradient `g` at step `t`:
///
/// * `m = beta_1 m + (1 - beta_1) g`, `v = beta_2 v + (1 - beta_2) g^2`
/// * `u = m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon) + weight_decay p`
/// * `p -= lr |p| / |u| u`, with L2 norms; the ratio is 1 where a norm is 0
///
/// ```
/// use kiln_optim::LambConfig;
///
/// let optimizer = LambConfig::new().with_weight_decay(0.1).init();
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct LambConfig {
    /// Decay rate of the first moment estimate, in `[0, 1)`. Default: 0.9.
    #[config(default = 0.9)]
    pub beta_1: f64,
    /// Decay rate of the second moment estimate, in `[0, 1)`. Default: 0.999.
    #[config(default = 0.999)]
    pub beta_2: f64,
    /// Added to the denominator, for numerical stability: at least 0. Default: 1e-6.
    #[config(default = 1e-6)]
    pub epsilon: f64,
    /// The weight decay, added to the update: at least 0. Default: 0.01.
    #[config(default = 0.01)]
    #[config(into = crate::decay::WeightDecayConfig)]
    pub weight_decay: f64,
    /// Gradient clipping before the update. Default: none.
    pub grad_clipping: Option<GradientClipping>,
}

impl LambConfig {
    /// Returns the update rule, for a [`ParameterGroup`](crate::ParameterGroup).
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn rule(&self) -> Result<LambRule> {
        below_one("lamb", "beta_1", self.beta_1)?;
        below_one("lamb", "beta_2", self.beta_2)?;
        not_negative("lamb", "epsilon", self.epsilon)?;
        not_negative("lamb", "weight_decay", self.weight_decay)?;
        Ok(LambRule { options: self.clone() })
    }
}

optimizer_config!(LambConfig, Lamb);

/// The update rule of [`Lamb`].
#[derive(Clone, Debug)]
pub struct LambRule {
    options: LambConfig,
}

const MEAN: &str = "exp_avg";
const SQUARES: &str = "exp_avg_sq";

impl UpdateRule for LambRule {
    fn name(&self) -> &'static str {
        "lamb"
    }

    fn slots(&self) -> &'static [&'static str] {
        &[MEAN, SQUARES]
    }

    fn slot_code(&self, slot: &str) -> SlotCode {
        if slot == MEAN { SlotCode::Signed } else { SlotCode::NonNegative }
    }

    fn weight_decay(&self) -> f64 {
        self.options.weight_decay
    }

    fn update(
        &self,
        value: &AnyTensor,
        gradient: AnyTensor,
        state: &mut ParameterState,
        options: StepOptions,
    ) -> Result<Update> {
        let LambConfig { beta_1, beta_2, epsilon, .. } = self.options;
        let steps = state.steps() as f64;
        let mean = ema(state, MEAN, gradient.clone(), beta_1)?;
        let squares = ema(state, SQUARES, gradient.square()?, beta_2)?;
        let mean = mean.div_scalar(1.0 - libm::pow(beta_1, steps))?;
        let deviation = squares.div_scalar(1.0 - libm::pow(beta_2, steps))?.sqrt()?;
        let direction = mean.div(deviation.add_scalar(epsilon)?)?;
        let direction = with_l2_penalty(direction, value, options.weight_decay)?;
        let ratio = ratio(norm(value)?, norm(&direction)?)?.mul_scalar(options.learning_rate)?;
        Ok(Update { keep: 1.0, step: times(direction, ratio)? })
    }
}
