//! The Adagrad optimizer.

use crate::config::{Inputs, optimizer};
use crate::error::Result;
use crate::sgd::with_l2_penalty;
use crate::{PerParameter, Update};

/// The Adagrad optimizer, created by [`AdagradConfig`].
pub type Adagrad = PerParameter<AdagradRule>;

optimizer! {
    /// Options of [`Adagrad`] ([Duchi et al. 2011](https://jmlr.org/papers/v12/duchi11a.html)), with the formulas of
    /// `torch.optim.Adagrad`. A usual learning rate is 0.01.
    ///
    /// With gradient `g` at step `t`: `g += weight_decay p`, `s += g^2`, and the parameter changes by
    /// `-lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + epsilon)`.
    ///
    /// ```
    /// use kiln_optim::AdagradConfig;
    ///
    /// let optimizer = AdagradConfig::new().with_lr_decay(0.01).init();
    /// ```
    pub struct AdagradConfig: Adagrad, AdagradRule, "adagrad" {
        /// The decay of the learning rate. Default: 0.
        #[config(range = "[0, inf)", default = 0.0)]
        pub lr_decay: f64,
        /// The initial sum of squares. Default: 0.
        #[config(range = "[0, inf)", default = 0.0)]
        pub initial_accumulator_value: f64,
        /// Added to the denominator, for numerical stability. Default: 1e-10.
        #[config(range = "[0, inf)", default = 1e-10)]
        pub epsilon: f64,
    }
    weight_decay = 0.0: "The weight decay (L2 penalty)";
    maximize = false;
    slots = { SUM = "sum": NonNegative };
}

impl AdagradRule {
    fn formula(&self, Inputs { value, gradient, state, options }: Inputs<'_>) -> Result<Update> {
        let gradient = with_l2_penalty(gradient, value, options.weight_decay)?;
        let AdagradConfig { lr_decay, initial_accumulator_value, epsilon, .. } = self.options;
        let squares = gradient.clone().square()?;
        let sum = match state.take(SUM) {
            Some(sum) => sum.add(squares)?,
            None => squares.add_scalar(initial_accumulator_value)?,
        };
        state.put(SUM, sum.clone());
        let rate = options.learning_rate / (1.0 + (state.steps() as f64 - 1.0) * lr_decay);
        let step = gradient.div(sum.sqrt()?.add_scalar(epsilon)?)?.mul_scalar(rate)?;
        Ok(Update { keep: 1.0, step })
    }
}
