//! The LARS optimizer.

use crate::config::optimizer_config;
use crate::error::{Result, not_negative, positive};
use crate::math::{norm, times};
use crate::sgd::with_l2_penalty;
use crate::{GradientClipping, ParameterState, PerParameter, StepOptions, Update, UpdateRule};
use kiln_ir::Comparison;
use kiln_nn::Config;
use kiln_tensor::AnyTensor;

/// The LARS optimizer, created by [`LarsConfig`].
pub type Lars = PerParameter<LarsRule>;

/// Options of [`Lars`], SGD with layerwise rates for large batches ([You et al.
/// 2017](https://arxiv.org/abs/1708.03888)).
///
/// With gradient `g`:
///
/// * `r = trust_coefficient |p| / (|g| + weight_decay |p| + epsilon)`, with L2 norms; 1 where a norm is 0
/// * `b = momentum b + lr r (g + weight_decay p)`
/// * `p -= b`
///
/// ```
/// use kiln_optim::LarsConfig;
///
/// let optimizer = LarsConfig::new().with_weight_decay(1e-4).init();
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct LarsConfig {
    /// The momentum factor: at least 0. Default: 0.9.
    #[config(default = 0.9)]
    pub momentum: f64,
    /// The factor of the layerwise rate: greater than 0. Default: 0.001.
    #[config(default = 0.001)]
    pub trust_coefficient: f64,
    /// Added to the denominator, for numerical stability: at least 0. Default: 1e-8.
    #[config(default = 1e-8)]
    pub epsilon: f64,
    /// The weight decay (L2 penalty): at least 0. Default: 0.
    #[config(default = 0.0)]
    #[config(into = crate::decay::WeightDecayConfig)]
    pub weight_decay: f64,
    /// Gradient clipping before the update. Default: none.
    pub grad_clipping: Option<GradientClipping>,
}

impl LarsConfig {
    /// Returns the update rule, for a [`ParameterGroup`](crate::ParameterGroup).
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn rule(&self) -> Result<LarsRule> {
        not_negative("lars", "momentum", self.momentum)?;
        positive("lars", "trust_coefficient", self.trust_coefficient)?;
        not_negative("lars", "epsilon", self.epsilon)?;
        not_negative("lars", "weight_decay", self.weight_decay)?;
        Ok(LarsRule { options: self.clone() })
    }
}

optimizer_config!(LarsConfig, Lars);

/// The update rule of [`Lars`].
#[derive(Clone, Debug)]
pub struct LarsRule {
    options: LarsConfig,
}

const BUFFER: &str = "momentum_buffer";

impl UpdateRule for LarsRule {
    fn name(&self) -> &'static str {
        "lars"
    }

    fn slots(&self) -> &'static [&'static str] {
        &[BUFFER]
    }

    fn weight_decay(&self) -> f64 {
        self.options.weight_decay
    }

    fn update(
        &self,
        value: &AnyTensor,
        gradient: AnyTensor,
        state: &mut ParameterState,
        options: StepOptions,
    ) -> Result<Update> {
        let LarsConfig { momentum, trust_coefficient, epsilon, .. } = self.options;
        let (size, slope) = (norm(value)?, norm(&gradient)?);
        let is_zero = size.clone().mul(slope.clone())?.compare_scalar(Comparison::Eq, 0.0)?;
        let denominator = slope.add(size.clone().mul_scalar(options.weight_decay)?)?.add_scalar(epsilon)?;
        let rate = size.div(denominator)?.mul_scalar(trust_coefficient)?;
        let rate = is_zero.if_else_number(1.0, rate)?.mul_scalar(options.learning_rate)?;
        let mut step = times(with_l2_penalty(gradient, value, options.weight_decay)?, rate)?;
        if let Some(buffer) = state.take(BUFFER) {
            step = buffer.mul_scalar(momentum)?.add(step)?;
        }
        state.put(BUFFER, step.clone());
        Ok(Update { keep: 1.0, step })
    }
}
