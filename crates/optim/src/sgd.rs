//! The SGD optimizer.

use crate::config::optimizer_config;
use crate::error::{OptimError, Result, not_negative};
use crate::momentum::{MomentumConfig, SgdMomentum};
use crate::{GradientClipping, ParameterState, PerParameter, StepOptions, Update, UpdateRule};
use kiln_ir::Binary;
use kiln_nn::Config;
use kiln_tensor::AnyTensor;

/// Stochastic gradient descent, created by [`SgdConfig`].
pub type Sgd = PerParameter<SgdRule>;

/// Options of [`Sgd`], with the formulas of `torch.optim.SGD`.
///
/// With gradient `g`, parameter `p` and learning rate `lr`:
///
/// * `g += weight_decay p`
/// * with momentum: `b = momentum b + (1 - dampening) g` (`b = g` at the first step), then `g = b`, or
///   `g = g + momentum b` with Nesterov momentum
/// * `p -= lr g`
#[derive(Config, Clone, Debug, PartialEq)]
pub struct SgdConfig {
    /// The momentum factor: at least 0. Default: 0 (no momentum).
    #[config(default = 0.0)]
    #[config(no_setter)]
    pub momentum: f64,
    /// The dampening of momentum: `1 - dampening` is the factor of the gradient. Default: 0.
    #[config(default = 0.0)]
    pub dampening: f64,
    /// Whether to use Nesterov momentum. It requires momentum and no dampening. Default: no.
    #[config(default = false)]
    pub nesterov: bool,
    /// The weight decay (L2 penalty): at least 0. Default: 0.
    #[config(default = 0.0)]
    #[config(into = crate::decay::WeightDecayConfig)]
    pub weight_decay: f64,
    /// Whether to maximize the objective instead of minimizing it. Default: no.
    #[config(default = false)]
    pub maximize: bool,
    /// Gradient clipping before the update. Default: none.
    pub grad_clipping: Option<GradientClipping>,
}

impl SgdConfig {
    /// Sets the momentum: its factor, or a [`MomentumConfig`](crate::momentum::MomentumConfig), which sets dampening and
    /// Nesterov momentum too. `None` is no momentum.
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

    /// Returns the update rule, for a [`ParameterGroup`](crate::ParameterGroup).
    ///
    /// # Errors
    /// When an option is out of range, or Nesterov momentum is used without momentum or with dampening.
    pub fn rule(&self) -> Result<SgdRule> {
        not_negative("sgd", "momentum", self.momentum)?;
        not_negative("sgd", "weight_decay", self.weight_decay)?;
        if !self.dampening.is_finite() {
            return Err(OptimError::option("sgd", "dampening", self.dampening, "a finite number"));
        }
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            let value = "true, with momentum 0 or with dampening";
            return Err(OptimError::option(
                "sgd",
                "nesterov",
                value,
                "false, or momentum > 0 and dampening 0",
            ));
        }
        Ok(SgdRule {
            momentum: self.momentum,
            dampening: self.dampening,
            nesterov: self.nesterov,
            weight_decay: self.weight_decay,
            maximize: self.maximize,
        })
    }
}

optimizer_config!(SgdConfig, Sgd);

/// The update rule of [`Sgd`].
#[derive(Clone, Debug)]
pub struct SgdRule {
    momentum: f64,
    dampening: f64,
    nesterov: bool,
    weight_decay: f64,
    maximize: bool,
}

const BUFFER: &str = "momentum_buffer";

impl UpdateRule for SgdRule {
    fn name(&self) -> &'static str {
        "sgd"
    }

    fn slots(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 { &[] } else { &[BUFFER] }
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn has_momentum(&self) -> bool {
        self.momentum != 0.0
    }

    fn update(
        &self,
        value: &AnyTensor,
        gradient: AnyTensor,
        state: &mut ParameterState,
        options: StepOptions,
    ) -> Result<Update> {
        let gradient = if self.maximize { gradient.binary_scalar(Binary::Mul, -1.0)? } else { gradient };
        let gradient = with_l2_penalty(gradient, value, options.weight_decay)?;
        let momentum = options.momentum.unwrap_or(self.momentum);
        let direction =
            if momentum == 0.0 { gradient } else { self.with_momentum(momentum, gradient, state)? };
        Ok(Update { keep: 1.0, step: direction.binary_scalar(Binary::Mul, options.learning_rate)? })
    }
}

impl SgdRule {
    fn with_momentum(
        &self,
        momentum: f64,
        gradient: AnyTensor,
        state: &mut ParameterState,
    ) -> Result<AnyTensor> {
        let buffer = match state.take(BUFFER) {
            None => gradient.clone(),
            Some(buffer) => {
                let share = match self.dampening {
                    0.0 => gradient.clone(),
                    dampening => gradient.clone().binary_scalar(Binary::Mul, 1.0 - dampening)?,
                };
                buffer.binary_scalar(Binary::Mul, momentum)?.add(share)?
            }
        };
        state.put(BUFFER, buffer.clone());
        if !self.nesterov {
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
