//! By index and by mask.

use crate::{AnyTensor, Result};
use kiln_ir::{Op, UpdateMode};

impl AnyTensor {
    /// Replaces an axis by the axes of the index.
    pub fn take(self, axis: usize, index: AnyTensor) -> Result<AnyTensor> {
        self.on_same_stack("take", &index)?;
        self.apply_with(&Op::Take { axis }, [index.value.into()])
    }

    /// Picks along an axis, for each element of the index.
    pub fn gather(self, axis: usize, index: AnyTensor) -> Result<AnyTensor> {
        self.on_same_stack("gather", &index)?;
        self.apply_with(&Op::Gather { axis }, [index.value.into()])
    }

    /// The reverse of [`take`](AnyTensor::take).
    pub fn put(
        self,
        axis: usize,
        index: AnyTensor,
        source: AnyTensor,
        mode: UpdateMode,
    ) -> Result<AnyTensor> {
        self.on_same_stack("put", &index)?;
        self.on_same_stack("put", &source)?;
        self.apply_with(&Op::Put { axis, mode }, [index.value.into(), source.value.into()])
    }

    /// The reverse of [`gather`](AnyTensor::gather).
    pub fn scatter_mode(
        self,
        axis: usize,
        index: AnyTensor,
        source: AnyTensor,
        mode: UpdateMode,
    ) -> Result<AnyTensor> {
        self.on_same_stack("scatter", &index)?;
        self.on_same_stack("scatter", &source)?;
        self.apply_with(&Op::Scatter { axis, mode }, [index.value.into(), source.value.into()])
    }

    /// `self` where the mask is false, `values` where it is true; broadcasts.
    pub fn mask_where(self, mask: AnyTensor, values: AnyTensor) -> Result<AnyTensor> {
        mask.if_else(values, self)
    }
}
