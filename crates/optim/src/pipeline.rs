//! The treatment of gradients before an update: accumulation, loss scaling, clipping.

use crate::clip::{clip_by_norm, each, total_norm};
use crate::error::{OptimError, Result};
use crate::{GradientClipping, GradientsParams, LossScaler, LossScalerState, Norm};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use kiln_ir::Binary;
use kiln_nn::ParamId;
use kiln_tensor::{AnyTensor, TensorData};

/// The treatment of gradients before an update, in this order: accumulation of `n` passes, division by the loss scale,
/// check for NaN and infinity, clipping, and the global norm for reports.
///
/// Optimizers own one: see [`PerParameter::with_accumulation`](crate::PerParameter::with_accumulation),
/// [`with_loss_scaler`](crate::PerParameter::with_loss_scaler) and
/// [`with_grad_clipping`](crate::PerParameter::with_grad_clipping). An [`Optimizer`](crate::Optimizer) of your own can
/// hold one too.
#[derive(Clone, Debug)]
pub struct GradientPipeline {
    /// Number of passes per step.
    passes: u64,
    /// Number of passes in `total`.
    pass: u64,
    total: GradientsParams,
    scaler: Option<LossScaler>,
    clipping: Option<GradientClipping>,
    has_norm: bool,
}

impl Default for GradientPipeline {
    fn default() -> GradientPipeline {
        GradientPipeline {
            passes: 1,
            pass: 0,
            total: GradientsParams::new(),
            scaler: None,
            clipping: None,
            has_norm: false,
        }
    }
}

/// The names of the pipeline's entries in a state.
const PASS: &str = "@accumulation.pass";
const TOTAL: &str = "@accumulation.total.";
const SCALE: &str = "@loss_scaler.scale";
const FINITE_STEPS: &str = "@loss_scaler.finite_steps";

impl GradientPipeline {
    /// Returns a pipeline that does not change gradients.
    pub fn new() -> GradientPipeline {
        GradientPipeline::default()
    }

    /// Sets gradient clipping; `None` disables it. Default: none.
    ///
    /// # Errors
    /// When the limit is not finite or not greater than 0.
    pub fn with_grad_clipping(
        mut self,
        owner: &'static str,
        clipping: Option<GradientClipping>,
    ) -> Result<GradientPipeline> {
        if let Some(clipping) = clipping {
            clipping.check(owner)?;
        }
        self.clipping = clipping;
        Ok(self)
    }

    /// Sets the loss scaler; `None` disables loss scaling. Default: none.
    #[must_use]
    pub fn with_loss_scaler(mut self, scaler: Option<LossScaler>) -> GradientPipeline {
        self.scaler = scaler;
        self
    }

    /// Sets the number of passes whose gradients are averaged: at least 1. Default: 1.
    ///
    /// # Errors
    /// When the number is 0.
    pub fn with_accumulation(mut self, owner: &'static str, passes: u64) -> Result<GradientPipeline> {
        if passes == 0 {
            return Err(OptimError::option(owner, "the number of accumulated passes", 0, "at least 1"));
        }
        self.passes = passes;
        Ok(self)
    }

    /// Sets whether to compute the global norm also where clipping does not need it. Default: no.
    #[must_use]
    pub fn with_gradient_norm(mut self, has_norm: bool) -> GradientPipeline {
        self.has_norm = has_norm;
        self
    }

    /// Returns the loss scaler.
    pub fn scaler(&self) -> Option<&LossScaler> {
        self.scaler.as_ref()
    }

    /// Returns the factor of the loss: 1 without a loss scaler.
    pub fn loss_scale(&self) -> f64 {
        self.scaler.as_ref().map_or(1.0, LossScaler::scale)
    }

    /// The index of the next pass within its step, counted from 1. `None` without accumulation.
    pub(crate) fn next_pass(&self) -> Option<u64> {
        (self.passes > 1).then_some(self.pass + 1)
    }

    /// Adds the gradients of one pass. Returns their mean after the last pass of a step, `None` before.
    ///
    /// # Errors
    /// When a gradient differs from an earlier one of its parameter in type or device, or an op fails. The accumulated
    /// gradients are then dropped.
    pub fn accumulate(&mut self, gradients: GradientsParams) -> Result<Option<GradientsParams>> {
        if self.passes == 1 {
            return Ok(Some(gradients));
        }
        if let Err(error) = self.total.accumulate(gradients) {
            self.reset();
            return Err(error.into());
        }
        self.pass += 1;
        if self.pass < self.passes {
            return Ok(None);
        }
        let mut mean = core::mem::take(&mut self.total);
        self.pass = 0;
        let factor = 1.0 / self.passes as f64;
        each(&mut mean, |gradient| Ok(gradient.binary_scalar(Binary::Mul, factor)?))?;
        Ok(Some(mean))
    }

