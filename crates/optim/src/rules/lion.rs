//! The Lion optimizer.

use crate::config::{Inputs, optimizer};
use crate::error::Result;
use crate::math::ema;
use crate::{PerParameter, Update};

/// The Lion optimizer, created by [`LionConfig`].
pub type Lion = PerParameter<LionRule>;

optimizer! {
    /// Options of [`Lion`] ([Chen et al. 2023](https://arxiv.org/abs/2302.06675)), with the formulas and defaults of
    /// the paper. A usual learning rate is 0.0001.
    ///
    /// With gradient `g`: `p = (1 - lr weight_decay) p - lr sign(beta_1 m + (1 - beta_1) g)`, then
    /// `m = beta_2 m + (1 - beta_2) g`.
    ///
    /// ```
    /// use kiln_optim::LionConfig;
    ///
    /// let optimizer = LionConfig::new().with_weight_decay(0.1).init();
    /// ```
    pub struct LionConfig: Lion, LionRule, "lion" {
        /// The factor of the momentum in the update. Default: 0.9.
        #[config(range = "[0, 1)", default = 0.9)]
        pub beta_1: f64,
        /// Decay rate of the momentum. Default: 0.99.
        #[config(range = "[0, 1)", default = 0.99)]
        pub beta_2: f64,
    }
    weight_decay = 0.0: "The decoupled weight decay";
    slots = { MEAN = "exp_avg": Signed };
}

impl LionRule {
    fn formula(&self, Inputs { gradient, state, options, .. }: Inputs<'_>) -> Result<Update> {
        let LionConfig { beta_1, beta_2, .. } = self.options;
        let mut direction = gradient.clone().mul_scalar(1.0 - beta_1)?;
        if let Some(mean) = state.get(MEAN) {
            direction = direction.add(mean.clone().mul_scalar(beta_1)?)?;
        }
        ema(state, MEAN, gradient, beta_2)?;
        let keep = 1.0 - options.learning_rate * options.weight_decay;
        Ok(Update { keep, step: direction.sign()?.mul_scalar(options.learning_rate)? })
    }
}
