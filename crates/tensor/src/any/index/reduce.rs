//! Reduction of slices by index.

use super::write::ScatterReduction;
use crate::{AnyTensor, Axis, Error, Result};
use alloc::format;

impl AnyTensor {
    /// Reduces the slices of the source into the slices of an axis that the indices, `[count]`, select. See
    /// [`Tensor::index_reduce`](crate::Tensor::index_reduce).
    ///
    /// # Errors
    /// When the axis is out of range, the indices are not a vector of integers, the source does not have one slice of
    /// the tensor's dtype for each index, or the tensor is `bool`.
    pub fn index_reduce(
        self,
        axis: impl Into<Axis>,
        indices: AnyTensor,
        source: AnyTensor,
        reduction: ScatterReduction,
        include_self: bool,
    ) -> Result<AnyTensor> {
        const OP: &str = "index_reduce";
        let axis = axis.into().of(OP, self.ty())?;
        let wanted = self.shape().with(axis, indices.shape().num_elements());
        if indices.rank() != 1 || *source.shape() != wanted {
            let types = [self.ty().into(), indices.ty().into(), source.ty().into()];
            let problem = format!("1-D indices require a source of shape {wanted}");
            return Err(Error::type_error(OP, problem, &types)
                .hint("the source has one slice for each index, of the shape of the tensor's slices"));
        }
        let ones = (0..self.rank()).map(|other| if other == axis { wanted[axis] } else { 1 });
        let indices = indices.reshape(ones.collect::<crate::Shape>())?.expand(wanted)?;
        let reduced = self.scatter_reduce(axis, indices, source, reduction, include_self);
        reduced.map_err(|error| error.in_op(OP))
    }
}
