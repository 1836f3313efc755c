//! Automatic differentiation, on backends that support it.

use super::ok;
use crate::{AnyTensor, AutodiffBackend, Backend, Float, Kind, Result, Stack, Tensor};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use kiln_autodiff::Autodiff as Layer;
use kiln_ir::{Error, Value};

pub use kiln_autodiff::NodeId;

/// Gradients of a [`backward`](Tensor::backward) pass, keyed by the leaf tensors that [require](Tensor::require_grad)
/// them. Each gradient is on its leaf's device and inner backend, and may be sent to another thread.
pub struct Gradients {
    stack: Stack,
    gradients: kiln_autodiff::Gradients,
}

impl Gradients {
    /// Returns the gradient of a rank-erased leaf, or `None` if the tensor is not a leaf or did not take part.
    pub fn get(&self, tensor: &AnyTensor) -> Option<AnyTensor> {
        let value = self.gradients.get(tensor.value())?;
        Some(AnyTensor::new(self.stack_of(tensor), value))
    }

    /// Like [`get`](Gradients::get), but says why there is no gradient.
    ///
    /// # Errors
    /// When the tensor is not a leaf, or did not take part.
    pub fn try_get(&self, tensor: &AnyTensor) -> Result<AnyTensor> {
        self.get(tensor).ok_or_else(|| no_gradient(tensor))
    }

    /// Removes and returns the gradient of a rank-erased leaf, or `None` if the tensor is not a leaf or did not take
    /// part.
    pub fn remove(&mut self, tensor: &AnyTensor) -> Option<AnyTensor> {
        let value = self.gradients.take(tensor.value())?;
        Some(AnyTensor::new(self.stack_of(tensor), value))
    }

    /// Returns the stack of a leaf's gradient: the stack below the layer that tracks the leaf.
    fn stack_of(&self, tensor: &AnyTensor) -> Stack {
        let tracks = |layer: &Layer| layer.is_tracked(tensor.value());
        let tracking = tensor.stack().levels().find(|level| level.outermost().is_some_and(tracks));
        let below = tracking.and_then(Stack::below);
        below.cloned().unwrap_or_else(|| self.stack.with_device_of(tensor.stack()))
    }
}

impl fmt::Debug for Gradients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gradients({:?})", self.stack)
    }
}

// The methods have the bound and not their blocks: the compiler then prints the message of `AutodiffBackend`.
impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// Returns the tensor on the inner backend: the same elements, without automatic differentiation.
    #[track_caller]
    pub fn inner(self) -> Tensor<B::InnerBackend, D, K>
    where
        B: AutodiffBackend,
    {
        ok(layer(self.as_any(), "inner"));
        Tensor::from_any(self.into_any().inner())
    }

    /// Wraps a tensor of the inner backend for automatic differentiation. It is not tracked.
    #[track_caller]
    pub fn from_inner(inner: Tensor<B::InnerBackend, D, K>) -> Self
    where
        B: AutodiffBackend,
    {
        let stack = crate::transform::autodiff_above::<B>(inner.engine_stack());
        Tensor::from_any(ok(inner.into_any().from_inner(&stack)))
    }
}

impl<B: Backend, const D: usize> Tensor<B, D, Float> {
    /// Runs the backward pass: computes the gradients of the sum of this tensor's elements for every leaf on the tape
    /// that [requires](Tensor::require_grad) one. The tape is kept as long as tensors on it exist.
    ///
    /// Unlike PyTorch, it needs no output gradient and uses ones: `y.backward()` is `y.sum().backward()`.
    /// [`try_backward_from`](Tensor::try_backward_from) accepts another output gradient.
    ///
    /// ```
    /// use kiln_backends::Cpu;
    /// use kiln_tensor::{Autodiff, Tensor};
    ///
    /// let x = Tensor::<Autodiff<Cpu>, 1>::from([1.0, 2.0]).require_grad();
    /// let gradients = (&x * &x).backward();
    /// assert_eq!(x.grad(&gradients).unwrap().to_vec::<f32>(), [2.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// When no operand of the computation requires a gradient, or an op has no gradient; the message names the
    /// op. See [`try_backward`](Tensor::try_backward).
    #[track_caller]
    pub fn backward(&self) -> Gradients
    where
        B: AutodiffBackend,
    {
        ok(self.try_backward())
    }

    /// Like [`backward`](Tensor::backward), but returns an error instead of panicking.
    ///
    /// # Errors
    /// When no operand of the computation requires a gradient, or an op has no gradient.
    pub fn try_backward(&self) -> Result<Gradients>
    where
        B: AutodiffBackend,
    {
        self.as_any().backward()
    }

    /// Like [`backward`](Tensor::backward), with this output gradient instead of ones (the vector-Jacobian product).
    ///
    /// # Errors
    /// When the shapes differ, no operand requires a gradient, or an op has no gradient.
    pub fn try_backward_from(&self, gradient: Tensor<B::InnerBackend, D>) -> Result<Gradients>
    where
        B: AutodiffBackend,
    {
        self.as_any().backward_from(gradient.into_any())
    }

