//! Matmul.

use crate::{AnyTensor, Result, Shape};
use kiln_ir::Op;

impl AnyTensor {
    /// Computes the matmul over the last two axes; the batch axes before them broadcast. A vector is a row on the left
    /// and a column on the right. The result does not have the added axis: the matmul of two vectors has rank 0.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.matmul.html>
    ///
    /// # Errors
    /// When a tensor has no axes, the inner sizes differ, the batch axes do not broadcast, or the dtypes differ or are
    /// `bool`.
    #[doc(alias = "mm")]
    #[doc(alias = "bmm")]
    #[doc(alias = "dot")]
    pub fn matmul(self, other: AnyTensor) -> Result<AnyTensor> {
        self.in_same_domain("matmul", &other)?;
        let (m, n) = (self.shape().rank(), other.shape().rank());
        if m == 1 || n == 1 {
            return self.matmul_vector(other);
        }
        let (a, b) = self.with_same_batch(other)?;
        a.apply_with(&Op::MatMul, [b.value.into()])
    }

    /// Broadcasts the batch axes of matrices to equal shapes. Incompatible operands are returned unchanged: inference
    /// reports the error.
    pub(super) fn with_same_batch(self, other: AnyTensor) -> Result<(AnyTensor, AnyTensor)> {
        let (m, n) = (self.shape().rank(), other.shape().rank());
        let same_batch = m < 2 || n < 2 || self.shape()[..m - 2] == other.shape()[..n - 2];
        let inner_differ = m < 2 || n < 2 || self.shape()[m - 1] != other.shape()[n - 2];
        if same_batch || inner_differ {
            return Ok((self, other));
        }
        let batch =
            kiln_ir::infer::broadcast_shapes(&self.shape()[..m - 2].into(), &other.shape()[..n - 2].into());
        let Some(batch) = batch else { return Ok((self, other)) };
        let full = |last: &[usize]| batch.iter().chain(last).copied().collect::<Shape>();
        let (a, b) = (full(&self.shape()[m - 2..]), full(&other.shape()[n - 2..]));
        let other = other.expand(b)?;
        Ok((self.expand(a)?, other))
    }

    /// Computes the matmul with a vector, which gets a second axis that the result does not have.
    fn matmul_vector(self, other: AnyTensor) -> Result<AnyTensor> {
        let (row, column) = (self.rank() == 1, other.rank() == 1);
        let inner = self.shape().last() == other.shape().iter().rev().nth(usize::from(!column));
        if self.rank() == 0 || other.rank() == 0 || !inner {
            // Type inference reports the error of the operands.
            let problem = if inner { "needs at least 1 axis" } else { "inner sizes differ" };
            let types = [self.ty().into(), other.ty().into()];
            return Err(kiln_ir::Error::type_error("matmul", problem, &types)
                .hint("a vector is as long as the last axis of a matrix on its left, or the second last on its right"));
        }
        let (a, b) = (*self.shape(), *other.shape());
        let left = if row { self.reshape(a.inserted(0, 1))? } else { self };
        let right = if column { other.reshape(b.inserted(1, 1))? } else { other };
        let product = left.matmul(right)?;
        let mut shape = *product.shape();
        if column {
            shape = shape.without(shape.rank() - 1);
        }
        if row {
            shape = shape.without(shape.rank() - if column { 1 } else { 2 });
        }
        product.reshape(shape)
    }
}
