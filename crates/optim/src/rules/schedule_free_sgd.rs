//! The schedule-free SGD optimizer.

use super::schedule_free::{Averaging, MAX_RATE, WEIGHT_SUM, Z, converted, slot_type};
use crate::config::{Inputs, optimizer};
use crate::error::{Result, inside_unit};
use crate::sgd::with_l2_penalty;
use crate::{Mode, ParameterState, PerParameter, Update};
use kiln_tensor::{AnyTensor, TensorType};

/// The schedule-free SGD optimizer, created by [`ScheduleFreeSgdConfig`].
pub type ScheduleFreeSgd = PerParameter<ScheduleFreeSgdRule>;

optimizer! {
    /// Options of [`ScheduleFreeSgd`] ([Defazio et al. 2024](https://arxiv.org/abs/2405.15682)), with the formulas and
    /// defaults of the authors' code. A usual learning rate is 1.
    ///
    /// With gradient `g` at step `t`, and `beta_1 = momentum`:
    ///
    /// * `u = g + weight_decay y`
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
    /// use kiln_optim::{Optimizer, ScheduleFreeSgdConfig};
    /// use kiln_tensor::{Autodiff, Tensor};
    ///
    /// let mut model: Linear<Autodiff<Flex>> = LinearConfig::new(2, 1).init(&Default::default());
    /// let mut optimizer = ScheduleFreeSgdConfig::new().with_warmup_steps(3).init();
    /// for _ in 0..5 {
    ///     let loss = model.forward(Tensor::from([[1.0, 2.0]])).square().mean();
    ///     let gradients = GradientsParams::from_grads(loss.backward(), &model);
    ///     model = optimizer.step(0.01, model, gradients);
    /// }
    /// let averaged = optimizer.eval_model(model.clone());
    /// ```
    pub struct ScheduleFreeSgdConfig: ScheduleFreeSgd, ScheduleFreeSgdRule, "schedule_free_sgd" {
        /// The interpolation between the averages and `z`, between 0 and 1. Default: 0.9.
        #[config(default = 0.9)]
        pub momentum: f64,
    }
    weight_decay = 0.0: "The weight decay (L2 penalty)";
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
    check = |options| inside_unit(ScheduleFreeSgdRule::NAME, "the momentum", options.momentum);
    slots = { Z: Exact, WEIGHT_SUM: Exact, MAX_RATE: Exact };
    rule {
        fn slot_type(&self, slot: &str, parameter: TensorType) -> TensorType {
            slot_type(slot, parameter)
        }

        fn has_eval_values(&self) -> bool {
            true
        }

        fn converted(&self, value: AnyTensor, state: &ParameterState, to: Mode) -> Result<AnyTensor> {
            converted(value, state, to, self.options.momentum)
        }
    }
}

impl ScheduleFreeSgdRule {
    fn formula(&self, Inputs { value, gradient, state, options }: Inputs<'_>) -> Result<Update> {
        let ScheduleFreeSgdConfig { momentum, warmup_steps, r, weight_lr_power, .. } = self.options;
        let gradient = with_l2_penalty(gradient, value, options.weight_decay)?;
        let averaging = Averaging { beta_1: momentum, warmup_steps, r, weight_lr_power };
        averaging.update(value, gradient, state, options.learning_rate)
    }
}