    /// Divides the gradients by the loss scale and adjusts it. Returns whether all are finite; `true` without a loss
    /// scaler. Waits for the device if there is one.
    ///
    /// # Errors
    /// When an op on a gradient fails, a gradient is in error, or the device failed.
    pub fn unscale(&mut self, gradients: &mut GradientsParams) -> Result<bool> {
        let Some(scaler) = &mut self.scaler else { return Ok(true) };
        let is_finite = scaler.unscale(gradients)?;
        scaler.update(is_finite);
        Ok(is_finite)
    }

    /// Clips the gradients, and returns the global L2 norm before clipping, of shape `[1]`, if it was computed. Does
    /// not wait for the device. `groups` are parameters with clipping of their own.
    ///
    /// # Errors
    /// When an op on a gradient fails.
    pub fn clip(
        &self,
        gradients: &mut GradientsParams,
        groups: Vec<(GradientClipping, Vec<ParamId>)>,
    ) -> Result<Option<AnyTensor>> {
        let mut norm = if self.has_norm { total_norm(gradients, Norm::L2)? } else { None };
        let is_whole = groups.is_empty();
        let mut clipped = GradientsParams::new();
        for (clipping, ids) in groups {
            let part = ids.into_iter().filter_map(|id| Some((id, gradients.remove(id)?)));
            let mut part = part.collect::<GradientsParams>();
            clipping.apply(&mut part)?;
            part.into_iter().for_each(|(id, gradient)| drop(clipped.insert(id, gradient)));
        }
        match self.clipping {
            Some(GradientClipping::GlobalNorm(limit)) => {
                let total = clip_by_norm(gradients, limit, Norm::L2)?;
                if is_whole {
                    norm = total;
                }
            }
            Some(clipping) => clipping.apply(gradients)?,
            None => {}
        }
        clipped.into_iter().for_each(|(id, gradient)| drop(gradients.insert(id, gradient)));
        Ok(norm)
    }

    /// Drops accumulated gradients.
    pub fn reset(&mut self) {
        self.total = GradientsParams::new();
        self.pass = 0;
    }

    /// Returns the state of the pipeline as named tensors: loss scale and accumulated gradients.
    pub(crate) fn state(&self, names: &[(String, ParamId)]) -> Result<Vec<(String, TensorData)>> {
        let mut entries = Vec::new();
        if let Some(scaler) = &self.scaler {
            let LossScalerState { scale, finite_steps } = scaler.state();
            entries.push((SCALE.to_string(), TensorData::scalar(scale)));
            entries.push((FINITE_STEPS.to_string(), TensorData::scalar(finite_steps)));
        }
        if self.pass > 0 {
            entries.push((PASS.to_string(), TensorData::scalar(self.pass)));
            for (name, id) in names {
                if let Some(gradient) = self.total.get(*id) {
                    entries.push((format!("{TOTAL}{name}"), gradient.to_data()?));
                }
            }
        }
        Ok(entries)
    }

    /// Returns the pipeline with the state that [`state`](GradientPipeline::state) returned. `place` returns id and
    /// value of a parameter. A pipeline without a loss scaler ignores its state.
    pub(crate) fn loaded(
        &self,
        entries: &[(String, TensorData)],
        place: impl Fn(&str) -> Option<(ParamId, kiln_tensor::Stack)>,
    ) -> Result<GradientPipeline> {
        let mut loaded = self.clone();
        loaded.reset();
        let invalid = |name: &str| OptimError::InvalidState {
            optimizer: "optimizer",
            parameter: name.to_string(),
            problem: "the entry is not valid".to_string(),
        };
        let mut scale = loaded.scaler.as_ref().map(LossScaler::state);
        for (name, data) in entries {
            let number = || data.to_vec::<f64>().first().copied().ok_or_else(|| invalid(name));
            match (&**name, &mut scale) {
                (SCALE, Some(state)) => state.scale = number()?,
                (FINITE_STEPS, Some(state)) => state.finite_steps = number()? as u64,
                (PASS, _) => loaded.pass = number()? as u64,
                (name, _) => {
                    let Some(path) = name.strip_prefix(TOTAL) else { continue };
                    let (id, stack) = place(path).ok_or_else(|| invalid(name))?;
                    loaded.total.insert(id, AnyTensor::from_data(data.clone(), &stack));
                }
            }
        }
        if let (Some(scaler), Some(state)) = (&mut loaded.scaler, scale) {
            scaler.load_state(state)?;
        }
        Ok(loaded)
    }
}
