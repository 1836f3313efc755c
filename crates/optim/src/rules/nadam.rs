//! The NAdam optimizer.

use crate::config::optimizer_config;
use crate::error::{Result, below_one, not_negative};
use crate::math::{ascent, decay, ema, scalar, scalar_type, times};
use crate::sgd::with_l2_penalty;
use crate::{GradientClipping, ParameterState, PerParameter, SlotCode, StepOptions, Update, UpdateRule};
use kiln_nn::Config;
use kiln_tensor::{AnyTensor, TensorType};

/// The NAdam optimizer, created by [`NAdamConfig`].
pub type NAdam = PerParameter<NAdamRule>;

/// Options of [`NAdam`], Adam with Nesterov momentum ([Dozat
/// 2016](https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ)), with the formulas of `torch.optim.NAdam`. A usual
/// learning rate is 0.002.
///
/// With gradient `g` at step `t`, and `mu_t = beta_1 (1 - 0.96^(t momentum_decay) / 2)`:
///
/// * `m = beta_1 m + (1 - beta_1) g`, `v = beta_2 v + (1 - beta_2) g^2`
/// * `n = (1 - mu_t) g / (1 - mu_1 ... mu_t) + mu_(t+1) m / (1 - mu_1 ... mu_(t+1))`
/// * `p -= lr n / (sqrt(v / (1 - beta_2^t)) + epsilon)`
///
/// ```
/// use kiln_optim::NAdamConfig;
///
/// let optimizer = NAdamConfig::new().with_momentum_decay(0.01).init();
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct NAdamConfig {
    /// Decay rate of the first moment estimate, in `[0, 1)`. Default: 0.9.
    #[config(default = 0.9)]
    pub beta_1: f64,
    /// Decay rate of the second moment estimate, in `[0, 1)`. Default: 0.999.
    #[config(default = 0.999)]
    pub beta_2: f64,
    /// Added to the denominator, for numerical stability: at least 0. Default: 1e-8.
    #[config(default = 1e-8)]
    pub epsilon: f64,
    /// The decay of momentum: at least 0. Default: 0.004.
    #[config(default = 0.004)]
    pub momentum_decay: f64,
    /// The weight decay: at least 0. Default: 0.
    #[config(default = 0.0)]
    #[config(into = crate::decay::WeightDecayConfig)]
    pub weight_decay: f64,
    /// Whether weight decay is decoupled, as in AdamW. Default: no.
    #[config(default = false)]
    pub decoupled_weight_decay: bool,
    /// Whether to maximize the objective instead of minimizing it. Default: no.
    #[config(default = false)]
    pub maximize: bool,
    /// Gradient clipping before the update. Default: none.
    pub grad_clipping: Option<GradientClipping>,
}

impl NAdamConfig {
    /// Returns the update rule, for a [`ParameterGroup`](crate::ParameterGroup).
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn rule(&self) -> Result<NAdamRule> {
        below_one("nadam", "beta_1", self.beta_1)?;
        below_one("nadam", "beta_2", self.beta_2)?;
        not_negative("nadam", "epsilon", self.epsilon)?;
        not_negative("nadam", "momentum_decay", self.momentum_decay)?;
        not_negative("nadam", "weight_decay", self.weight_decay)?;
        Ok(NAdamRule { options: self.clone() })
    }
}

optimizer_config!(NAdamConfig, NAdam);

/// The update rule of [`NAdam`].
#[derive(Clone, Debug)]
pub struct NAdamRule {
    options: NAdamConfig,
}

const MEAN: &str = "exp_avg";
const SQUARES: &str = "exp_avg_sq";
const PRODUCT: &str = "mu_product";

impl UpdateRule for NAdamRule {
    fn name(&self) -> &'static str {
        "nadam"
    }

    fn slots(&self) -> &'static [&'static str] {
        &[MEAN, SQUARES, PRODUCT]
    }

    fn slot_code(&self, slot: &str) -> SlotCode {
        if slot == MEAN { SlotCode::Signed } else { SlotCode::NonNegative }
    }

    fn weight_decay(&self) -> f64 {
        self.options.weight_decay
    }

    fn slot_type(&self, slot: &str, parameter: TensorType) -> TensorType {
        if slot == PRODUCT { scalar_type(parameter) } else { parameter }
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
        let (keep, penalty) = decay(options, self.options.decoupled_weight_decay);
        let gradient = with_l2_penalty(gradient, value, penalty)?;
        let NAdamConfig { beta_1, beta_2, epsilon, momentum_decay, .. } = self.options;
        let beta_1 = options.momentum.unwrap_or(beta_1);
        let steps = state.steps() as f64;
        let mu = |step: f64| beta_1 * (1.0 - 0.5 * libm::pow(0.96, step * momentum_decay));
        let product = match state.take(PRODUCT) {
            Some(product) => product.mul_scalar(mu(steps))?,
            None => scalar(mu(steps), &gradient)?,
        };
        state.put(PRODUCT, product.clone());
        let mean = ema(state, MEAN, gradient.clone(), beta_1)?;
        let squares = ema(state, SQUARES, gradient.clone().square()?, beta_2)?;
        let bias = 1.0 - libm::pow(beta_2, steps);
        let denominator = squares.div_scalar(bias)?.sqrt()?.add_scalar(epsilon)?;
        let factor = |weight: f64, product: AnyTensor| -> Result<AnyTensor> {
            Ok(product.neg()?.add_scalar(1.0)?.recip()?.mul_scalar(options.learning_rate * weight)?)
        };
        let of_gradient = times(gradient, factor(1.0 - mu(steps), product.clone())?)?;
        let next = mu(steps + 1.0);
        let of_mean = times(mean, factor(next, product.mul_scalar(next)?)?)?;
        Ok(Update { keep, step: of_gradient.add(of_mean)?.div(denominator)? })
    }
}
