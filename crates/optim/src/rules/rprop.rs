//! The Rprop optimizer.

use crate::config::{Inputs, optimizer};
use crate::error::{OptimError, Result, positive};
use crate::{PerParameter, Update};
use kiln_ir::Comparison;

/// The Rprop optimizer, created by [`RpropConfig`].
pub type Rprop = PerParameter<RpropRule>;

optimizer! {
    /// Options of [`Rprop`] ([Riedmiller and Braun 1993](https://doi.org/10.1109/ICNN.1993.298623)), with the formulas
    /// of `torch.optim.Rprop`, for full batches. The learning rate is the initial step size; a usual one is 0.01. Later
    /// rates have no effect. Weight decay has no effect.
    ///
    /// With gradient `g` and the previous gradient `h`, for each element:
    ///
    /// * `s = eta_plus s` if `g h > 0`, and `s = eta_minus s` if `g h < 0`; then `s` is clamped to the range of steps
    /// * `g = 0` if `g h < 0`
    /// * `p -= s sign(g)`
    ///
    /// ```
    /// use kiln_optim::RpropConfig;
    ///
    /// let optimizer = RpropConfig::new().with_eta_plus(1.1).init();
    /// ```
    pub struct RpropConfig: Rprop, RpropRule, "rprop" {
        /// The factor of a step size after a change of sign. Default: 0.5.
        #[config(range = "[0, 1)", default = 0.5)]
        pub eta_minus: f64,
        /// The factor of a step size without a change of sign: greater than 1. Default: 1.2.
        #[config(default = 1.2)]
        pub eta_plus: f64,
        /// The smallest step size. Default: 1e-6.
        #[config(range = "[0, inf)", default = 1e-6)]
        pub min_step: f64,
        /// The largest step size. Default: 50.
        #[config(range = "(0, inf)", default = 50.0)]
        pub max_step: f64,
    }
    maximize = false;
    check = check_steps;
    slots = { PREVIOUS = "prev": Exact, SIZES = "step_size": Exact };
}

fn check_steps(options: &RpropConfig) -> Result<()> {
    let RpropConfig { eta_plus, min_step, max_step, .. } = *options;
    positive(RpropRule::NAME, "eta_plus", eta_plus)?;
    if eta_plus <= 1.0 {
        return Err(OptimError::option(RpropRule::NAME, "eta_plus", eta_plus, "greater than 1"));
    }
    if max_step < min_step {
        return Err(OptimError::option(RpropRule::NAME, "max_step", max_step, "at least min_step"));
    }
    Ok(())
}

impl RpropRule {
    fn formula(&self, Inputs { gradient, state, options, .. }: Inputs<'_>) -> Result<Update> {
        let RpropConfig { eta_minus, eta_plus, min_step, max_step, .. } = self.options;
        let sizes = match state.take(SIZES) {
            Some(sizes) => sizes,
            None => gradient.full_like(options.learning_rate)?,
        };
        let (gradient, sizes) = match state.take(PREVIOUS) {
            None => (gradient, sizes),
            Some(previous) => {
                let sign = gradient.clone().mul(previous)?;
                let grows = sign.clone().scalar_compare(0.0, Comparison::Lt)?;
                let shrinks = sign.compare_scalar(Comparison::Lt, 0.0)?;
                let grown = sizes.clone().mul_scalar(eta_plus)?;
                let shrunk = sizes.clone().mul_scalar(eta_minus)?;
                let sizes = grows.if_else(grown, shrinks.clone().if_else(shrunk, sizes)?)?;
                (shrinks.if_else_number(0.0, gradient)?, sizes)
            }
        };
        let sizes = sizes.clamp(min_step, max_step)?;
        state.put(SIZES, sizes.clone());
        state.put(PREVIOUS, gradient.clone());
        Ok(Update { keep: 1.0, step: gradient.sign()?.mul(sizes)? })
    }
}
