//! The Sophia-G optimizer.

use crate::config::{Inputs, optimizer};
use crate::error::Result;
use crate::math::ema;
use crate::{PerParameter, Update};
use core::panic::Location;
use kiln_nn::{GradientsParams, Module};

/// The Sophia-G optimizer, created by [`SophiaGConfig`].
pub type SophiaG = PerParameter<SophiaGRule>;

optimizer! {
    /// Options of [`SophiaG`] ([Liu et al. 2023](https://arxiv.org/abs/2305.14342)), with the formulas and defaults of
    /// the authors' code. A usual learning rate is 0.0002.
    ///
    /// With gradient `g`: `m = beta_1 m + (1 - beta_1) g`, and
    /// `p = (1 - lr weight_decay) p - lr sign(m) min(1, |m| / (rho batch_size h + 1e-15))`. The diagonal of the Hessian
    /// `h` starts at 0; [`SophiaG::update_hessian`] changes it.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::{GradientsParams, Linear, LinearConfig};
    /// use kiln_optim::{Optimizer, SophiaGConfig};
    /// use kiln_tensor::{Autodiff, Tensor};
    ///
    /// let mut model: Linear<Autodiff<Flex>> = LinearConfig::new(2, 1).init(&Default::default());
    /// let mut optimizer = SophiaGConfig::new().with_batch_size(2.0).init();
    /// let gradients = |model: &Linear<_>, target: f64| {
    ///     let loss = (model.forward(Tensor::from([[1.0, 2.0], [3.0, 4.0]])) - target).square().mean();
    ///     GradientsParams::from_grads(loss.backward(), model)
    /// };
    /// for step in 0..20 {
    ///     if step % 10 == 0 {
    ///         // In place of 0.3: labels drawn from the model's own distribution.
    ///         let sampled = gradients(&model, 0.3);
    ///         optimizer.update_hessian(&mut model, sampled)?;
    ///     }
    ///     let gradients = gradients(&model, 1.0);
    ///     model = optimizer.step(2e-4, model, gradients);
    /// }
    /// # Ok::<(), kiln_optim::OptimError>(())
    /// ```
    pub struct SophiaGConfig: SophiaG, SophiaGRule, "sophia_g" {
        /// Decay rate of the first moment estimate. Default: 0.965.
        #[config(range = "[0, 1)", default = 0.965)]
        pub beta_1: f64,
        /// Decay rate of the Hessian estimate. Default: 0.99.
        #[config(range = "[0, 1)", default = 0.99)]
        pub beta_2: f64,
        /// The threshold of clipping. Default: 0.04.
        #[config(range = "(0, inf)", default = 0.04)]
        pub rho: f64,
        /// Number of items (of tokens, for language models) over which the loss is a mean. Default: 5120.
        #[config(range = "(0, inf)", default = 5120.0)]
        pub batch_size: f64,
    }
    weight_decay = 0.1: "The decoupled weight decay";
    maximize = false;
    slots = { MEAN = "exp_avg": Signed, HESSIAN = "hessian": NonNegative };
}

impl SophiaGRule {
    fn formula(&self, Inputs { gradient, state, options, .. }: Inputs<'_>) -> Result<Update> {
        let SophiaGConfig { beta_1, rho, batch_size, .. } = self.options;
        let mean = ema(state, MEAN, gradient, beta_1)?;
        let hessian = match state.take(HESSIAN) {
            Some(hessian) => hessian,
            None => mean.zeros_like()?,
        };
        state.put(HESSIAN, hessian.clone());
        let curvature = hessian.mul_scalar(rho * batch_size)?.add_scalar(1e-15)?;
        let ratio = mean.clone().abs()?.div(curvature)?.clamp_max(1.0)?;
        let keep = 1.0 - options.learning_rate * options.weight_decay;
        Ok(Update { keep, step: mean.sign()?.mul(ratio)?.mul_scalar(options.learning_rate)? })
    }
}

impl SophiaG {
    /// Updates the estimate of the Hessian's diagonal from Gauss-Newton-Bartlett gradients:
    /// `h = beta_2 h + (1 - beta_2) g^2`. Call it every 10 steps or so.
    ///
    /// The gradients are those of the mean loss over a batch whose labels are drawn from the model's own predicted
    /// distribution. They are neither accumulated, unscaled nor clipped.
    ///
    /// # Errors
    /// When a gradient has another type than its parameter, a gradient is in error or an op fails.
    #[track_caller]
    pub fn update_hessian(&mut self, module: &mut dyn Module, gradients: GradientsParams) -> Result<()> {
        let beta_2 = self.rule().options.beta_2;
        self.change_states(module, gradients, Location::caller(), &mut |gradient, state| {
            if state.get(MEAN).is_none() {
                state.put(MEAN, gradient.zeros_like()?);
            }
            ema(state, HESSIAN, gradient.square()?, beta_2).map(drop)
        })
    }
}
