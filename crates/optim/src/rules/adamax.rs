//! The Adamax optimizer.

use crate::config::{Inputs, optimizer};
use crate::error::Result;
use crate::math::{accumulated, ema};
use crate::sgd::with_l2_penalty;
use crate::{PerParameter, Update};

/// The Adamax optimizer, created by [`AdamaxConfig`].
pub type Adamax = PerParameter<AdamaxRule>;

optimizer! {
    /// Options of [`Adamax`], Adam with the infinity norm ([Kingma and Ba 2015](https://arxiv.org/abs/1412.6980),
    /// section 7), with the formulas of `torch.optim.Adamax`. A usual learning rate is 0.002.
    ///
    /// With gradient `g` at step `t`: `g += weight_decay p`, `m = beta_1 m + (1 - beta_1) g`,
    /// `u = max(beta_2 u, |g| + epsilon)`, and the parameter changes by `-lr m / (1 - beta_1^t) / u`.
    ///
    /// ```
    /// use kiln_optim::AdamaxConfig;
    ///
    /// let optimizer = AdamaxConfig::new().with_beta_2(0.99).init();
    /// ```
    pub struct AdamaxConfig: Adamax, AdamaxRule, "adamax" {
        /// Decay rate of the first moment estimate. Default: 0.9.
        #[config(range = "[0, 1)", default = 0.9)]
        pub beta_1: f64,
        /// Decay rate of the infinity norm. Default: 0.999.
        #[config(range = "[0, 1)", default = 0.999)]
        pub beta_2: f64,
        /// Added to the gradient's magnitude, for numerical stability. Default: 1e-8.
        #[config(range = "[0, inf)", default = 1e-8)]
        pub epsilon: f64,
    }
    weight_decay = 0.0: "The weight decay (L2 penalty)";
    maximize = false;
    slots = { MEAN = "exp_avg": Signed, NORM = "exp_inf": NonNegative };
    momentum = beta_1;
}

impl AdamaxRule {
    fn formula(&self, Inputs { value, gradient, state, options }: Inputs<'_>) -> Result<Update> {
        let gradient = with_l2_penalty(gradient, value, options.weight_decay)?;
        let AdamaxConfig { beta_2, epsilon, .. } = self.options;
        let beta_1 = self.momentum(options);
        let mean = ema(state, MEAN, gradient.clone(), beta_1)?;
        let magnitude = gradient.abs()?.add_scalar(epsilon)?;
        let norm = accumulated(state, NORM, magnitude, |norm, new| norm.mul_scalar(beta_2)?.maximum(new))?;
        let rate = options.learning_rate / (1.0 - libm::pow(beta_1, state.steps() as f64));
        Ok(Update { keep: 1.0, step: mean.div(norm)?.mul_scalar(rate)? })
    }
}
