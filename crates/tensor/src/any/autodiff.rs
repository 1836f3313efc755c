//! Gradients.

use crate::tensor::{detach, require_grad};
use crate::{AnyTensor, Result, Stack};

impl AnyTensor {
    /// Whether the tensor is a start of a tape.
    pub fn is_require_grad(&self) -> bool {
        self.stack().autodiff().is_some_and(|layer| layer.leaf_id(self.value()).is_some())
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
        let (Some(layer), Some(below)) = (stack.autodiff(), stack.inner()) else { return self };
        // `detach` takes the value over, so that a sole owner stays one.
        AnyTensor::new(below.clone(), layer.detach(self.into_value()))
    }

    /// The tensor brought under the automatic differentiation of a stack, without a tape: the reverse of
    /// [`inner`](AnyTensor::inner).
    ///
    /// # Errors
    /// When the tensor is not on the stack below.
    pub fn from_inner(self, stack: &Stack) -> Result<AnyTensor> {
        match stack.autodiff() {
            Some(layer) if stack.inner().is_some_and(|inner| inner.same(self.stack())) => {
                let value = layer.from_inner(self.into_value());
                Ok(AnyTensor::new(stack.clone(), value))
            }
            _ => {
                let problem = alloc::format!("is on {:?}, which is not below {stack:?}", self.stack());
                Err(kiln_ir::Error::type_error("from_inner", problem, &[self.ty().into()])
                    .hint("make the tensor on the inner device, or move it there with `to_device`"))
            }
        }
    }
}
