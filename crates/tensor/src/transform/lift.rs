//! Outside tensors inside a transformed function.

use crate::tensor::ok;
use crate::{AnyTensor, Backend, Error, Kind, Result, Stack, Tensor};
use alloc::format;

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// Brings a tensor from outside of a [transformed](crate::transform) function to the stack of this tensor: constant
    /// in derivatives, and the same for all examples.
    ///
    /// It may be from any number of enclosing functions.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::transform::grad;
    /// use kiln_tensor::{Autodiff, Tensor};
    ///
    /// let weights = Tensor::<Flex, 1>::from_floats([1.0, 10.0], &Default::default());
    /// let weighted = |x: Tensor<Autodiff<Flex>, 1>| (x.lift(weights.clone()) * x).sum();
    /// let slope = grad(weighted)(Tensor::ones([2], &Default::default()));
    /// assert_eq!(slope.into_data().to_vec::<f32>(), [1.0, 10.0]);
    /// ```
    ///
    /// # Panics
    /// When the other tensor is on another device, or on an inner stack of this one.
    #[track_caller]
    pub fn lift<B2: Backend, const D2: usize, K2: Kind>(
        &self,
        other: Tensor<B2, D2, K2>,
    ) -> Tensor<B, D2, K2> {
        Tensor::from_any(ok(other.into_any().lift_to(self.engine_stack())))
    }
}

impl AnyTensor {
    /// Brings this tensor, from outside of a [transformed](crate::transform) function, to an inner stack: constant in
    /// derivatives, and the same for all examples.
    ///
    /// # Errors
    /// When the stack does not consist of this tensor's stack and layers around it.
    pub fn lift_to(self, stack: &Stack) -> Result<AnyTensor> {
        if stack.is_at_or_above(self.stack()) {
            return Ok(AnyTensor::new(stack.with_device_of(self.stack()), self.into_value()));
        }
        let problem = format!("the tensor is on {:?}, which is not below {stack:?}", self.stack());
        Err(Error::type_error("lift", problem, &[self.ty().into()])
            .hint("move it to the device first; a result leaves a function only by being returned"))
    }
}
