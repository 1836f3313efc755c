//! The Shampoo optimizer.

use crate::config::{Inputs, optimizer};
use crate::error::Result;
use crate::math::{accumulated, scalar_type};
use crate::matrix::{Sides, identity, inverse_root};
use crate::sgd::with_l2_penalty;
use crate::{ParameterState, PerParameter, SlotCode, Update};
use kiln_tensor::{AnyTensor, TensorType};

/// The Shampoo optimizer, created by [`ShampooConfig`].
pub type Shampoo = PerParameter<ShampooRule>;

optimizer! {
    /// Options of [`Shampoo`] ([Gupta et al. 2018](https://arxiv.org/abs/1802.09568)). A usual learning rate is 0.1.
    ///
    /// With a gradient matrix `g`: `L += g g'`, `R += g' g`, `u = L^(-1/4) g R^(-1/4)`, `b = momentum b + u` and
    /// `p -= lr b`. `L` and `R` start at `epsilon` times the identity. A parameter of more axes is a matrix whose rows
    /// are its first axis, and a vector is a matrix of one column. With one preconditioned side the power is -1/2.
    /// Without one, the update is that of Adagrad.
    ///
    /// The roots are computed by matmuls only: coupled Newton iterations
    /// ([Anil et al. 2020](https://arxiv.org/abs/2002.09018)), with a ridge of 1e-6 times the norm of `L`.
    ///
    /// ```
    /// use kiln_optim::ShampooConfig;
    ///
    /// let optimizer = ShampooConfig::new().with_update_interval(10).init();
    /// ```
    pub struct ShampooConfig: Shampoo, ShampooRule, "shampoo" {
        /// The initial diagonal of the preconditioners. Default: 0.0001.
        #[config(range = "(0, inf)", default = 1e-4)]
        pub epsilon: f64,
        /// The momentum factor. Default: 0.
        #[config(range = "[0, 1)", default = 0.0)]
        pub momentum: f64,
        /// The number of steps between two computations of the roots. Default: 1.
        #[config(range = "[1, inf]", default = 1)]
        pub update_interval: u64,
        /// The greatest side that is preconditioned; longer sides are not. Default: 1024.
        #[config(default = 1024)]
        pub max_size: usize,
    }
    weight_decay = 0.0: "The weight decay (L2 penalty)";
    rule {
        fn slots(&self) -> &'static [&'static str] {
            if self.options.momentum == 0.0 {
                &[LEFT, RIGHT, LEFT_ROOT, RIGHT_ROOT, SUM]
            } else {
                &[LEFT, RIGHT, LEFT_ROOT, RIGHT_ROOT, SUM, BUFFER]
            }
        }

        fn slot_code(&self, slot: &str) -> SlotCode {
            if slot == BUFFER { SlotCode::Signed } else { SlotCode::Exact }
        }

        fn has_slot(&self, slot: &str, parameter: TensorType) -> bool {
            let sides = Sides::of(parameter, self.options.max_size);
            match slot {
                LEFT | LEFT_ROOT => sides.left,
                RIGHT | RIGHT_ROOT => sides.right,
                SUM => sides.count() == 0,
                _ => true,
            }
        }

        fn slot_type(&self, slot: &str, parameter: TensorType) -> TensorType {
            let sides = Sides::of(parameter, self.options.max_size);
            match slot {
                LEFT | LEFT_ROOT => sides.left_type(),
                RIGHT | RIGHT_ROOT => sides.right_type(),
                _ => parameter,
            }
        }
    }
}

const LEFT: &str = "left";
const RIGHT: &str = "right";
const LEFT_ROOT: &str = "left_root";
const RIGHT_ROOT: &str = "right_root";
const SUM: &str = "sum";
const BUFFER: &str = "momentum_buffer";

impl ShampooRule {
    fn formula(&self, Inputs { value, gradient, state, options }: Inputs<'_>) -> Result<Update> {
        let ShampooConfig { momentum, update_interval, epsilon, max_size, .. } = self.options;
        let gradient = with_l2_penalty(gradient, value, options.weight_decay)?;
        let sides = Sides::of(*value.ty(), max_size);
        let is_due = (state.steps() - 1).is_multiple_of(update_interval);
        let mut direction = match sides.count() {
            0 => adagrad(gradient, state, epsilon)?,
            _ => self.preconditioned(gradient, sides, state, is_due)?,
        };
        if momentum > 0.0 {
            let add = |buffer: AnyTensor, new| buffer.mul_scalar(momentum)?.add(new);
            direction = accumulated(state, BUFFER, direction, add)?;
        }
        Ok(Update { keep: 1.0, step: direction.mul_scalar(options.learning_rate)? })
    }

    fn preconditioned(
        &self,
        gradient: AnyTensor,
        sides: Sides,
        state: &mut ParameterState,
        is_due: bool,
    ) -> Result<AnyTensor> {
        let order = 2 * sides.count();
        let ty = *gradient.ty();
        let mut matrix = gradient.cast(scalar_type(ty).dtype)?.reshape([sides.rows, sides.columns])?;
        let root =
            |state: &mut ParameterState, sum_slot, root_slot, product: AnyTensor| -> Result<AnyTensor> {
                let sum = match state.take(sum_slot) {
                    Some(sum) => sum.add(product)?,
                    None => identity(&product)?.mul_scalar(self.options.epsilon)?.add(product)?,
                };
                state.put(sum_slot, sum.clone());
                match state.get(root_slot) {
                    Some(root) if !is_due => Ok(root.clone()),
                    Some(_) | None => {
                        let root = inverse_root(sum, order)?;
                        state.put(root_slot, root.clone());
                        Ok(root)
                    }
                }
            };
        let (plain, transposed) = (matrix.clone(), matrix.clone().transpose()?);
        if sides.left {
            let root = root(state, LEFT, LEFT_ROOT, plain.clone().matmul(transposed.clone())?)?;
            matrix = root.matmul(matrix)?;
        }
        if sides.right {
            matrix = matrix.matmul(root(state, RIGHT, RIGHT_ROOT, transposed.matmul(plain)?)?)?;
        }
        Ok(matrix.reshape(ty.shape)?.cast(ty.dtype)?)
    }
}

fn adagrad(gradient: AnyTensor, state: &mut ParameterState, epsilon: f64) -> Result<AnyTensor> {
    let squares = gradient.clone().square()?;
    let sum = match state.take(SUM) {
        Some(sum) => sum.add(squares)?,
        None => squares.add_scalar(epsilon)?,
    };
    state.put(SUM, sum.clone());
    Ok(gradient.div(sum.sqrt()?)?)
}
