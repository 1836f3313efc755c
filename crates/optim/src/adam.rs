//! The Adam and AdamW optimizers.

use crate::config::{check_ranges, optimizer_options};
use crate::error::Result;
use crate::math::accumulated;
use crate::sgd::with_l2_penalty;
use crate::{ParameterState, PerParameter, SlotCode, StepOptions, Update, UpdateRule};
use kiln_ir::{Binary, Unary};
use kiln_tensor::AnyTensor;

/// The Adam optimizer, created by [`AdamConfig`].
pub type Adam = PerParameter<AdamRule>;

/// The AdamW optimizer, created by [`AdamWConfig`]. AdamW in 8 bits is
/// `AdamWConfig::new().init().with_8bit_state()`.
pub type AdamW = PerParameter<AdamRule>;

macro_rules! adam_config {
    ($(#[$doc:meta])* $config:ident, $optimizer:ident, $name:literal, $decay:literal, $decoupled:literal) => {
        optimizer_options! {
            $(#[$doc])*
            pub struct $config: $optimizer {
                /// Decay rate of the first moment estimate (mean of gradients). Default: 0.9.
                #[config(range = "[0, 1)", default = 0.9)]
                pub beta_1: f64,
                /// Decay rate of the second moment estimate (mean of squared gradients). Default: 0.999.
                #[config(range = "[0, 1)", default = 0.999)]
                pub beta_2: f64,
                /// Added to the denominator after bias correction, for numerical stability. Default: 1e-8.
                #[config(range = "[0, inf)", default = 1e-8)]
                pub epsilon: f64,
            }
            weight_decay = $decay: "The weight decay";
            {
                /// Whether to use AMSGrad: the maximum of all second moment estimates so far
                /// ([Reddi et al. 2018](https://arxiv.org/abs/1904.09237)). Default: no.
                #[config(default = false)]
                pub amsgrad: bool,
            }
        }

        impl $config {
            /// Returns the update rule, for a [`ParameterGroup`](crate::ParameterGroup).
            ///
            /// # Errors
            /// When an option is out of range.
            pub fn rule(&self) -> Result<AdamRule> {
                check_ranges($name, self)?;
                Ok(AdamRule {
                    beta_1: self.beta_1,
                    beta_2: self.beta_2,
                    epsilon: self.epsilon,
                    weight_decay: self.weight_decay,
                    decoupled: $decoupled,
                    amsgrad: self.amsgrad,
                })
            }
        }
    };
}

adam_config! {
    /// Options of [`Adam`] ([Kingma and Ba 2015](https://arxiv.org/abs/1412.6980)), with the formulas of
    /// `torch.optim.Adam`: weight decay is an L2 penalty, added to the gradient.
    ///
    /// With gradient `g` at step `t`: `m = beta_1 m + (1 - beta_1) g`, `v = beta_2 v + (1 - beta_2) g^2`, and the
    /// parameter changes by `-lr m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon)`.
    AdamConfig, Adam, "adam", 0.0, false
}

adam_config! {
    /// Options of [`AdamW`] ([Loshchilov and Hutter 2019](https://arxiv.org/abs/1711.05101)), with the formulas of
    /// `torch.optim.AdamW`. They are those of [`AdamConfig`] with decoupled weight decay: it multiplies the parameter
    /// by `1 - lr weight_decay` and does not affect the moment estimates.
    AdamWConfig, AdamW, "adamw", 0.01, true
}

/// The update rule of [`Adam`] and [`AdamW`].
#[derive(Clone, Debug)]
pub struct AdamRule {
    beta_1: f64,
    beta_2: f64,
    epsilon: f64,
    weight_decay: f64,
    decoupled: bool,
    amsgrad: bool,
}

const FIRST: &str = "exp_avg";
const SECOND: &str = "exp_avg_sq";
const MAX_SECOND: &str = "max_exp_avg_sq";

impl UpdateRule for AdamRule {
    fn name(&self) -> &'static str {
        if self.decoupled { "adamw" } else { "adam" }
    }

    fn slots(&self) -> &'static [&'static str] {
        if self.amsgrad { &[FIRST, SECOND, MAX_SECOND] } else { &[FIRST, SECOND] }
    }

    fn slot_code(&self, slot: &str) -> SlotCode {
        if slot == FIRST { SlotCode::Signed } else { SlotCode::NonNegative }
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
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
        let penalty = if self.decoupled { 0.0 } else { options.weight_decay };
        let gradient = with_l2_penalty(gradient, value, penalty)?;
        let beta_1 = options.momentum.unwrap_or(self.beta_1);
        let first = first_mean(beta_1, &gradient, state)?;
        let second = self.second_mean(gradient, state)?;
        let steps = state.steps() as f64;
        let first_bias = 1.0 - libm::pow(beta_1, steps);
        let second_bias = libm::sqrt(1.0 - libm::pow(self.beta_2, steps));
        // Numerator and denominator are both multiplied by `second_bias`: this saves a pass over the tensor.
        let denominator =
            second.unary(Unary::Sqrt)?.binary_scalar(Binary::Add, self.epsilon * second_bias)?;
        let rate = options.learning_rate * second_bias / first_bias;
        let step = first.div(denominator)?.binary_scalar(Binary::Mul, rate)?;
        let keep = if self.decoupled { 1.0 - options.learning_rate * options.weight_decay } else { 1.0 };
        Ok(Update { keep, step })
    }
}

impl AdamRule {
    /// The second moment `beta_2 v + (1 - beta_2) g^2`; with AMSGrad, its maximum so far.
    fn second_mean(&self, gradient: AnyTensor, state: &mut ParameterState) -> Result<AnyTensor> {
        let share = gradient.clone().mul(gradient)?.binary_scalar(Binary::Mul, 1.0 - self.beta_2)?;
        let decayed = |mean: AnyTensor, share| mean.binary_scalar(Binary::Mul, self.beta_2)?.add(share);
        let mean = accumulated(state, SECOND, share, decayed)?;
        if !self.amsgrad {
            return Ok(mean);
        }
        accumulated(state, MAX_SECOND, mean, |greatest, mean| greatest.binary(Binary::Max, mean))
    }
}

/// The first moment `beta_1 m + (1 - beta_1) g`, as `beta_1 (m - g) + g`, which can be computed in place.
fn first_mean(beta_1: f64, gradient: &AnyTensor, state: &mut ParameterState) -> Result<AnyTensor> {
    let gradient = gradient.clone();
    let mean = match state.take(FIRST) {
        None => gradient.binary_scalar(Binary::Mul, 1.0 - beta_1)?,
        Some(mean) => mean.sub(gradient.clone())?.binary_scalar(Binary::Mul, beta_1)?.add(gradient)?,
    };
    state.put(FIRST, mean.clone());
    Ok(mean)
}
