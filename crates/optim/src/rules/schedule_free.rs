//! The averaging that both schedule-free optimizers share.

use crate::error::Result;
use crate::math::{accumulated, ratio, scalar, scalar_type, times};
use crate::{Mode, ParameterState, Update};
use kiln_ir::Comparison;
use kiln_tensor::{AnyTensor, TensorType};

pub(super) const Z: &str = "z";
pub(super) const WEIGHT_SUM: &str = "weight_sum";
pub(super) const MAX_RATE: &str = "lr_max";

/// The options of the averaging.
pub(super) struct Averaging {
    pub(super) beta_1: f64,
    pub(super) warmup_steps: u64,
    pub(super) r: f64,
    pub(super) weight_lr_power: f64,
}

impl Averaging {
    /// Moves `y`, the value, and `z` along a direction.
    pub(super) fn update(
        &self,
        value: &AnyTensor,
        direction: AnyTensor,
        state: &mut ParameterState,
        learning_rate: f64,
    ) -> Result<Update> {
        let Averaging { beta_1, warmup_steps, .. } = *self;
        let warmup = if warmup_steps == 0 { 1.0 } else { state.steps() as f64 / warmup_steps as f64 };
        let rate = learning_rate * f64::min(warmup, 1.0);
        let share = self.share(value, state, rate)?;
        let z = match state.take(Z) {
            Some(z) => z,
            None => value.clone(),
        };
        state.put(Z, z.clone().sub(direction.clone().mul_scalar(rate)?)?);
        // lr (1 - beta_1 (1 - c))
        let factor = share.clone().mul_scalar(beta_1)?.add_scalar(1.0 - beta_1)?.mul_scalar(rate)?;
        let to_average = times(value.clone().sub(z)?, share)?;
        Ok(Update { keep: 1.0, step: to_average.add(times(direction, factor)?)? })
    }

    /// The share of this step in the average. It is on the device, as the largest rate depends on the steps that were
    /// not refused.
    fn share(&self, value: &AnyTensor, state: &mut ParameterState, rate: f64) -> Result<AnyTensor> {
        let largest = accumulated(state, MAX_RATE, scalar(rate, value)?, AnyTensor::maximum)?;
        let by_step = libm::pow(state.steps() as f64, self.r);
        let weight = largest.powf_scalar(self.weight_lr_power)?.mul_scalar(by_step)?;
        let sum = accumulated(state, WEIGHT_SUM, weight.clone(), AnyTensor::add)?;
        let is_zero = sum.clone().compare_scalar(Comparison::Eq, 0.0)?;
        Ok(is_zero.if_else_number(0.0, ratio(weight, sum)?)?)
    }
}

pub(super) fn slot_type(slot: &str, parameter: TensorType) -> TensorType {
    match slot {
        WEIGHT_SUM | MAX_RATE => scalar_type(parameter),
        _ => parameter,
    }
}

/// Converts between `y` and the average `x`.
pub(super) fn converted(
    value: AnyTensor,
    state: &ParameterState,
    to: Mode,
    beta_1: f64,
) -> Result<AnyTensor> {
    let Some(z) = state.get(Z).cloned() else { return Ok(value) };
    let weight = match to {
        Mode::Eval => 1.0 - 1.0 / beta_1,
        Mode::Train => 1.0 - beta_1,
    };
    Ok(value.lerp_scalar(z, weight)?)
}
