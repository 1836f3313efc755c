//! The averaged SGD optimizer.

use crate::config::{Inputs, optimizer};
use crate::error::Result;
use crate::sgd::with_l2_penalty;
use crate::{PerParameter, Update};

/// The averaged SGD optimizer, created by [`AsgdConfig`].
pub type Asgd = PerParameter<AsgdRule>;

optimizer! {
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
    pub struct AsgdConfig: Asgd, AsgdRule, "asgd" {
        /// The decay term. Default: 1e-4.
        #[config(range = "[0, inf)", default = 1e-4)]
        pub lambda: f64,
        /// The power of the decay of the learning rate. Default: 0.75.
        #[config(range = "[0, inf)", default = 0.75)]
        pub alpha: f64,
        /// The step at which averaging starts. Default: 1e6.
        #[config(range = "[0, inf)", default = 1e6)]
        pub t0: f64,
    }
    weight_decay = 0.0: "The weight decay (L2 penalty)";
    maximize = false;
    slots = { AVERAGE = "ax": Exact };
}

impl AsgdRule {
    fn formula(&self, Inputs { value, gradient, state, options }: Inputs<'_>) -> Result<Update> {
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
