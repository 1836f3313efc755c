//! Gradients.

use crate::tensor::{detach, require_grad};
use crate::{AnyTensor, Result, Stack};
use kiln_autodiff::Autodiff as Layer;

impl AnyTensor {
    /// Whether the tensor is a start of a tape.
    pub fn is_require_grad(&self) -> bool {
        self.stack().outermost::<Layer>().is_some_and(|layer| layer.leaf_id(self.value()).is_some())
    }

    /// A new start of a tape.
    ///
    /// # Errors
    /// When the stack has no automatic differentiation, or the dtype is no float.
    pub fn require_grad(self) -> Result<AnyTensor> {
        require_grad(self)
    }

    /// The same elements without a tape.
    #[must_use]
    pub fn detach(self) -> AnyTensor {
        detach(self)
    }

    /// The tensor on the stack below automatic differentiation; the same tensor if there is none.
    #[must_use]
    pub fn inner(self) -> AnyTensor {
        let stack = self.stack().clone();
        let (Some(layer), Some(below)) = (stack.outermost::<Layer>(), stack.below()) else { return self };
        // `detach` takes the value over, so that a sole owner stays one.
        AnyTensor::new(below.clone(), layer.detach(self.into_value()))
    }

    /// The tensor brought under the automatic differentiation of a stack, without a tape: the reverse of
    /// [`inner`](AnyTensor::inner).
    ///
    /// # Errors
    /// When the tensor is not on the stack below.
    pub fn from_inner(self, stack: &Stack) -> Result<AnyTensor> {
        match stack.outermost::<Layer>() {
            Some(layer) if stack.inner().is_some_and(|inner| inner.same_domain(self.stack())) => {
                let stack = stack.with_device_of(self.stack());
                Ok(AnyTensor::new(stack, layer.from_inner(self.into_value())))
            }
            Some(_) | None => {
                let problem = alloc::format!("is on {:?}, which is not below {stack:?}", self.stack());
                Err(kiln_ir::Error::type_error("from_inner", problem, &[self.ty().into()])
                    .hint("make the tensor on the inner device, or move it there with `to_device`"))
            }
        }
    }
}
