//! The Adamax optimizer.

use crate::config::optimizer_config;
use crate::error::{Result, below_one, not_negative};
use crate::math::{ascent, ema};
use crate::sgd::with_l2_penalty;
use crate::{GradientClipping, ParameterState, PerParameter, SlotCode, StepOptions, Update, UpdateRule};
use kiln_nn::Config;
use kiln_tensor::AnyTensor;

/// The Adamax optimizer, created by [`AdamaxConfig`].
pub type Adamax = PerParameter<AdamaxRule>;

/// Options of [`Adamax`], Adam with the infinity norm ([Kingma and Ba 2015](https://arxiv.org/abs/1412.6980), section
/// 7), with the formulas of `torch.optim.Adamax`. A usual learning rate is 0.002.
///
/// With gradient `g` at step `t`: `g += weight_decay p`, `m = beta_1 m + (1 - beta_1) g`,
/// `u = max(beta_2 u, |g| + epsilon)`, and the parameter changes by `-lr m / (1 - beta_1^t) / u`.
///
/// ```
/// use kiln_optim::AdamaxConfig;
///
/// let optimizer = AdamaxConfig::new().with_beta_2(0.99).init();
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct AdamaxConfig {
    /// Decay rate of the first moment estimate, in `[0, 1)`. Default: 0.9.
    #[config(default = 0.9)]
    pub beta_1: f64,
    /// Decay rate of the infinity norm, in `[0, 1)`. Default: 0.999.
    #[config(default = 0.999)]
    pub beta_2: f64,
    /// Added to the gradient's magnitude, for numerical stability: at least 0. Default: 1e-8.
    #[config(default = 1e-8)]
    pub epsilon: f64,
    /// The weight decay (L2 penalty): at least 0. Default: 0.
    #[config(default = 0.0)]
    #[config(into = crate::decay::WeightDecayConfig)]
    pub weight_decay: f64,
    /// Whether to maximize the objective instead of minimizing it. Default: no.
    #[config(default = false)]
    pub maximize: bool,
    /// Gradient clipping before the update. Default: none.
    pub grad_clipping: Option<GradientClipping>,
}

impl AdamaxConfig {
    /// Returns the update rule, for a [`ParameterGroup`](crate::ParameterGroup).
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn rule(&self) -> Result<AdamaxRule> {
        below_one("adamax", "beta_1", self.beta_1)?;
        below_one("adamax", "beta_2", self.beta_2)?;
        not_negative("adamax", "epsilon", self.epsilon)?;
        not_negative("adamax", "weight_decay", self.weight_decay)?;
        Ok(AdamaxRule { options: self.clone() })
    }
}

optimizer_config!(AdamaxConfig, Adamax);

/// The update rule of [`Adamax`].
#[derive(Clone, Debug)]
pub struct AdamaxRule {
    options: AdamaxConfig,
}

const MEAN: &str = "exp_avg";
const NORM: &str = "exp_inf";

impl UpdateRule for AdamaxRule {
    fn name(&self) -> &'static str {
        "adamax"
    }

    fn slots(&self) -> &'static [&'static str] {
        &[MEAN, NORM]
    }

    fn slot_code(&self, slot: &str) -> SlotCode {
        if slot == MEAN { SlotCode::Signed } else { SlotCode::NonNegative }
    }

    fn weight_decay(&self) -> f64 {
        self.options.weight_decay
    }

    fn has_momentum(&self) -> bool {
        true
    }

    fn update(
        &self,
        value: &AnyTensor,
        gradient: AnyTensor,
        state: &mut ParameterState,
        options: StepOptions,
    ) -> Result<Update> {
        let gradient = ascent(gradient, self.options.maximize)?;
        let gradient = with_l2_penalty(gradient, value, options.weight_decay)?;
        let AdamaxConfig { beta_1, beta_2, epsilon, .. } = self.options;
        let beta_1 = options.momentum.unwrap_or(beta_1);
        let mean = ema(state, MEAN, gradient.clone(), beta_1)?;
        let magnitude = gradient.abs()?.add_scalar(epsilon)?;
        let norm = match state.take(NORM) {
            Some(norm) => norm.mul_scalar(beta_2)?.maximum(magnitude)?,
            None => magnitude,
        };
        state.put(NORM, norm.clone());
        let rate = options.learning_rate / (1.0 - libm::pow(beta_1, state.steps() as f64));
        Ok(Update { keep: 1.0, step: mean.div(norm)?.mul_scalar(rate)? })
    }
}
