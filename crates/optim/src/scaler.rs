//! Loss scaling: keeps 16-bit gradients from underflowing.

use crate::clip::{each, largest};
use crate::config::{check_ranges, init};
use crate::error::{OptimError, Result, inside_unit};
use crate::{GradientsParams, Optimizer};
use core::panic::Location;
use kiln_nn::{Config, Module};
use kiln_tensor::{Backend, Tensor};
use serde::{Deserialize, Serialize};

/// Options of [`LossScaler`], with the defaults of
/// [`torch.amp.GradScaler`](https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler).
#[derive(Config, Clone, Debug, PartialEq)]
pub struct LossScalerConfig {
    /// The initial scale: greater than 0. Default: 65536.
    #[config(default = 65536.0)]
    pub initial_scale: f64,
    /// The growth factor of the scale. Default: 2.
    #[config(range = "(1, inf)", default = 2.0)]
    pub growth_factor: f64,
    /// The backoff factor of the scale after non-finite gradients: between 0 and 1. Default: 0.5.
    #[config(default = 0.5)]
    pub backoff_factor: f64,
    /// The growth interval: consecutive steps with finite gradients before the scale grows. Default: 2000.
    #[config(range = "[1, inf]", default = 2000)]
    pub growth_interval: u64,
}

init!(LossScalerConfig, LossScaler, "scaler");

impl LossScalerConfig {
    /// Returns the scaler, or the error of an invalid option.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn try_init(&self) -> Result<LossScaler> {
        check_ranges(NAME, self)?;
        inside_unit(NAME, "backoff_factor", self.backoff_factor)?;
        let state = LossScalerState { scale: self.initial_scale, finite_steps: 0 };
        state.check()?;
        Ok(LossScaler { options: self.clone(), state })
    }
}

impl Default for LossScalerConfig {
    fn default() -> LossScalerConfig {
        LossScalerConfig::new()
    }
}

const NAME: &str = "loss_scaler";

/// Dynamic loss scaling: multiplies the loss by a scale before the backward pass, and divides the gradients by it
/// afterwards.
///
/// Gradients below 6e-8 underflow in `f16`: training with `Autocast<B, f16>` needs a scaled loss. A step with
/// non-finite gradients is skipped, and the scale shrinks. After a number of finite steps it grows. `bf16` needs no
/// loss scaling.
///
/// The algorithm is that of [`torch.amp.GradScaler`](https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling),
/// after [Micikevicius et al. 2018](https://arxiv.org/abs/1710.03740). A training loop:
///
/// ```
/// use kiln_backends::{Autocast, Flex};
/// use kiln_nn::{GradientsParams, Linear, LinearConfig};
/// use kiln_optim::{LossScalerConfig, SgdConfig};
/// use kiln_tensor::{Autodiff, Tensor, f16};
///
/// type B = Autodiff<Autocast<Flex, f16>>;
///
/// let device = Default::default();
/// let mut model: Linear<B> = LinearConfig::new(2, 1).init(&device);
/// let mut optimizer = SgdConfig::new().init();
/// let mut scaler = LossScalerConfig::new().init();
/// for _ in 0..10 {
///     let loss = model.forward(Tensor::<B, 2>::ones([4, 2], &device)).square().mean();
///     let gradients = GradientsParams::from_grads(scaler.scale_loss(loss).backward(), &model);
///     scaler.step(&mut optimizer, 0.1, &mut model, gradients)?;
/// }
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
///
/// To clip gradients explicitly, [`unscale`](LossScaler::unscale) them first. An optimizer's own
/// [`GradientClipping`](crate::GradientClipping) receives unscaled gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct LossScaler {
    options: LossScalerConfig,
    state: LossScalerState,
}

/// The state of a [`LossScaler`], for checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossScalerState {
    /// The scale of the next step.
    pub scale: f64,
    /// The number of consecutive steps with finite gradients since the scale changed.
    pub finite_steps: u64,
}

impl LossScalerState {
    fn check(self) -> Result<()> {
        if self.scale > 0.0 && fits(self.scale) {
            return Ok(());
        }
        Err(OptimError::option(NAME, "the scale", self.scale, "greater than 0 and finite as an f32"))
    }
}

/// Whether the scale and its inverse are representable in `f32`.
fn fits(scale: f64) -> bool {
    scale as f32 <= f32::MAX && (1.0 / scale) as f32 <= f32::MAX
}

impl LossScaler {
    /// Returns the scale of the next step.
    pub fn scale(&self) -> f64 {
        self.state.scale
    }

    /// Returns the loss times the scale. Call `backward` on it.
    #[must_use]
    pub fn scale_loss<B: Backend, const D: usize>(&self, loss: Tensor<B, D>) -> Tensor<B, D> {
        loss * self.state.scale
    }

    /// Divides the gradients by the scale and returns whether all are finite. Waits for the device.
    ///
    /// # Errors
    /// When an op on a gradient fails, or the device failed.
    pub fn unscale(&self, gradients: &mut GradientsParams) -> Result<bool> {
        let inverse = 1.0 / self.state.scale;
        each(gradients, |gradient| Ok(gradient.binary_scalar(kiln_ir::Binary::Mul, inverse)?))?;
        // The maximum is NaN if an element is NaN.
        Ok(largest(gradients)?.is_finite())
    }

