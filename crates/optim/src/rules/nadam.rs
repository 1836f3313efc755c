//! The NAdam optimizer.

use crate::config::{Inputs, optimizer};
use crate::error::Result;
use crate::math::{decay, ema, scalar, scalar_type, times};
use crate::sgd::with_l2_penalty;
use crate::{PerParameter, Update};
use kiln_tensor::{AnyTensor, TensorType};

/// The NAdam optimizer, created by [`NAdamConfig`].
pub type NAdam = PerParameter<NAdamRule>;

optimizer! {
    /// Options of [`NAdam`], Adam with Nesterov momentum ([Dozat
    /// 2016](https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ)), with the formulas of `torch.optim.NAdam`. A usual
    /// learning rate is 0.002.
    ///
    /// With gradient `g` at step `t`, and `mu_t = beta_1 (1 - 0.96^(t momentum_decay) / 2)`:
    ///
    /// * `m = beta_1 m + (1 - beta_1) g`, `v = beta_2 v + (1 - beta_2) g^2`
    /// * `n = (1 - mu_t) g / (1 - mu_1 ... mu_t) + mu_(t+1) m / (1 - mu_1 ... mu_(t+1))`
    /// * `p -= lr n / (sqrt(v / (1 - beta_2^t)) + epsilon)`
    ///
    /// ```
    /// use kiln_optim::NAdamConfig;
    ///
    /// let optimizer = NAdamConfig::new().with_momentum_decay(0.01).init();
    /// ```
    pub struct NAdamConfig: NAdam, NAdamRule, "nadam" {
        /// Decay rate of the first moment estimate. Default: 0.9.
        #[config(range = "[0, 1)", default = 0.9)]
        pub beta_1: f64,
        /// Decay rate of the second moment estimate. Default: 0.999.
        #[config(range = "[0, 1)", default = 0.999)]
        pub beta_2: f64,
        /// Added to the denominator, for numerical stability. Default: 1e-8.
        #[config(range = "[0, inf)", default = 1e-8)]
        pub epsilon: f64,
        /// The decay of momentum. Default: 0.004.
        #[config(range = "[0, inf)", default = 0.004)]
        pub momentum_decay: f64,
    }
    weight_decay = 0.0: "The weight decay";
    {
        /// Whether weight decay is decoupled, as in AdamW. Default: no.
        #[config(default = false)]
        pub decoupled_weight_decay: bool,
    }
    maximize = false;
    slots = {
        MEAN = "exp_avg": Signed,
        SQUARES = "exp_avg_sq": NonNegative,
        PRODUCT = "mu_product": NonNegative,
    };
    momentum = beta_1;
    rule {
        fn slot_type(&self, slot: &str, parameter: TensorType) -> TensorType {
            if slot == PRODUCT { scalar_type(parameter) } else { parameter }
        }
    }
}

impl NAdamRule {
    fn formula(&self, Inputs { value, gradient, state, options }: Inputs<'_>) -> Result<Update> {
        let (keep, penalty) = decay(options, self.options.decoupled_weight_decay);
        let gradient = with_l2_penalty(gradient, value, penalty)?;
        let NAdamConfig { beta_2, epsilon, momentum_decay, .. } = self.options;
        let beta_1 = self.momentum(options);
        let steps = state.steps() as f64;
        let mu = |step: f64| beta_1 * (1.0 - 0.5 * libm::pow(0.96, step * momentum_decay));
        let product = match state.take(PRODUCT) {
            Some(product) => product.mul_scalar(mu(steps))?,
            None => scalar(mu(steps), &gradient)?,
        };
        state.put(PRODUCT, product.clone());
        let mean = ema(state, MEAN, gradient.clone(), beta_1)?;
        let squares = ema(state, SQUARES, gradient.clone().square()?, beta_2)?;
        let bias = 1.0 - libm::pow(beta_2, steps);
        let denominator = squares.div_scalar(bias)?.sqrt()?.add_scalar(epsilon)?;
        let factor = |weight: f64, product: AnyTensor| -> Result<AnyTensor> {
            Ok(product.neg()?.add_scalar(1.0)?.recip()?.mul_scalar(options.learning_rate * weight)?)
        };
        let of_gradient = times(gradient, factor(1.0 - mu(steps), product.clone())?)?;
        let next = mu(steps + 1.0);
        let of_mean = times(mean, factor(next, product.mul_scalar(next)?)?)?;
        Ok(Update { keep, step: of_gradient.add(of_mean)?.div(denominator)? })
    }
}
