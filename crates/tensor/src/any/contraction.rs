//! Matrix products.

use crate::{AnyTensor, Result, Shape};
use kiln_ir::Op;

impl AnyTensor {
    /// Matrix products over the last two axes; the axes before broadcast.
    pub fn matmul(self, other: AnyTensor) -> Result<AnyTensor> {
        self.on_same_stack("matmul", &other)?;
        let (m, n) = (self.shape().rank(), other.shape().rank());
        let same_batch = m < 2 || n < 2 || self.shape()[..m - 2] == other.shape()[..n - 2];
        let inner_differ = m < 2 || n < 2 || self.shape()[m - 1] != other.shape()[n - 2];
        if same_batch || inner_differ {
            return self.apply_with(&Op::MatMul, [other.value.into()]);
        }
        let batch =
            kiln_ir::infer::broadcast_shapes(&self.shape()[..m - 2].into(), &other.shape()[..n - 2].into());
        let Some(batch) = batch else { return self.apply_with(&Op::MatMul, [other.value.into()]) };
        let full = |last: &[usize]| batch.iter().chain(last).copied().collect::<Shape>();
        let (a, b) = (full(&self.shape()[m - 2..]), full(&other.shape()[n - 2..]));
        let other = other.expand(b)?;
        self.expand(a)?.apply_with(&Op::MatMul, [other.value.into()])
    }
}
