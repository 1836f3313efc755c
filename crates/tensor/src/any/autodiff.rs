//! Automatic differentiation.

use crate::tensor::{backward, detach, require_grad};
use crate::{AnyTensor, Gradients, Result, Stack};
use kiln_autodiff::Autodiff as Layer;

impl AnyTensor {
    /// Returns whether the tensor is a leaf that requires a gradient.
    #[doc(alias = "requires_grad")]
    pub fn is_require_grad(&self) -> bool {
        self.stack().outermost::<Layer>().is_some_and(|layer| layer.leaf_id(self.value()).is_some())
    }

    /// Returns a leaf tensor with the same elements, for which [`backward`](AnyTensor::backward) computes a gradient.
    ///
    /// # Errors
    /// When the stack has no automatic differentiation, or the dtype is not a float dtype.
    #[doc(alias = "requires_grad_")]
    pub fn require_grad(self) -> Result<AnyTensor> {
        require_grad(self)
    }

    /// Runs the backward pass: computes the gradients of the sum of this tensor's elements for every leaf on the tape
    /// that [requires](AnyTensor::require_grad) one. The tape is kept as long as tensors on it exist.
    ///
    /// ```
    /// use kiln_backends::Device;
    /// use kiln_tensor::AnyTensor;
    ///
    /// let x = AnyTensor::from_data([1.0f32, 2.0], &Device::cpu().autodiff()).require_grad()?;
    /// let gradients = x.clone().mul(x.clone())?.backward()?;
    /// assert_eq!(x.grad(&gradients).unwrap().to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the stack has no automatic differentiation, no operand of the computation requires a gradient, or an op
    /// has no gradient.
    pub fn backward(&self) -> Result<Gradients> {
        backward(self, None)
    }

    /// Like [`backward`](AnyTensor::backward), with this output gradient instead of ones.
    ///
    /// # Errors
    /// When the shapes differ, and as [`backward`](AnyTensor::backward).
    pub fn backward_from(&self, gradient: AnyTensor) -> Result<Gradients> {
        backward(self, Some(gradient))
    }

    /// Returns this tensor's gradient, or `None` if it requires none or did not take part.
    pub fn grad(&self, gradients: &Gradients) -> Option<AnyTensor> {
        gradients.get(self)
    }

    /// Like [`grad`](AnyTensor::grad), but says why there is no gradient.
    ///
    /// # Errors
    /// When the tensor does not require a gradient, is the result of an op, or is not part of the computation that was
    /// differentiated.
    pub fn try_grad(&self, gradients: &Gradients) -> Result<AnyTensor> {
        gradients.try_get(self)
    }

    /// Removes and returns this tensor's gradient, or `None` if it requires none or did not take part.
    pub fn grad_remove(&self, gradients: &mut Gradients) -> Option<AnyTensor> {
        gradients.remove(self)
    }

    /// Returns the same elements without a tape: no gradient flows through.
    #[doc(alias = "stop_gradient")]
    #[must_use]
    pub fn detach(self) -> AnyTensor {
        detach(self)
    }

    /// Returns the tensor on the stack below automatic differentiation; the same tensor if there is none.
    #[must_use]
    pub fn inner(self) -> AnyTensor {
        let stack = self.stack().clone();
        let (Some(layer), Some(below)) = (stack.outermost::<Layer>(), stack.below()) else { return self };
        // `detach` consumes the value, so that a sole owner stays one.
        AnyTensor::new(below.clone(), layer.detach(self.into_value()))
    }

    /// Wraps the tensor for the automatic differentiation of a stack, untracked: the reverse of
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
                    .hint("create the tensor on the inner device, or move it there with `to_device`"))
            }
        }
    }
}
