//! The Adan optimizer.

use crate::config::{Inputs, optimizer};
use crate::error::Result;
use crate::math::ema;
use crate::{PerParameter, Update};

/// The Adan optimizer, created by [`AdanConfig`].
pub type Adan = PerParameter<AdanRule>;

optimizer! {
    /// Options of [`Adan`], adaptive Nesterov momentum ([Xie et al. 2022](https://arxiv.org/abs/2208.06677)), with the
    /// formulas and defaults of the authors' code. A usual learning rate is 0.001.
    ///
    /// With gradient `g` and its change `d` since the last step (0 at the first), at step `t`:
    ///
    /// * `m = beta_1 m + (1 - beta_1) g`, `v = beta_2 v + (1 - beta_2) d`,
    ///   `n = beta_3 n + (1 - beta_3) (g + beta_2 d)^2`
    /// * `u = (m / (1 - beta_1^t) + beta_2 v / (1 - beta_2^t)) / (sqrt(n / (1 - beta_3^t)) + epsilon)`
    /// * `p = (p - lr u) / (1 + lr weight_decay)`; with `no_prox`, `p = (1 - lr weight_decay) p - lr u`
    ///
    /// ```
    /// use kiln_optim::AdanConfig;
    ///
    /// let optimizer = AdanConfig::new().with_weight_decay(0.02).init();
    /// ```
    pub struct AdanConfig: Adan, AdanRule, "adan" {
        /// Decay rate of the first moment estimate. Default: 0.98.
        #[config(range = "[0, 1)", default = 0.98)]
        pub beta_1: f64,
        /// Decay rate of the mean of gradient differences. Default: 0.92.
        #[config(range = "[0, 1)", default = 0.92)]
        pub beta_2: f64,
        /// Decay rate of the second moment estimate. Default: 0.99.
        #[config(range = "[0, 1)", default = 0.99)]
        pub beta_3: f64,
        /// Added to the denominator, for numerical stability. Default: 1e-8.
        #[config(range = "[0, inf)", default = 1e-8)]
        pub epsilon: f64,
    }
    weight_decay = 0.0: "The decoupled weight decay";
    {
        /// Whether weight decay is applied as in AdamW, not as a proximal step. Default: no.
        #[config(default = false)]
        pub no_prox: bool,
    }
    slots = {
        MEAN = "exp_avg": Signed,
        CHANGE = "exp_avg_diff": Signed,
        SQUARES = "exp_avg_sq": NonNegative,
        PREVIOUS = "previous_grad": Signed,
    };
}

impl AdanRule {
    fn formula(&self, Inputs { gradient, state, options, .. }: Inputs<'_>) -> Result<Update> {
        let AdanConfig { beta_1, beta_2, beta_3, epsilon, no_prox, .. } = self.options;
        let steps = state.steps() as f64;
        let change = match state.take(PREVIOUS) {
            Some(previous) => gradient.clone().sub(previous)?,
            None => gradient.zeros_like()?,
        };
        state.put(PREVIOUS, gradient.clone());
        let ahead = gradient.clone().add(change.clone().mul_scalar(beta_2)?)?;
        let mean = ema(state, MEAN, gradient, beta_1)?;
        let change = ema(state, CHANGE, change, beta_2)?;
        let squares = ema(state, SQUARES, ahead.square()?, beta_3)?;
        let bias = |beta: f64| 1.0 - libm::pow(beta, steps);
        let denominator = squares.sqrt()?.div_scalar(libm::sqrt(bias(beta_3)))?.add_scalar(epsilon)?;
        let rate = options.learning_rate;
        let numerator = mean.mul_scalar(rate / bias(beta_1))?;
        let numerator = numerator.add(change.mul_scalar(rate * beta_2 / bias(beta_2))?)?;
        let step = numerator.div(denominator)?;
        let decay = rate * options.weight_decay;
        if no_prox {
            return Ok(Update { keep: 1.0 - decay, step });
        }
        let keep = 1.0 / (1.0 + decay);
        Ok(Update { keep, step: step.mul_scalar(keep)? })
    }
}