    /// Updates the scale after a step. `is_finite` is the result of [`unscale`](LossScaler::unscale). Call it once per
    /// step.
    pub fn update(&mut self, is_finite: bool) {
        let LossScalerState { scale, finite_steps } = &mut self.state;
        let options = &self.options;
        let next = if !is_finite {
            *finite_steps = 0;
            *scale * options.backoff_factor
        } else if *finite_steps + 1 >= options.growth_interval {
            *finite_steps = 0;
            *scale * options.growth_factor
        } else {
            *finite_steps += 1;
            *scale
        };
        if fits(next) {
            *scale = next;
        }
    }

    /// Unscales the gradients, updates the module if all are finite, and adjusts the scale. Returns whether the module
    /// was updated.
    ///
    /// # Errors
    /// The errors of [`unscale`](LossScaler::unscale) and [`Optimizer::update`].
    #[track_caller]
    pub fn step(
        &mut self,
        optimizer: &mut dyn Optimizer,
        learning_rate: f64,
        module: &mut dyn Module,
        gradients: GradientsParams,
    ) -> Result<bool> {
        self.step_from(optimizer, learning_rate, module, gradients, Location::caller())
    }

    /// Performs [`step`](LossScaler::step) with an explicit call location for errors; see [`Optimizer::update_from`].
    ///
    /// # Errors
    /// See [`step`](LossScaler::step).
    pub fn step_from(
        &mut self,
        optimizer: &mut dyn Optimizer,
        learning_rate: f64,
        module: &mut dyn Module,
        mut gradients: GradientsParams,
        caller: &'static Location<'static>,
    ) -> Result<bool> {
        let is_finite = match self.unscale(&mut gradients) {
            Ok(is_finite) => is_finite,
            // The optimizer refuses such gradients, and its error contains the step.
            Err(error) => {
                optimizer.update_from(learning_rate, module, gradients, caller)?;
                optimizer.finish()?;
                return Err(error);
            }
        };
        if is_finite {
            optimizer.update_from(learning_rate, module, gradients, caller)?;
        }
        self.update(is_finite);
        Ok(is_finite)
    }

    /// Returns the state of the scaler.
    pub fn state(&self) -> LossScalerState {
        self.state
    }

    /// Replaces the state of the scaler and keeps its options.
    ///
    /// # Errors
    /// When the scale is not finite or not greater than 0. The scaler is then unchanged.
    pub fn load_state(&mut self, state: LossScalerState) -> Result<()> {
        state.check()?;
        self.state = state;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{LossScalerConfig, LossScalerState};

    #[test]
    fn the_loss_scale_matches_pytorch() {
        let config = LossScalerConfig::new().with_initial_scale(8.0).with_growth_interval(2);
        let mut scaler = config.init();
        let mut scales = alloc::vec::Vec::new();
        for is_finite in [true, true, true, false, true, true, false, false] {
            scaler.update(is_finite);
            scales.push(scaler.scale());
        }
        assert_eq!(scales, [8.0, 16.0, 16.0, 8.0, 8.0, 16.0, 8.0, 4.0]);
    }

    #[test]
    fn the_loss_scale_stays_finite() {
        let config = LossScalerConfig::new().with_initial_scale(1e38).with_growth_interval(1);
        let mut scaler = config.init();
        for _ in 0..10 {
            scaler.update(true);
        }
        assert!(scaler.scale() >= 1e38 && (scaler.scale() as f32).is_finite());
        for _ in 0..2000 {
            scaler.update(false);
        }
        assert!(scaler.scale() > 0.0 && (1.0 / scaler.scale() as f32).is_finite());
    }

    #[test]
    fn options_and_states_are_checked() {
        let refused = |config: LossScalerConfig| config.try_init().unwrap_err().to_string();
        let new = LossScalerConfig::new;
        assert!(refused(new().with_initial_scale(0.0)).contains("the scale is 0"));
        assert!(refused(new().with_initial_scale(f64::NAN)).contains("the scale is NaN"));
        assert!(refused(new().with_growth_factor(1.0)).contains("growth_factor is 1"));
        assert!(refused(new().with_backoff_factor(1.0)).contains("backoff_factor is 1"));
        assert!(refused(new().with_backoff_factor(0.0)).contains("backoff_factor is 0"));
        assert!(refused(new().with_growth_interval(0)).contains("growth_interval is 0"));
        let mut scaler = new().init();
        let state = LossScalerState { scale: f64::INFINITY, finite_steps: 3 };
        assert!(scaler.load_state(state).is_err());
        assert_eq!(scaler.scale(), 65536.0);
        scaler.load_state(LossScalerState { scale: 2.0, finite_steps: 3 }).unwrap();
        assert_eq!(scaler.state(), LossScalerState { scale: 2.0, finite_steps: 3 });
    }
}
