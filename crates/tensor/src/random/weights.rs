//! Checks of class weights before classes are drawn by them.

use crate::{AnyTensor, DType, Error, Result};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use kiln_ir::{
    Comparison, Custom, CustomOp, IndexUser, Op, OperandType, Reduction, ResultTypes, Shape, TensorData, Var,
};

/// `(weights) -> weights`, poisoned where the weights of a row, the last axis, do not allow a draw.
#[derive(Clone, Copy, Debug)]
struct CheckedWeights {
    /// The number of weights in a row that must be above 0.
    least: usize,
}

const NAME: &str = "checked_weights";

impl AnyTensor {
    /// Returns the weights unchanged if all are finite and not negative and at least `least` of each row are above 0;
    /// otherwise the value is an error.
    pub(crate) fn checked_weights(self, least: usize) -> Result<AnyTensor> {
        self.apply(&Op::Custom(Custom::new(CheckedWeights { least })))
    }
}

impl CustomOp for CheckedWeights {
    fn name(&self) -> &str {
        NAME
    }

    fn attributes(&self) -> String {
        self.least.to_string()
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        match inputs {
            [OperandType::Tensor(ty)] if ty.dtype.is_float() && ty.rank() > 0 => {
                Ok([**ty].into_iter().collect())
            }
            _ => Err(Error::type_error(NAME, "needs rows of floats", inputs)),
        }
    }

    /// Expands the check into ops. If the data stays on a device, the error names only the row.
    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        let weights = &inputs[0];
        let last = weights.rank() - 1;
        let zero = weights.scalar(0.0);
        let good = zero.compare(Comparison::Le, weights).and(&weights.less(&weights.scalar(f64::INFINITY)));
        let all = good.reduce(Reduction::Min, &[last]);
        let positive = zero.less(weights).cast(DType::I32).sum(&[last]);
        let least = i32::try_from(self.least).unwrap_or(i32::MAX);
        let enough = weights.scalar(least).compare(Comparison::Le, &positive);
        // 0 for a row of weights, -1 for any other.
        let index = all.and(&enough).cast(DType::I32) - all.scalar(1);
        let (rows, beside) = (weights.shape().without(last), index.shape());
        let check = Op::CheckIndex { length: 1, user: IndexUser::Multinomial };
        let zeros = index.reshape(rows).apply(check, &[]).reshape(beside).cast(weights.dtype());
        Some(alloc::vec![weights + zeros])
    }

    fn batched(&self) -> Option<Custom> {
        Some(Custom::new(*self))
    }
}

/// The kernel of a custom op for host data.
pub type HostKernel = fn(&Custom, &[TensorData]) -> Result<Vec<TensorData>>;

/// Host kernels of the custom ops of this crate, by the names of the ops. An engine with host data runs them instead of
/// expansions; their errors name the element.
pub const HOST_KERNELS: [(&str, HostKernel); 1] = [(NAME, kernel)];

fn kernel(op: &Custom, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
    let least = op.downcast::<CheckedWeights>().map_or(0, |op| op.least);
    check(&inputs[0], least).map(|()| inputs.to_vec())
}

fn check(data: &TensorData, least: usize) -> Result<()> {
    let shape = *data.shape();
    let last = shape.rank() - 1;
    let classes = shape[last];
    for (row, weights) in data.to_vec::<f64>().chunks(classes.max(1)).enumerate() {
        let strides = shape.without(last).row_major_strides();
        let position: Shape = (0..last).map(|axis| row / strides[axis] % shape[axis]).collect();
        let bad = weights.iter().position(|weight| !weight.is_finite() || *weight < 0.0);
        let problem = match bad {
            Some(class) => {
                let weight = weights[class];
                format!(
                    "the weight {weight} of class {class} in row {position} is not a finite number from 0 on"
                )
            }
            None => match weights.iter().filter(|weight| **weight > 0.0).count() {
                0 if least > 0 => format!("all weights of row {position} are 0"),
                positive if positive < least => {
                    format!(
                        "row {position} has {positive} weights above 0 for {least} draws without replacement"
                    )
                }
                _ => continue,
            },
        };
        return Err(Error::value("multinomial", problem)
            .hint("weights are finite and not negative, and every class that is drawn needs one above 0"));
    }
    Ok(())
}
