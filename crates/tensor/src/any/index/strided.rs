//! Elements gathered by strides.

use crate::{AnyTensor, Error, Result, Shape, TensorType};
use alloc::format;
use kiln_ir::{DType, MAX_RANK, Var};

impl AnyTensor {
    /// Gathers elements by strides: the element at each index is `offset + Σ strides[i] * index[i]` in row-major order.
    /// See [`Tensor::as_strided`](crate::Tensor::as_strided).
    ///
    /// # Errors
    /// When sizes and strides differ in number, are more than [`MAX_RANK`], or reach beyond the elements.
    pub fn as_strided(self, shape: &[usize], strides: &[usize], offset: usize) -> Result<AnyTensor> {
        const OP: &str = "as_strided";
        let wrong = |problem| Error::type_error(OP, problem, &[self.ty().into()]);
        if shape.len() != strides.len() || shape.len() > MAX_RANK {
            let problem = format!("{} sizes and {} strides", shape.len(), strides.len());
            return Err(wrong(problem).hint(format!("pass one stride for each size, at most {MAX_RANK}")));
        }
        let count = self.shape().num_elements();
        let is_empty = shape.contains(&0);
        let last = shape.iter().zip(strides).try_fold(offset, |last, (&size, &stride)| {
            last.checked_add(stride.checked_mul(size.saturating_sub(1))?)
        });
        if !is_empty && last.is_none_or(|last| last >= count) {
            let problem = format!(
                "sizes {shape:?} with strides {strides:?} from {offset} reach beyond the {count} elements"
            );
            return Err(wrong(problem).hint("the last index must be less than the number of elements"));
        }
        let result: Shape = shape.iter().copied().collect();
        if is_empty {
            return AnyTensor::zeros(self.ty().with_shape(result), self.stack());
        }
        let index = self.stack().int_dtype();
        let index = if count > i32::MAX as usize { DType::I64 } else { index };
        let flat = self.flatten_all()?;
        let places = flat.clone().expression(|x| {
            let ty = TensorType::new(result, index);
            let start = Var::full(x.engine(), ty, offset);
            strides.iter().enumerate().fold(start, |sum, (axis, &stride)| {
                let along = Var::iota(x.engine(), ty, axis);
                let stride = along.scalar(stride);
                sum + along.binary(kiln_ir::Binary::Mul, &stride)
            })
        });
        flat.take(0, places)
    }
}
