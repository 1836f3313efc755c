//! The SGD optimizer.

use crate::config::{Inputs, optimizer};
use crate::error::{OptimError, Result};
use crate::momentum::{MomentumConfig, SgdMomentum};
use crate::{GradientClipping, ParameterState, PerParameter, Update};
use kiln_ir::Binary;
use kiln_tensor::AnyTensor;

/// Stochastic gradient descent, created by [`SgdConfig`].
pub type Sgd = PerParameter<SgdRule>;

optimizer! {
    /// Options of [`Sgd`], with the formulas of `torch.optim.SGD`.
    ///
    /// With gradient `g`, parameter `p` and learning rate `lr`:
    ///
    /// * `g += weight_decay p`
    /// * with momentum: `b = momentum b + (1 - dampening) g` (`b = g` at the first step), then `g = b`, or
    ///   `g = g + momentum b` with Nesterov momentum
    /// * `p -= lr g`
    pub struct SgdConfig: Sgd, SgdRule, "sgd" {
        /// The momentum factor. Default: 0 (no momentum).
        #[config(range = "[0, inf)", no_setter, default = 0.0)]
        pub momentum: f64,
        /// The dampening of momentum: `1 - dampening` is the factor of the gradient. Default: 0.
        #[config(range = "(-inf, inf)", default = 0.0)]
        pub dampening: f64,
        /// Whether to use Nesterov momentum. It requires momentum and no dampening. Default: no.
        #[config(default = false)]
        pub nesterov: bool,
    }
    weight_decay = 0.0: "The weight decay (L2 penalty)";
    maximize = false;
    check = check_nesterov;
    rule {
        fn slots(&self) -> &'static [&'static str] {
            if self.options.momentum == 0.0 { &[] } else { &[BUFFER] }
        }

        fn has_momentum(&self) -> bool {
            self.options.momentum != 0.0
        }
    }
}

fn check_nesterov(options: &SgdConfig) -> Result<()> {
    if options.nesterov && (options.momentum == 0.0 || options.dampening != 0.0) {
        let value = "true, with momentum 0 or with dampening";
        let requirement = "false, or momentum > 0 and dampening 0";
        return Err(OptimError::option(SgdRule::NAME, "nesterov", value, requirement));
    }
    Ok(())
}

impl SgdConfig {
    /// Sets the momentum: its factor, or a [`MomentumConfig`](crate::momentum::MomentumConfig), which sets dampening
    /// and Nesterov momentum too. `None` is no momentum.
    ///
    /// ```
    /// use kiln_optim::SgdConfig;
    /// use kiln_optim::momentum::MomentumConfig;
    ///
    /// let momentum = MomentumConfig::new().with_dampening(0.0).with_nesterov(true);
    /// let config = SgdConfig::new().with_momentum(Some(momentum));
    /// assert_eq!(config, SgdConfig::new().with_momentum(0.9).with_nesterov(true));
    /// ```
    #[must_use]
    pub fn with_momentum(self, momentum: impl Into<SgdMomentum>) -> SgdConfig {
        match momentum.into() {
            SgdMomentum::Factor(momentum) => SgdConfig { momentum, ..self },
            SgdMomentum::Options(MomentumConfig { momentum, dampening, nesterov }) => {
                SgdConfig { momentum, dampening, nesterov, ..self }
            }
        }
    }

    /// [`with_grad_clipping`](SgdConfig::with_grad_clipping) under the name that Burn uses here.
    #[must_use]
    pub fn with_gradient_clipping(self, clipping: impl Into<Option<GradientClipping>>) -> SgdConfig {
        self.with_grad_clipping(clipping)
    }
}

const BUFFER: &str = "momentum_buffer";

impl SgdRule {
    fn formula(&self, Inputs { value, gradient, state, options }: Inputs<'_>) -> Result<Update> {
        let gradient = with_l2_penalty(gradient, value, options.weight_decay)?;
        let momentum = options.momentum.unwrap_or(self.options.momentum);
        let direction =
            if momentum == 0.0 { gradient } else { self.with_momentum(momentum, gradient, state)? };
        Ok(Update { keep: 1.0, step: direction.binary_scalar(Binary::Mul, options.learning_rate)? })
    }

    fn with_momentum(
        &self,
        momentum: f64,
        gradient: AnyTensor,
        state: &mut ParameterState,
    ) -> Result<AnyTensor> {
        let buffer = match state.take(BUFFER) {
            None => gradient.clone(),
            Some(buffer) => {
                let share = match self.options.dampening {
                    0.0 => gradient.clone(),
                    dampening => gradient.clone().binary_scalar(Binary::Mul, 1.0 - dampening)?,
                };
                buffer.binary_scalar(Binary::Mul, momentum)?.add(share)?
            }
        };
        state.put(BUFFER, buffer.clone());
        if !self.options.nesterov {
            return Ok(buffer);
        }
        Ok(buffer.binary_scalar(Binary::Mul, momentum)?.add(gradient)?)
    }
}

/// Adds the L2 penalty: `gradient + weight_decay value`.
pub(crate) fn with_l2_penalty(
    gradient: AnyTensor,
    value: &AnyTensor,
    weight_decay: f64,
) -> Result<AnyTensor> {
    if weight_decay == 0.0 {
        return Ok(gradient);
    }
    Ok(value.clone().binary_scalar(Binary::Mul, weight_decay)?.add(gradient)?)
}
