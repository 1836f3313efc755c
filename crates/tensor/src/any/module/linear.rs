//! Linear layers.

use crate::{AnyTensor, Result};
use alloc::format;
use kiln_ir::Binary;

impl AnyTensor {
    /// Applies a linear layer, `x · weightᵀ + bias`: `self` is `[.., in]`, weight `[out, in]`, bias `[out]`. See
    /// [`module::linear`](crate::module::linear).
    ///
    /// # Errors
    /// When tensor, weight or bias are not of these shapes, or the dtypes of tensor and weight differ or are `bool`.
    pub fn linear(self, weight: AnyTensor, bias: Option<AnyTensor>) -> Result<AnyTensor> {
        self.linear_by(AnyTensor::matmul, weight, bias)
    }

    /// Applies a linear layer in 8-bit floats. See [`float8::linear`](crate::float8::linear).
    ///
    /// # Errors
    /// As [`linear`](AnyTensor::linear), and when the dtype is not a float.
    pub fn linear_float8(self, weight: AnyTensor, bias: Option<AnyTensor>) -> Result<AnyTensor> {
        self.linear_by(AnyTensor::matmul_float8, weight, bias)
    }

    fn linear_by(
        self,
        product: fn(AnyTensor, AnyTensor) -> Result<AnyTensor>,
        weight: AnyTensor,
        bias: Option<AnyTensor>,
    ) -> Result<AnyTensor> {
        self.in_same_domain("linear", &weight)?;
        if weight.rank() != 2 {
            return Err(self
                .unlike("linear", "the weight needs 2 axes", &weight)
                .hint("the axes are [out, in]"));
        }
        let shape = *self.shape();
        let (output, input) = (weight.shape()[0], weight.shape()[1]);
        if shape.last() != Some(&input) {
            let problem = "the last axis must be as long as the weight's inputs";
            return Err(self
                .unlike("linear", problem, &weight)
                .hint(format!("the weight is [out, in]: it expects {input} input features")));
        }
        // One matmul over all rows: leading axes are merged.
        let last = shape.rank() - 1;
        let rows: usize = shape[..last].iter().product();
        let y = product(self.reshape([rows, input])?, weight.swap_dims(0, 1)?)?;
        let y = match bias {
            Some(bias) => y.binary(Binary::Add, bias).map_err(|error| error.in_op("linear"))?,
            None => y,
        };
        y.reshape(shape.with(last, output))
    }

    /// Applies a bilinear layer, `aᵀ W_o b + bias_o` for each output: `self` is `[.., in1]`, `other` `[.., in2]`,
    /// weight `[out, in1, in2]`. See [`module::bilinear`](crate::module::bilinear).
    ///
    /// # Errors
    /// When the operands are not of these shapes, or inputs and weight are not of one float dtype.
    pub fn bilinear(self, other: AnyTensor, weight: AnyTensor, bias: Option<AnyTensor>) -> Result<AnyTensor> {
        const OP: &str = "bilinear";
        self.check_float(OP)?;
        self.check_alike(OP, &other)?;
        self.check_alike(OP, &weight)?;
        self.check_rank(OP, 1, "[.., in]")?;
        let (shape, last) = (*self.shape(), self.rank() - 1);
        let same = other.rank() == self.rank() && other.shape()[..last] == shape[..last];
        if !same {
            return Err(self.unlike(OP, "the axes before the last differ", &other));
        }
        let (i, j) = (shape[last], other.shape()[last]);
        if weight.rank() != 3 || weight.shape()[1..] != [i, j] {
            return Err(self.unlike(OP, format!("the weight must be [out, {i}, {j}]"), &weight));
        }
        let out = weight.shape()[0];
        let rows: usize = shape[..last].iter().product();
        let (a, b) = (self.reshape([1, rows, i])?, other.reshape([1, rows, j])?);
        let y = a.expression_with([b, weight], |a, [b, weight]| {
            // [1, rows, i] x [out, i, j] -> [out, rows, j], times b, summed over j.
            (a.matmul(&weight) * b).sum(&[2]).reshape([out, rows]).transpose()
        });
        let y = match bias {
            Some(bias) => y.binary(Binary::Add, bias)?,
            None => y,
        };
        y.reshape(shape.with(last, out))
    }
}
