//! The averaged SGD optimizer.

use crate::config::optimizer_config;
use crate::error::{Result, not_negative};
use crate::math::ascent;
use crate::sgd::with_l2_penalty;
use crate::{GradientClipping, ParameterState, PerParameter, SlotCode, StepOptions, Update, UpdateRule};
use kiln_nn::Config;
use kiln_tensor::AnyTensor;

/// The averaged SGD optimizer, created by [`AsgdConfig`].
pub type Asgd = PerParameter<AsgdRule>;

/// Options of [`Asgd`], averaged SGD ([Polyak and Juditsky 1992](https://dl.acm.org/doi/10.1137/0330046)), with the
/// formulas of `torch.optim.ASGD`. A usual learning rate is 0.01.
///
/// With gradient `g` at step `t`, `eta = lr / (1 + lambda lr (t - 1))^alpha` and `mu = 1 / max(1, t - 1 - t0)`:
///
/// * `g += weight_decay p`, `p = (1 - lambda eta) p - eta g`
/// * `a += mu (p - a)`: the average. It is the slot `ax` of the [state](crate::OptimizerState), as in PyTorch.
///
/// ```
/// use kiln_optim::AsgdConfig;
///
/// let optimizer = AsgdConfig::new().with_t0(100.0).init();
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct AsgdConfig {
    /// The decay term: at least 0. Default: 1e-4.
    #[config(default = 1e-4)]
    pub lambda: f64,
    /// The power of the decay of the learning rate: at least 0. Default: 0.75.
    #[config(default = 0.75)]
    pub alpha: f64,
    /// The step at which averaging starts: at least 0. Default: 1e6.
    #[config(default = 1e6)]
    pub t0: f64,
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

impl AsgdConfig {
    /// Returns the update rule, for a [`ParameterGroup`](crate::ParameterGroup).
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn rule(&self) -> Result<AsgdRule> {
        not_negative("asgd", "lambda", self.lambda)?;
        not_negative("asgd", "alpha", self.alpha)?;
        not_negative("asgd", "t0", self.t0)?;
        not_negative("asgd", "weight_decay", self.weight_decay)?;
        Ok(AsgdRule { options: self.clone() })
    }
}

optimizer_config!(AsgdConfig, Asgd);

/// The update rule of [`Asgd`].
#[derive(Clone, Debug)]
pub struct AsgdRule {
    options: AsgdConfig,
}

const AVERAGE: &str = "ax";

impl UpdateRule for AsgdRule {
    fn name(&self) -> &'static str {
        "asgd"
    }

    fn slots(&self) -> &'static [&'static str] {
        &[AVERAGE]
    }

    fn slot_code(&self, _slot: &str) -> SlotCode {
        SlotCode::Exact
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
        let AsgdConfig { lambda, alpha, t0, .. } = self.options;
        let done = state.steps() as f64 - 1.0;
        let rate = options.learning_rate;
        let eta = rate / libm::pow(1.0 + lambda * rate * done, alpha);
        let keep = 1.0 - lambda * eta;
        let step = gradient.mul_scalar(eta)?;
        let new = value.clone().mul_scalar(keep)?.sub(step.clone())?;
        let mu = 1.0 / f64::max(1.0, done - t0);
        let average = match state.take(AVERAGE) {
            Some(average) if mu != 1.0 => average.lerp_scalar(new, mu)?,
            Some(_) | None => new,
        };
        state.put(AVERAGE, average);
        Ok(Update { keep, step })
    }
}