    /// Returns this tensor's gradient, or `None` if it requires none or did not take part;
    /// [`try_grad`](Tensor::try_grad) says which.
    pub fn grad(&self, gradients: &Gradients) -> Option<Tensor<B::InnerBackend, D>>
    where
        B: AutodiffBackend,
    {
        gradients.get(self.as_any()).map(Tensor::from_any)
    }

    /// Like [`grad`](Tensor::grad), but says why there is no gradient.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Autodiff, Tensor};
    ///
    /// let x = Tensor::<Autodiff<Flex>, 1>::from([2.0]).require_grad();
    /// let scale = Tensor::<Autodiff<Flex>, 1>::from([3.0]);
    /// let gradients = (&x * &scale).backward();
    /// assert_eq!(x.try_grad(&gradients)?.item::<f32>(), 3.0);
    /// let error = scale.try_grad(&gradients).unwrap_err().to_string();
    /// assert!(error.contains("does not require a gradient"), "{error}");
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the tensor does not require a gradient, is the result of an op, or is not part of the computation that was
    /// differentiated.
    pub fn try_grad(&self, gradients: &Gradients) -> Result<Tensor<B::InnerBackend, D>>
    where
        B: AutodiffBackend,
    {
        gradients.try_get(self.as_any()).map(Tensor::from_any)
    }

    /// Removes and returns this tensor's gradient, or `None` if it requires none or did not take part.
    pub fn grad_remove(&self, gradients: &mut Gradients) -> Option<Tensor<B::InnerBackend, D>>
    where
        B: AutodiffBackend,
    {
        gradients.remove(self.as_any()).map(Tensor::from_any)
    }

    /// Replaces the gradient of this tensor, for example to clip it or to add noise. Does nothing when the tensor
    /// requires no gradient.
    ///
    /// # Panics
    /// When the gradient is of another shape or dtype than the tensor.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Autodiff, Tensor};
    ///
    /// let x = Tensor::<Autodiff<Flex>, 1>::ones([2], &Default::default()).require_grad();
    /// let mut gradients = (&x * 10).sum().backward();
    /// let clipped = x.grad(&gradients).unwrap().clamp_max(1.0);
    /// x.grad_replace(&mut gradients, clipped);
    /// assert_eq!(x.grad(&gradients).unwrap().into_data().to_vec::<f32>(), [1.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn grad_replace(&self, gradients: &mut Gradients, gradient: Tensor<B::InnerBackend, D>)
    where
        B: AutodiffBackend,
    {
        if gradient.as_any().ty() != self.as_any().ty() {
            let types = [gradient.as_any().ty().into(), self.as_any().ty().into()];
            let error = Error::type_error("grad_replace", "the gradient is not of the tensor's type", &types);
            super::fail(&error.hint("a gradient has the shape and dtype of its tensor"));
        }
        let id = layer(self.as_any(), "").ok().and_then(|(layer, _)| layer.leaf_id(self.as_any().value()));
        if let Some(id) = id {
            gradients.gradients.insert(id, gradient.into_any().into_value());
        }
    }

    /// Returns a leaf tensor with the same elements, for which [`backward`](Tensor::backward) computes a gradient.
    #[doc(alias = "requires_grad_")]
    #[track_caller]
    pub fn require_grad(self) -> Self
    where
        B: AutodiffBackend,
    {
        Tensor::from_any(ok(require_grad(self.into_any())))
    }

    /// Returns whether the tensor is a leaf that requires a gradient, by [`require_grad`](Tensor::require_grad).
    #[doc(alias = "requires_grad")]
    pub fn is_require_grad(&self) -> bool
    where
        B: AutodiffBackend,
    {
        layer(self.as_any(), "").is_ok_and(|(layer, _)| layer.leaf_id(self.as_any().value()).is_some())
    }

    /// Calls [`require_grad`](Tensor::require_grad) if `require` is true, and [`detach`](Tensor::detach) otherwise.
    #[track_caller]
    pub fn set_require_grad(self, require: bool) -> Self
    where
        B: AutodiffBackend,
    {
        if require { self.require_grad() } else { self.detach() }
    }

    /// Returns whether gradients flow through the tensor.
    pub fn is_tracked(&self) -> bool
    where
        B: AutodiffBackend,
    {
        layer(self.as_any(), "").is_ok_and(|(layer, _)| layer.is_tracked(self.as_any().value()))
    }
}

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// Returns the same elements without a tape, so that no gradient flows through. On a backend without automatic
    /// differentiation, returns the tensor unchanged.
    ///
    /// ```
    /// use kiln_backends::Cpu;
    /// use kiln_tensor::{Autodiff, Tensor};
    ///
    /// let x = Tensor::<Autodiff<Cpu>, 1>::from([3.0]).require_grad();
    /// let gradients = (x.clone().detach() * &x).backward();
    /// assert_eq!(x.grad(&gradients).unwrap().item::<f32>(), 3.0);
    /// assert_eq!(Tensor::<Cpu, 1>::from([3.0]).detach().item::<f32>(), 3.0);
    /// ```
    #[doc(alias = "stop_gradient")]
    #[must_use]
    pub fn detach(self) -> Self {
        Tensor::from_any(detach(self.into_any()))
    }
}

