//! The schedule-free AdamW optimizer.

use super::schedule_free::{Averaging, MAX_RATE, WEIGHT_SUM, Z, converted, slot_type};
use crate::config::{Inputs, optimizer};
use crate::error::{Result, inside_unit};
use crate::math::ema;
use crate::sgd::with_l2_penalty;
use crate::{Mode, ParameterState, PerParameter, Update};
use kiln_tensor::{AnyTensor, TensorType};

/// The schedule-free AdamW optimizer, created by [`ScheduleFreeAdamWConfig`].
pub type ScheduleFreeAdamW = PerParameter<ScheduleFreeAdamWRule>;

optimizer! {
    /// Options of [`ScheduleFreeAdamW`] ([Defazio et al. 2024](https://arxiv.org/abs/2405.15682)), with the formulas
    /// and defaults of the authors' code. A usual learning rate is 0.0025.
    ///
    /// With gradient `g` at step `t`:
    ///
    /// * `v = beta_2 v + (1 - beta_2) g^2`, `u = g / (sqrt(v / (1 - beta_2^t)) + epsilon) + weight_decay y`
    /// * `c = w / (sum of all w)`, with `w = t^r lr_max^weight_lr_power` and the largest rate so far `lr_max`
    /// * `y = (1 - c) y + c z - lr (1 - beta_1 (1 - c)) u`, `z -= lr u`
    ///
    /// The parameters of the module are `y`, at which gradients are computed. Evaluate the averages
    /// `x = y + (1 - 1 / beta_1) (z - y)`: see [`Optimizer::eval_model`](crate::Optimizer::eval_model). No
    /// learning-rate schedule is needed; `warmup_steps` raises the rate linearly.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::{GradientsParams, Linear, LinearConfig};
    /// use kiln_optim::{Optimizer, ScheduleFreeAdamWConfig};
    /// use kiln_tensor::{Autodiff, Tensor};
    ///
    /// let mut model: Linear<Autodiff<Flex>> = LinearConfig::new(2, 1).init(&Default::default());
    /// let mut optimizer = ScheduleFreeAdamWConfig::new().with_warmup_steps(3).init();
    /// for _ in 0..5 {
    ///     let loss = model.forward(Tensor::from([[1.0, 2.0]])).square().mean();
    ///     let gradients = GradientsParams::from_grads(loss.backward(), &model);
    ///     model = optimizer.step(0.01, model, gradients);
    /// }
    /// let averaged = optimizer.eval_model(model.clone());
    /// ```
    pub struct ScheduleFreeAdamWConfig: ScheduleFreeAdamW, ScheduleFreeAdamWRule, "schedule_free_adamw" {
        /// The interpolation between the averages and `z`, between 0 and 1. Default: 0.9.
        #[config(default = 0.9)]
        pub beta_1: f64,
        /// Decay rate of the second moment estimate. Default: 0.999.
        #[config(range = "[0, 1)", default = 0.999)]
        pub beta_2: f64,
        /// Added to the denominator, for numerical stability. Default: 1e-8.
        #[config(range = "[0, inf)", default = 1e-8)]
        pub epsilon: f64,
    }
    weight_decay = 0.0: "The weight decay, at `y`";
    {
        /// The number of steps in which the rate rises linearly. Default: 0.
        #[config(default = 0)]
        pub warmup_steps: u64,
        /// The power of the step count in the weight of the average. Default: 0.
        #[config(range = "[0, inf)", default = 0.0)]
        pub r: f64,
        /// The power of the largest rate in the weight of the average. Default: 2.
        #[config(range = "[0, inf)", default = 2.0)]
        pub weight_lr_power: f64,
    }
    check = |options| inside_unit(ScheduleFreeAdamWRule::NAME, "the momentum", options.beta_1);
    slots = { Z: Exact, SQUARES = "exp_avg_sq": NonNegative, WEIGHT_SUM: Exact, MAX_RATE: Exact };
    rule {
        fn slot_type(&self, slot: &str, parameter: TensorType) -> TensorType {
            slot_type(slot, parameter)
        }

        fn has_eval_values(&self) -> bool {
            true
        }

        fn converted(&self, value: AnyTensor, state: &ParameterState, to: Mode) -> Result<AnyTensor> {
            converted(value, state, to, self.options.beta_1)
        }
    }
}

impl ScheduleFreeAdamWRule {
    fn formula(&self, Inputs { value, gradient, state, options }: Inputs<'_>) -> Result<Update> {
        let ScheduleFreeAdamWConfig { beta_1, beta_2, epsilon, warmup_steps, r, weight_lr_power, .. } =
            self.options;
        let squares = ema(state, SQUARES, gradient.clone().square()?, beta_2)?;
        let bias = 1.0 - libm::pow(beta_2, state.steps() as f64);
        let direction = gradient.div(squares.div_scalar(bias)?.sqrt()?.add_scalar(epsilon)?)?;
        let direction = with_l2_penalty(direction, value, options.weight_decay)?;
        let averaging = Averaging { beta_1, warmup_steps, r, weight_lr_power };
        averaging.update(value, direction, state, options.learning_rate)
    }
}
