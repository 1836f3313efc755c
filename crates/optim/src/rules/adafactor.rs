//! The Adafactor optimizer.

use crate::config::{Inputs, optimizer};
use crate::error::Result;
use crate::math::{ema, norm, times};
use crate::{ParameterState, PerParameter, Update};
use kiln_tensor::DType;
use kiln_tensor::{AnyTensor, TensorType};

/// The Adafactor optimizer, created by [`AdafactorConfig`].
pub type Adafactor = PerParameter<AdafactorRule>;

optimizer! {
    /// Options of [`Adafactor`], Adam with a factored second moment ([Shazeer and Stern
    /// 2018](https://arxiv.org/abs/1804.04235)), with the formulas of `torch.optim.Adafactor`. A usual learning rate is
    /// 0.01.
    ///
    /// With gradient `g` at step `t`, `w = t^beta_2_decay` and RMS the root of the mean of squares:
    ///
    /// * matrices: `r` and `c` are moving means, with weight `w`, of the means of `g^2` along the last and the last but
    ///   one axis; `v = r c / max(mean(r), epsilon_1)`. Parameters of more axes are batches of matrices.
    /// * vectors and scalars: `v` is the moving mean of `g^2` with weight `w`
    /// * `u = g / sqrt(max(v, epsilon_1^2))`
    /// * `p = (1 - lr weight_decay) p - max(epsilon_2, RMS(p)) min(lr, 1 / sqrt(t)) u / max(1, RMS(u) / d)`
    ///
    /// ```
    /// use kiln_optim::AdafactorConfig;
    ///
    /// let optimizer = AdafactorConfig::new().with_weight_decay(0.01).init();
    /// ```
    pub struct AdafactorConfig: Adafactor, AdafactorRule, "adafactor" {
        /// The power of the step count that is the weight of the new second moment. Default: -0.8.
        #[config(range = "[-inf, 0]", default = -0.8)]
        pub beta_2_decay: f64,
        /// The smallest root of a second moment. Default: the machine epsilon of the parameter's dtype.
        #[config(range = "[0, inf)")]
        pub epsilon_1: Option<f64>,
        /// The smallest scale of a parameter. Default: 0.001.
        #[config(range = "[0, inf)", default = 1e-3)]
        pub epsilon_2: f64,
        /// The clipping threshold of the update's RMS. Default: 1.
        #[config(range = "(0, inf)", default = 1.0)]
        pub d: f64,
    }
    weight_decay = 0.0: "The decoupled weight decay";
    maximize = false;
    slots = {
        ROWS = "row_var": NonNegative,
        COLUMNS = "col_var": NonNegative,
        VARIANCE = "variance": NonNegative,
    };
    rule {
        fn has_slot(&self, slot: &str, parameter: TensorType) -> bool {
            (slot == VARIANCE) == (parameter.rank() < 2)
        }

        fn slot_type(&self, slot: &str, parameter: TensorType) -> TensorType {
            let Some(row_axis) = parameter.rank().checked_sub(2) else { return parameter };
            let reduced = if slot == ROWS { row_axis + 1 } else { row_axis };
            parameter.with_shape(parameter.shape.with(reduced, 1))
        }
    }
}

impl AdafactorRule {
    fn formula(&self, Inputs { value, gradient, state, options }: Inputs<'_>) -> Result<Update> {
        let AdafactorConfig { beta_2_decay, epsilon_2, d, .. } = self.options;
        let steps = state.steps() as f64;
        let epsilon_1 = self.epsilon_1(value.dtype());
        let beta = 1.0 - libm::pow(steps, beta_2_decay);
        let variance = variance(state, gradient.clone().square()?, beta, epsilon_1)?;
        let direction = variance.clamp_min(epsilon_1 * epsilon_1)?.rsqrt()?.mul(gradient)?;
        let rate = f64::min(options.learning_rate, 1.0 / libm::sqrt(steps));
        let size = rms(value)?.clamp_min(epsilon_2)?.mul_scalar(rate)?;
        let excess = rms(&direction)?.div_scalar(d)?.clamp_min(1.0)?;
        let keep = 1.0 - options.learning_rate * options.weight_decay;
        Ok(Update { keep, step: times(direction, size.div(excess)?)? })
    }

    fn epsilon_1(&self, dtype: DType) -> f64 {
        let of_dtype = if dtype == DType::F64 {
            f64::EPSILON
        } else if dtype == DType::F16 {
            0.0009765625
        } else if dtype == DType::BF16 {
            0.0078125
        } else {
            f64::from(f32::EPSILON)
        };
        self.options.epsilon_1.unwrap_or(of_dtype)
    }
}

/// The estimate of the second moment, factored if there are at least two axes.
fn variance(state: &mut ParameterState, squares: AnyTensor, beta: f64, epsilon_1: f64) -> Result<AnyTensor> {
    let Some(row_axis) = squares.rank().checked_sub(2) else { return ema(state, VARIANCE, squares, beta) };
    let rows = ema(state, ROWS, squares.clone().mean_over(&[row_axis + 1])?, beta)?;
    let columns = ema(state, COLUMNS, squares.mean_over(&[row_axis])?, beta)?;
    let mean = rows.clone().mean_over(&[row_axis])?.clamp_min(epsilon_1)?;
    Ok(rows.mul(columns)?.div(mean)?)
}

/// The root of the mean of squares, of shape `[1]`.
fn rms(tensor: &AnyTensor) -> Result<AnyTensor> {
    let count = tensor.shape().num_elements().max(1) as f64;
    Ok(norm(tensor)?.div_scalar(libm::sqrt(count))?)
}