/// The reason why a tensor has no gradient.
fn no_gradient(tensor: &AnyTensor) -> Error {
    if let Err(error) = layer(tensor, "grad") {
        return error;
    }
    let mut layers = tensor.stack().levels().filter_map(|level| level.outermost::<Layer>());
    let (problem, hint) = match layers.find(|layer| layer.is_tracked(tensor.value())) {
        None => (
            "does not require a gradient",
            "call `require_grad` before the tensor is used; it returns the tensor to compute with",
        ),
        Some(layer) if layer.leaf_id(tensor.value()).is_none() => (
            "is the result of an op: only tensors from `require_grad` have a gradient",
            "call `detach().require_grad()` on it and continue with that tensor, or ask for the gradient of an input",
        ),
        Some(_) => (
            "requires a gradient, but this backward pass did not reach it",
            "check that the differentiated result depends on it, on a path of floats that is not detached, and that \
             its gradient was not removed before",
        ),
    };
    Error::gradient("grad", format!("{} {problem}", tensor.ty())).hint(hint)
}

/// Computes the gradients of a tensor from its output gradient; `None` means ones.
pub(crate) fn backward(any: &AnyTensor, gradient: Option<AnyTensor>) -> Result<Gradients> {
    let (layer, inner) = layer(any, "backward")?;
    let gradients = layer.backward(any.value(), gradient.map(AnyTensor::into_value))?;
    Ok(Gradients { stack: inner.clone(), gradients })
}

/// Returns the layer and the stack below it, or an error with a hint.
fn layer<'a>(any: &'a AnyTensor, what: &str) -> Result<(&'a Layer, &'a Stack)> {
    match (any.stack().outermost(), any.stack().inner()) {
        (Some(layer), Some(inner)) => Ok((layer, inner)),
        _ => Err(Error::gradient(
            what,
            format!("the device {:?} has no automatic differentiation", any.stack()),
        )
        .hint("open it with `device.autodiff()`, or name the backend `Autodiff<Cpu>`")),
    }
}

/// Creates a leaf of the tape. Returns an error on a stack without automatic differentiation.
pub(crate) fn require_grad(any: AnyTensor) -> Result<AnyTensor> {
    let stack = any.stack().clone();
    let (layer, _) = layer(&any, "require_grad")?;
    if !any.dtype().is_float() {
        return Err(Error::gradient(
            "require_grad",
            format!("{} has no gradient: it is not a float tensor", any.ty()),
        )
        .hint("convert it to a float tensor first: `float()`, or `cast(DType::F32)` on an `AnyTensor`"));
    }
    let layer = layer.clone();
    Ok(AnyTensor::new(stack, layer.require_grad(any.into_value())))
}

/// Returns the same elements without a tape; on a stack without automatic differentiation, the same tensor.
pub(crate) fn detach(any: AnyTensor) -> AnyTensor {
    let stack = any.stack().clone();
    match stack.outermost::<Layer>() {
        Some(layer) => AnyTensor::new(stack.clone(), layer.detach(any.into_value())),
        None => any,
    }
}

/// Runs `f` with activation checkpointing: saves no intermediates of `f`, and runs `f` again in the backward pass. This
/// trades compute for memory. Parameters that `f` captures get their gradients as usual. Random numbers drawn in `f`
/// are equal in both runs.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Autodiff, Tensor, checkpoint};
///
/// let x = Tensor::<Autodiff<Flex>, 1>::from_floats([1.0, 2.0], &Default::default()).require_grad();
/// let y = checkpoint(|x: Tensor<Autodiff<Flex>, 1>| (x.clone() * x).exp(), x.clone());
/// assert!(x.grad(&y.sum().backward()).is_some());
/// ```
#[track_caller]
pub fn checkpoint<B: AutodiffBackend, const D: usize, const D2: usize>(
    f: impl Fn(Tensor<B, D>) -> Tensor<B, D2> + Send + Sync + 'static,
    x: Tensor<B, D>,
) -> Tensor<B, D2> {
    let stack = x.engine_stack().clone();
    let Ok((layer, _)) = layer(x.as_any(), "checkpoint") else { return f(x) };
    let layer = layer.clone();
    let keys = stack.keys().state();
    let inside = stack.clone();
    let replay = move |inputs: Vec<Value>| -> Vec<Value> {
        let now = inside.keys().state();
        inside.keys().restore(keys);
        let outputs = inputs
            .into_iter()
            .map(|value| f(Tensor::from_any(AnyTensor::new(inside.clone(), value))).into_any().into_value());
        let outputs = outputs.collect();
        // The first run leaves the random stream at its end; a replay restores the position before it.
        if now != keys {
            inside.keys().restore(now);
        }
        outputs
    };
    let mut outputs = layer.checkpoint(Vec::from([x.into_any().into_value()]), Arc::new(replay));
    Tensor::from_any(AnyTensor::new(stack, outputs.swap_remove(0)))
}
