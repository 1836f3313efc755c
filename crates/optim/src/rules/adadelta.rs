//! The Adadelta optimizer.

use crate::config::optimizer_config;
use crate::error::{Result, below_one, not_negative};
use crate::math::{ascent, ema};
use crate::sgd::with_l2_penalty;
use crate::{GradientClipping, ParameterState, PerParameter, SlotCode, StepOptions, Update, UpdateRule};
use kiln_nn::Config;
use kiln_tensor::AnyTensor;

/// The Adadelta optimizer, created by [`AdadeltaConfig`].
pub type Adadelta = PerParameter<AdadeltaRule>;

/// Options of [`Adadelta`] ([Zeiler 2012](https://arxiv.org/abs/1212.5701)), with the formulas of
/// `torch.optim.Adadelta`. A usual learning rate is 1.
///
/// With gradient `g`:
///
/// * `g += weight_decay p`, `v = rho v + (1 - rho) g^2`
/// * `d = sqrt(u + epsilon) / sqrt(v + epsilon) g`, `u = rho u + (1 - rho) d^2`
/// * `p -= lr d`
///
/// ```
/// use kiln_optim::AdadeltaConfig;
///
/// let optimizer = AdadeltaConfig::new().with_rho(0.95).init();
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct AdadeltaConfig {
    /// Decay rate of the means of squares, in `[0, 1)`. Default: 0.9.
    #[config(default = 0.9)]
    pub rho: f64,
    /// Added to the means of squares, for numerical stability: at least 0. Default: 1e-6.
    #[config(default = 1e-6)]
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

impl AdadeltaConfig {
    /// Returns the update rule, for a [`ParameterGroup`](crate::ParameterGroup).
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn rule(&self) -> Result<AdadeltaRule> {
        below_one("adadelta", "rho", self.rho)?;
        not_negative("adadelta", "epsilon", self.epsilon)?;
        not_negative("adadelta", "weight_decay", self.weight_decay)?;
        Ok(AdadeltaRule { options: self.clone() })
    }
}

optimizer_config!(AdadeltaConfig, Adadelta);

/// The update rule of [`Adadelta`].
#[derive(Clone, Debug)]
pub struct AdadeltaRule {
    options: AdadeltaConfig,
}

const SQUARES: &str = "square_avg";
const DELTAS: &str = "acc_delta";

impl UpdateRule for AdadeltaRule {
    fn name(&self) -> &'static str {
        "adadelta"
    }

    fn slots(&self) -> &'static [&'static str] {
        &[SQUARES, DELTAS]
    }

    fn slot_code(&self, _slot: &str) -> SlotCode {
        SlotCode::NonNegative
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
        let gradient = ascent(gradient, self.options.maximize)?;
        let gradient = with_l2_penalty(gradient, value, options.weight_decay)?;
        let AdadeltaConfig { rho, epsilon, .. } = self.options;
        let squares = ema(state, SQUARES, gradient.clone().square()?, rho)?;
        let before = match state.get(DELTAS) {
            Some(deltas) => deltas.clone(),
            None => gradient.zeros_like()?,
        };
        let scale = before.add_scalar(epsilon)?.sqrt()?.div(squares.add_scalar(epsilon)?.sqrt()?)?;
        let delta = scale.mul(gradient)?;
        ema(state, DELTAS, delta.clone().square()?, rho)?;
        Ok(Update { keep: 1.0, step: delta.mul_scalar(options.learning_rate)? })
    }
}
