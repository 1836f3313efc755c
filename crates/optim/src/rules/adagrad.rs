//! The Adagrad optimizer.

use crate::config::optimizer_config;
use crate::error::{Result, not_negative};
use crate::math::ascent;
use crate::sgd::with_l2_penalty;
use crate::{GradientClipping, ParameterState, PerParameter, SlotCode, StepOptions, Update, UpdateRule};
use kiln_nn::Config;
use kiln_tensor::AnyTensor;

/// The Adagrad optimizer, created by [`AdagradConfig`].
pub type Adagrad = PerParameter<AdagradRule>;

/// Options of [`Adagrad`] ([Duchi et al. 2011](https://jmlr.org/papers/v12/duchi11a.html)), with the formulas of
/// `torch.optim.Adagrad`. A usual learning rate is 0.01.
///
/// With gradient `g` at step `t`: `g += weight_decay p`, `s += g^2`, and the parameter changes by
/// `-lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + epsilon)`.
///
/// ```
/// use kiln_optim::AdagradConfig;
///
/// let optimizer = AdagradConfig::new().with_lr_decay(0.01).init();
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct AdagradConfig {
    /// The decay of the learning rate: at least 0. Default: 0.
    #[config(default = 0.0)]
    pub lr_decay: f64,
    /// The initial sum of squares: at least 0. Default: 0.
    #[config(default = 0.0)]
    pub initial_accumulator_value: f64,
    /// Added to the denominator, for numerical stability: at least 0. Default: 1e-10.
    #[config(default = 1e-10)]
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

impl AdagradConfig {
    /// Returns the update rule, for a [`ParameterGroup`](crate::ParameterGroup).
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn rule(&self) -> Result<AdagradRule> {
        not_negative("adagrad", "lr_decay", self.lr_decay)?;
        not_negative("adagrad", "initial_accumulator_value", self.initial_accumulator_value)?;
        not_negative("adagrad", "epsilon", self.epsilon)?;
        not_negative("adagrad", "weight_decay", self.weight_decay)?;
        Ok(AdagradRule { options: self.clone() })
    }
}

optimizer_config!(AdagradConfig, Adagrad);

/// The update rule of [`Adagrad`].
#[derive(Clone, Debug)]
pub struct AdagradRule {
    options: AdagradConfig,
}

const SUM: &str = "sum";

impl UpdateRule for AdagradRule {
    fn name(&self) -> &'static str {
        "adagrad"
    }

    fn slots(&self) -> &'static [&'static str] {
        &[SUM]
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
        let AdagradConfig { lr_decay, initial_accumulator_value, epsilon, .. } = self.options;
        let squares = gradient.clone().square()?;
        let sum = match state.take(SUM) {
            Some(sum) => sum.add(squares)?,
            None => squares.add_scalar(initial_accumulator_value)?,
        };
        state.put(SUM, sum.clone());
        let rate = options.learning_rate / (1.0 + (state.steps() as f64 - 1.0) * lr_decay);
        let step = gradient.div(sum.sqrt()?.add_scalar(epsilon)?)?.mul_scalar(rate)?;
        Ok(Update { keep: 1.0, step })
    }
}
