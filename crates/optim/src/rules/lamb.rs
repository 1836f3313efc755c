//! The LAMB optimizer.

use crate::config::{Inputs, optimizer};
use crate::error::Result;
use crate::math::{ema, norm, ratio, times};
use crate::sgd::with_l2_penalty;
use crate::{PerParameter, Update};

/// The LAMB optimizer, created by [`LambConfig`].
pub type Lamb = PerParameter<LambRule>;

optimizer! {
    /// Options of [`Lamb`], Adam with layerwise rates for large batches ([You et al.
    /// 2020](https://arxiv.org/abs/1904.00962)). A usual learning rate is 0.001.
    ///
    /// With gradient `g` at step `t`:
    ///
    /// * `m = beta_1 m + (1 - beta_1) g`, `v = beta_2 v + (1 - beta_2) g^2`
    /// * `u = m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon) + weight_decay p`
    /// * `p -= lr |p| / |u| u`, with L2 norms; the ratio is 1 where a norm is 0
    ///
    /// ```
    /// use kiln_optim::LambConfig;
    ///
    /// let optimizer = LambConfig::new().with_weight_decay(0.1).init();
    /// ```
    pub struct LambConfig: Lamb, LambRule, "lamb" {
        /// Decay rate of the first moment estimate. Default: 0.9.
        #[config(range = "[0, 1)", default = 0.9)]
        pub beta_1: f64,
        /// Decay rate of the second moment estimate. Default: 0.999.
        #[config(range = "[0, 1)", default = 0.999)]
        pub beta_2: f64,
        /// Added to the denominator, for numerical stability. Default: 1e-6.
        #[config(range = "[0, inf)", default = 1e-6)]
        pub epsilon: f64,
    }
    weight_decay = 0.01: "The weight decay, added to the update";
    slots = { MEAN = "exp_avg": Signed, SQUARES = "exp_avg_sq": NonNegative };
}

impl LambRule {
    fn formula(&self, Inputs { value, gradient, state, options }: Inputs<'_>) -> Result<Update> {
        let LambConfig { beta_1, beta_2, epsilon, .. } = self.options;
        let steps = state.steps() as f64;
        let mean = ema(state, MEAN, gradient.clone(), beta_1)?;
        let squares = ema(state, SQUARES, gradient.square()?, beta_2)?;
        let mean = mean.div_scalar(1.0 - libm::pow(beta_1, steps))?;
        let deviation = squares.div_scalar(1.0 - libm::pow(beta_2, steps))?.sqrt()?;
        let direction = mean.div(deviation.add_scalar(epsilon)?)?;
        let direction = with_l2_penalty(direction, value, options.weight_decay)?;
        let ratio = ratio(norm(value)?, norm(&direction)?)?.mul_scalar(options.learning_rate)?;
        Ok(Update { keep: 1.0, step: times(direction, ratio)? })
    }
}
