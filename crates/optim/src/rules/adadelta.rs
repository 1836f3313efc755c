//! The Adadelta optimizer.

use crate::config::{Inputs, optimizer};
use crate::error::Result;
use crate::math::ema;
use crate::sgd::with_l2_penalty;
use crate::{PerParameter, Update};

/// The Adadelta optimizer, created by [`AdadeltaConfig`].
pub type Adadelta = PerParameter<AdadeltaRule>;

optimizer! {
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
    pub struct AdadeltaConfig: Adadelta, AdadeltaRule, "adadelta" {
        /// Decay rate of the means of squares. Default: 0.9.
        #[config(range = "[0, 1)", default = 0.9)]
        pub rho: f64,
        /// Added to the means of squares, for numerical stability. Default: 1e-6.
        #[config(range = "[0, inf)", default = 1e-6)]
        pub epsilon: f64,
    }
    weight_decay = 0.0: "The weight decay (L2 penalty)";
    maximize = false;
    slots = { SQUARES = "square_avg": NonNegative, DELTAS = "acc_delta": NonNegative };
}

impl AdadeltaRule {
    fn formula(&self, Inputs { value, gradient, state, options }: Inputs<'_>) -> Result<Update> {
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
