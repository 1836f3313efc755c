//! The SOAP optimizer.

use crate::config::{Inputs, optimizer};
use crate::error::Result;
use crate::math::{ema, scalar_type};
use crate::matrix::{Sides, eigenvectors, identity};
use crate::{ParameterState, PerParameter, Update};
use kiln_tensor::{AnyTensor, TensorType};

/// The SOAP optimizer, created by [`SoapConfig`].
pub type Soap = PerParameter<SoapRule>;

optimizer! {
    /// Options of [`Soap`], Adam in the eigenbasis of Shampoo's preconditioners
    /// ([Vyas et al. 2024](https://arxiv.org/abs/2409.11321)), with the defaults of the authors' code. A usual learning
    /// rate is 0.003.
    ///
    /// With a gradient matrix `g` and the eigenvectors `P`, `Q` of `L`, `R`:
    ///
    /// * `m = beta_1 m + (1 - beta_1) g`, `v = beta_2 v + (1 - beta_2) (P' g Q)^2`
    /// * `u = P (P' m Q / (sqrt(v) + epsilon)) Q'`, with the bias corrections of Adam
    /// * `p = (1 - lr weight_decay) p - lr u`
    /// * `L = beta_2 L + (1 - beta_2) g g'`, `R = beta_2 R + (1 - beta_2) g' g`
    ///
    /// The first step only sets `L` and `R`, as in the authors' code. A parameter of more axes is a matrix whose rows
    /// are its first axis. Vectors are updated by Adam.
    ///
    /// The eigenvectors are computed by matmuls only: Jacobi rotations of all pairs of columns at once, made orthogonal
    /// by Newton-Schulz iterations. They continue from the previous eigenvectors, in place of the QR iteration of the
    /// paper.
    ///
    /// ```
    /// use kiln_optim::SoapConfig;
    ///
    /// let optimizer = SoapConfig::new().with_update_interval(20).init();
    /// ```
    pub struct SoapConfig: Soap, SoapRule, "soap" {
        /// Decay rate of the first moment estimate. Default: 0.95.
        #[config(range = "[0, 1)", default = 0.95)]
        pub beta_1: f64,
        /// Decay rate of the second moment estimate. Default: 0.95.
        #[config(range = "[0, 1)", default = 0.95)]
        pub beta_2: f64,
        /// Added to the denominator, for numerical stability. Default: 1e-8.
        #[config(range = "[0, inf)", default = 1e-8)]
        pub epsilon: f64,
        /// The number of steps between two updates of the eigenvectors. Default: 10.
        #[config(range = "[1, inf]", default = 10)]
        pub update_interval: u64,
        /// The number of Jacobi iterations of an update of the eigenvectors; the first has 8 times as many. Default: 4.
        #[config(default = 4)]
        pub iterations: usize,
        /// The greatest side that is preconditioned; longer sides are not. Default: 1024.
        #[config(default = 1024)]
        pub max_size: usize,
    }
    weight_decay = 0.01: "The decoupled weight decay";
    slots = {
        MEAN = "exp_avg": Signed,
        SQUARES = "exp_avg_sq": NonNegative,
        LEFT = "left": Exact,
        RIGHT = "right": Exact,
        LEFT_BASIS = "left_basis": Exact,
        RIGHT_BASIS = "right_basis": Exact,
    };
    rule {
        fn has_slot(&self, slot: &str, parameter: TensorType) -> bool {
            let sides = Sides::of_matrix(parameter, self.options.max_size);
            match slot {
                LEFT | LEFT_BASIS => sides.left,
                RIGHT | RIGHT_BASIS => sides.right,
                _ => true,
            }
        }

        fn slot_type(&self, slot: &str, parameter: TensorType) -> TensorType {
            let sides = Sides::of_matrix(parameter, self.options.max_size);
            match slot {
                LEFT | LEFT_BASIS => sides.left_type(),
                RIGHT | RIGHT_BASIS => sides.right_type(),
                _ => TensorType::new([sides.rows, sides.columns], scalar_type(parameter).dtype),
            }
        }
    }
}

impl SoapRule {
    fn formula(&self, Inputs { value, gradient, state, options }: Inputs<'_>) -> Result<Update> {
        let sides = Sides::of_matrix(*value.ty(), self.options.max_size);
        let dtype = value.dtype();
        let shape = *value.shape();
        let matrix = gradient.cast(scalar_type(*value.ty()).dtype)?.reshape([sides.rows, sides.columns])?;
        if sides.count() > 0 && state.steps() == 1 {
            let zeros = matrix.zeros_like()?;
            state.put(MEAN, zeros.clone());
            state.put(SQUARES, zeros.clone());
            self.update_bases(matrix, sides, state)?;
            return Ok(Update { keep: 1.0, step: zeros.reshape(shape)?.cast(dtype)? });
        }
        let SoapConfig { beta_1, beta_2, epsilon, .. } = self.options;
        let steps = (state.steps() - u64::from(sides.count() > 0)) as f64;
        let mean = ema(state, MEAN, matrix.clone(), beta_1)?;
        let projected = project(matrix.clone(), state, false)?;
        let squares = ema(state, SQUARES, projected.square()?, beta_2)?;
        let direction = project(mean, state, false)?.div(squares.sqrt()?.add_scalar(epsilon)?)?;
        let direction = project(direction, state, true)?;
        self.update_bases(matrix, sides, state)?;
        let bias = libm::sqrt(1.0 - libm::pow(beta_2, steps)) / (1.0 - libm::pow(beta_1, steps));
        let step = direction.mul_scalar(options.learning_rate * bias)?;
        let keep = 1.0 - options.learning_rate * options.weight_decay;
        Ok(Update { keep, step: step.reshape(shape)?.cast(dtype)? })
    }

    /// Updates the preconditioners, and the eigenvectors if they are due.
    fn update_bases(&self, matrix: AnyTensor, sides: Sides, state: &mut ParameterState) -> Result<()> {
        let SoapConfig { beta_2, update_interval, iterations, .. } = self.options;
        let is_first = state.steps() == 1;
        let is_due = is_first || (state.steps() - 1).is_multiple_of(update_interval);
        let transposed = matrix.clone().transpose()?;
        let sides = [
            (sides.left, LEFT, LEFT_BASIS, matrix.clone(), transposed.clone()),
            (sides.right, RIGHT, RIGHT_BASIS, transposed, matrix),
        ];
        for (is_on, slot, basis_slot, a, b) in sides {
            if !is_on {
                continue;
            }
            let sum = ema(state, slot, a.matmul(b)?, beta_2)?;
            if !is_due {
                continue;
            }
            let (basis, iterations) = match state.take(basis_slot) {
                Some(basis) => (basis, iterations),
                None => (identity(&sum)?, 8 * iterations),
            };
            state.put(basis_slot, eigenvectors(sum, basis, iterations)?);
        }
        Ok(())
    }
}

/// Rotates a matrix into the eigenbases, or back.
fn project(matrix: AnyTensor, state: &ParameterState, back: bool) -> Result<AnyTensor> {
    let mut matrix = matrix;
    if let Some(basis) = state.get(LEFT_BASIS).cloned() {
        matrix = if back { basis.matmul(matrix)? } else { basis.transpose()?.matmul(matrix)? };
    }
    if let Some(basis) = state.get(RIGHT_BASIS).cloned() {
        matrix = if back { matrix.matmul(basis.transpose()?)? } else { matrix.matmul(basis)? };
    }
    Ok(matrix)
}
