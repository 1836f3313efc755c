//! The RAdam optimizer.

use crate::config::{Inputs, optimizer};
use crate::error::Result;
use crate::math::{decay, ema};
use crate::sgd::with_l2_penalty;
use crate::{PerParameter, Update};

/// The RAdam optimizer, created by [`RAdamConfig`].
pub type RAdam = PerParameter<RAdamRule>;

optimizer! {
    /// Options of [`RAdam`], Adam with a rectified second moment ([Liu et al. 2020](https://arxiv.org/abs/1908.03265)),
    /// with the formulas of `torch.optim.RAdam`. A usual learning rate is 0.001.
    ///
    /// With gradient `g` at step `t`: `m = beta_1 m + (1 - beta_1) g`, `v = beta_2 v + (1 - beta_2) g^2`,
    /// `rho = rho_inf - 2 t beta_2^t / (1 - beta_2^t)` and `rho_inf = 2 / (1 - beta_2) - 1`.
    ///
    /// * If `rho > 5`: `p -= lr m / (1 - beta_1^t) r sqrt(1 - beta_2^t) / (sqrt(v) + epsilon)`, with
    ///   `r = sqrt((rho - 4) (rho - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho))`.
    /// * Otherwise `p -= lr m / (1 - beta_1^t)`.
    ///
    /// ```
    /// use kiln_optim::RAdamConfig;
    ///
    /// let optimizer = RAdamConfig::new().with_weight_decay(0.01).with_decoupled_weight_decay(true).init();
    /// ```
    pub struct RAdamConfig: RAdam, RAdamRule, "radam" {
        /// Decay rate of the first moment estimate. Default: 0.9.
        #[config(range = "[0, 1)", default = 0.9)]
        pub beta_1: f64,
        /// Decay rate of the second moment estimate. Default: 0.999.
        #[config(range = "[0, 1)", default = 0.999)]
        pub beta_2: f64,
        /// Added to the denominator, for numerical stability. Default: 1e-8.
        #[config(range = "[0, inf)", default = 1e-8)]
        pub epsilon: f64,
    }
    weight_decay = 0.0: "The weight decay";
    {
        /// Whether weight decay is decoupled, as in AdamW. Default: no.
        #[config(default = false)]
        pub decoupled_weight_decay: bool,
    }
    maximize = false;
    slots = { MEAN = "exp_avg": Signed, SQUARES = "exp_avg_sq": NonNegative };
    momentum = beta_1;
}

impl RAdamRule {
    fn formula(&self, Inputs { value, gradient, state, options }: Inputs<'_>) -> Result<Update> {
        let (keep, penalty) = decay(options, self.options.decoupled_weight_decay);
        let gradient = with_l2_penalty(gradient, value, penalty)?;
        let RAdamConfig { beta_2, epsilon, .. } = self.options;
        let beta_1 = self.momentum(options);
        let steps = state.steps() as f64;
        let mean = ema(state, MEAN, gradient.clone(), beta_1)?;
        let squares = ema(state, SQUARES, gradient.square()?, beta_2)?;
        let rate = options.learning_rate / (1.0 - libm::pow(beta_1, steps));
        let power = libm::pow(beta_2, steps);
        let longest = 2.0 / (1.0 - beta_2) - 1.0;
        let length = longest - 2.0 * steps * power / (1.0 - power);
        if length <= 5.0 {
            return Ok(Update { keep, step: mean.mul_scalar(rate)? });
        }
        let ratio = (length - 4.0) * (length - 2.0) * longest;
        let rectification = libm::sqrt(ratio / ((longest - 4.0) * (longest - 2.0) * length));
        let rate = rate * rectification * libm::sqrt(1.0 - power);
        Ok(Update { keep, step: mean.div(squares.sqrt()?.add_scalar(epsilon)?)?.mul_scalar(rate)? })
    }
}
