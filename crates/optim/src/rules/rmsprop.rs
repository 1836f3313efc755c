//! The RMSprop optimizer.

use crate::config::{Inputs, optimizer};
use crate::error::Result;
use crate::math::{accumulated, ema};
use crate::sgd::with_l2_penalty;
use crate::{PerParameter, SlotCode, Update};
use kiln_tensor::AnyTensor;

/// The RMSprop optimizer, created by [`RmsPropConfig`].
pub type RmsProp = PerParameter<RmsPropRule>;

optimizer! {
    /// Options of [`RmsProp`] ([Hinton, lecture
    /// 6e](https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf)), with the formulas of
    /// `torch.optim.RMSprop`. A usual learning rate is 0.01.
    ///
    /// With gradient `g`:
    ///
    /// * `g += weight_decay p`, `v = alpha v + (1 - alpha) g^2`
    /// * centered: `m = alpha m + (1 - alpha) g` and `d = sqrt(v - m^2) + epsilon`, otherwise `d = sqrt(v) + epsilon`
    /// * with momentum: `b = momentum b + g / d` and `p -= lr b`, otherwise `p -= lr g / d`
    ///
    /// ```
    /// use kiln_optim::RmsPropConfig;
    ///
    /// let optimizer = RmsPropConfig::new().with_momentum(0.9).init();
    /// ```
    pub struct RmsPropConfig: RmsProp, RmsPropRule, "rmsprop" {
        /// Decay rate of the mean of squares. Default: 0.99.
        #[config(range = "[0, 1)", default = 0.99)]
        pub alpha: f64,
        /// Added to the denominator, for numerical stability. Default: 1e-8.
        #[config(range = "[0, inf)", default = 1e-8)]
        pub epsilon: f64,
        /// The momentum factor. Default: 0 (no momentum).
        #[config(range = "[0, inf)", default = 0.0)]
        pub momentum: f64,
        /// Whether to subtract the squared mean of the gradient. Default: no.
        #[config(default = false)]
        pub centered: bool,
    }
    weight_decay = 0.0: "The weight decay (L2 penalty)";
    maximize = false;
    rule {
        fn slots(&self) -> &'static [&'static str] {
            match (self.options.momentum > 0.0, self.options.centered) {
                (false, false) => &[SQUARES],
                (true, false) => &[SQUARES, BUFFER],
                (false, true) => &[SQUARES, MEAN],
                (true, true) => &[SQUARES, MEAN, BUFFER],
            }
        }

        fn slot_code(&self, slot: &str) -> SlotCode {
            if slot == SQUARES { SlotCode::NonNegative } else { SlotCode::Signed }
        }

        fn has_momentum(&self) -> bool {
            self.options.momentum > 0.0
        }
    }
}

const SQUARES: &str = "square_avg";
const MEAN: &str = "grad_avg";
const BUFFER: &str = "momentum_buffer";

impl RmsPropRule {
    fn formula(&self, Inputs { value, gradient, state, options }: Inputs<'_>) -> Result<Update> {
        let gradient = with_l2_penalty(gradient, value, options.weight_decay)?;
        let RmsPropConfig { alpha, epsilon, momentum, centered, .. } = self.options;
        let momentum = options.momentum.unwrap_or(momentum);
        let mut squares = ema(state, SQUARES, gradient.clone().square()?, alpha)?;
        if centered {
            squares = squares.sub(ema(state, MEAN, gradient.clone(), alpha)?.square()?)?;
        }
        let mut direction = gradient.div(squares.sqrt()?.add_scalar(epsilon)?)?;
        if momentum > 0.0 {
            let add = |buffer: AnyTensor, new| buffer.mul_scalar(momentum)?.add(new);
            direction = accumulated(state, BUFFER, direction, add)?;
        }
        Ok(Update { keep: 1.0, step: direction.mul_scalar(options.learning_rate)? })
    }
}
