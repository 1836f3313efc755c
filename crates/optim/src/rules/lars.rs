//! The LARS optimizer.

use crate::config::{Inputs, optimizer};
use crate::error::Result;
use crate::math::{accumulated, norm, times};
use crate::sgd::with_l2_penalty;
use crate::{PerParameter, Update};
use kiln_ir::Comparison;

/// The LARS optimizer, created by [`LarsConfig`].
pub type Lars = PerParameter<LarsRule>;

optimizer! {
    /// Options of [`Lars`], SGD with layerwise rates for large batches ([You et al.
    /// 2017](https://arxiv.org/abs/1708.03888)).
    ///
    /// With gradient `g`:
    ///
    /// * `r = trust_coefficient |p| / (|g| + weight_decay |p| + epsilon)`, with L2 norms; 1 where a norm is 0
    /// * `b = momentum b + lr r (g + weight_decay p)`
    /// * `p -= b`
    ///
    /// ```
    /// use kiln_optim::LarsConfig;
    ///
    /// let optimizer = LarsConfig::new().with_weight_decay(1e-4).init();
    /// ```
    pub struct LarsConfig: Lars, LarsRule, "lars" {
        /// The momentum factor. Default: 0.9.
        #[config(range = "[0, inf)", default = 0.9)]
        pub momentum: f64,
        /// The factor of the layerwise rate. Default: 0.001.
        #[config(range = "(0, inf)", default = 0.001)]
        pub trust_coefficient: f64,
        /// Added to the denominator, for numerical stability. Default: 1e-8.
        #[config(range = "[0, inf)", default = 1e-8)]
        pub epsilon: f64,
    }
    weight_decay = 0.0: "The weight decay (L2 penalty)";
    slots = { BUFFER = "momentum_buffer": Signed };
}

impl LarsRule {
    fn formula(&self, Inputs { value, gradient, state, options }: Inputs<'_>) -> Result<Update> {
        let LarsConfig { momentum, trust_coefficient, epsilon, .. } = self.options;
        let (size, slope) = (norm(value)?, norm(&gradient)?);
        let is_zero = size.clone().mul(slope.clone())?.compare_scalar(Comparison::Eq, 0.0)?;
        let denominator = slope.add(size.clone().mul_scalar(options.weight_decay)?)?.add_scalar(epsilon)?;
        let rate = size.div(denominator)?.mul_scalar(trust_coefficient)?;
        let rate = is_zero.if_else_number(1.0, rate)?.mul_scalar(options.learning_rate)?;
        let step = times(with_l2_penalty(gradient, value, options.weight_decay)?, rate)?;
        let step = accumulated(state, BUFFER, step, |buffer, step| buffer.mul_scalar(momentum)?.add(step))?;
        Ok(Update { keep: 1.0, step })
    }
}
