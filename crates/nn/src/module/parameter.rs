//! Parameters and buffers.

use super::update_lock::{UpdateLock, lock_both};
use super::visited;
use super::{
    BackendModule, Module, ModuleOn, Parameter, ParameterRole, Path, ReplaceParameter, Visitor, VisitorMut,
};
use core::fmt;
use core::ops::Deref;
use kiln_tensor::{AnyTensor, Backend, DType, Float, Kind, Tensor, TensorType};
use spin::Mutex;

/// The id of a parameter, unique in the process. Clones of a parameter have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParamId(u64);

impl ParamId {
    /// Returns an id that no other parameter has.
    #[allow(clippy::new_without_default, reason = "a new id is an effect, not a default value")]
    pub fn new() -> ParamId {
        static NEXT: Mutex<u64> = Mutex::new(0);
        let mut next = NEXT.lock();
        *next += 1;
        ParamId(*next)
    }

    /// Returns the id as an integer.
    pub fn value(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ParamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A tensor that a module owns: a parameter or a buffer. Dereferences to the tensor.
///
/// On a backend with automatic differentiation a trainable parameter is always a leaf that requires a gradient; frozen
/// parameters and buffers are not tracked. In a module returned by [`with_parameters`](crate::with_parameters) it is
/// the given tensor.
///
/// # Tied parameters
/// A clone of a parameter in another place of the module is the same parameter, as an assigned `nn.Parameter` in PyTorch:
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{Embedding, EmbeddingConfig, GradientsParams, Linear, LinearConfig, Module};
/// use kiln_tensor::{Autodiff, Backend, Int, Tensor};
///
/// #[derive(Debug, Module)]
/// struct Model<B: Backend> {
///     embed: Embedding<B>,
///     head: Linear<B>,
/// }
///
/// let device = Default::default();
/// let mut model = Model::<Autodiff<Flex>> {
///     embed: EmbeddingConfig::new(5, 3).init(&device),
///     head: LinearConfig::new(3, 5).with_bias(false).init(&device),
/// };
/// model.head.weight = model.embed.weight.clone();
/// assert_eq!(model.num_parameters(), 5 * 3);
///
/// let tokens = Tensor::<_, 2, Int>::from_ints([[0, 1, 2]], &device);
/// let loss = model.head.forward(model.embed.forward(tokens)).sum();
/// assert_eq!(GradientsParams::from_grads(loss.backward(), &model).len(), 1);
/// ```
///
/// Its gradient is the sum over the places. Optimizers update it once, files contain it once, and all traversals of the
/// module ([`to_device`](Module::to_device), [`valid`](crate::AutodiffModule::valid),
/// [`freeze`](Module::freeze), loading) keep it tied. Its name is that of its first place in traversal order.
///
/// Places are tied as long as they have one id, one role and one tensor. [`set`](Param::set) and [`map`](Param::map) of
/// one place separate it, as does a traversal of only a part of the module: assign a clone again afterwards. A place
/// with another role is a parameter of its own, such as the frozen copy of a target network. For a trainable copy,
/// create a new parameter: `Param::from_tensor(parameter.val())`.
#[derive(Clone)]
pub struct Param<T> {
    id: ParamId,
    role: ParameterRole,
    /// `None` only while a visitor holds the tensor.
    value: Option<T>,
}

impl<B: Backend, const D: usize> Param<Tensor<B, D>> {
    /// Returns a trainable parameter with this initial value and a new id.
    pub fn from_tensor(value: Tensor<B, D>) -> Self {
        Param::new(value, ParameterRole::Trainable)
    }
}

impl<B: Backend, const D: usize, K: Kind> Param<Tensor<B, D, K>> {
    /// Returns a buffer: state that optimizers do not update, such as a positional encoding. It is saved and moved with
    /// the module.
    pub fn buffer(value: Tensor<B, D, K>) -> Self {
        Param::new(value, ParameterRole::Buffer)
    }

    fn new(value: Tensor<B, D, K>, role: ParameterRole) -> Self {
        let value = Tensor::from_any(as_leaf(value.into_any(), role));
        Param { id: ParamId::new(), role, value: Some(value) }
    }

    /// Makes the parameter trainable or frozen. Buffers do not change.
    #[must_use]
    pub fn set_require_grad(mut self, require: bool) -> Self {
        let wanted = if require { ParameterRole::Trainable } else { ParameterRole::Frozen };
        self.role = super::typed::changed_role(self.role, wanted);
        self.map(|value| value)
    }

    /// Freezes the parameter: optimizers do not update it.
    #[must_use]
    pub fn freeze(self) -> Self {
        self.set_require_grad(false)
    }

    /// Makes the parameter trainable again.
    #[must_use]
    pub fn unfreeze(self) -> Self {
        self.set_require_grad(true)
    }

    /// Returns the parameter with its tensor passed through a function. The result is a new leaf.
    #[must_use]
    pub fn map(mut self, f: impl FnOnce(Tensor<B, D, K>) -> Tensor<B, D, K>) -> Self {
        if let Some(value) = self.value.take() {
            self.set(f(value));
        }
        self
    }

    /// Replaces the tensor and keeps the id. The new tensor becomes a leaf. Other places of a [tied
    /// parameter](Param#tied-parameters) keep the old one.
    pub fn set(&mut self, value: Tensor<B, D, K>) {
        self.value = Some(Tensor::from_any(as_leaf(value.into_any(), self.role)));
    }
}

impl<T: Clone> Param<T> {
    /// Returns a clone of the tensor, for methods that consume it. A [profile](kiln_ir::profile) attributes the ops that
    /// follow to the parameter's module.
    ///
    /// # Panics
    /// When a visitor panicked while it held the tensor.
    #[track_caller]
    pub fn val(&self) -> T {
        #[cfg(feature = "std")]
        kiln_ir::profile::read_parameter(self.id.0);
        T::clone(self)
    }
}

impl<T> Param<T> {
    /// Returns the id.
    pub fn id(&self) -> ParamId {
        self.id
    }

    /// Returns the role: trainable, frozen or buffer.
    pub fn role(&self) -> ParameterRole {
        self.role
    }

    /// Returns whether optimizers update the parameter.
    pub fn is_trainable(&self) -> bool {
        self.role == ParameterRole::Trainable
    }

    /// Returns the tensor and consumes the parameter.
    ///
    /// # Panics
    /// When a visitor panicked while it held the tensor.
    #[track_caller]
    pub fn into_value(self) -> T {
        self.value.expect(LOST)
    }
}

pub(super) const LOST: &str = "[param] the tensor was lost when a visitor panicked";

impl<T> Deref for Param<T> {
    type Target = T;

    #[track_caller]
    fn deref(&self) -> &T {
        self.value.as_ref().expect(LOST)
    }
}

impl<T: fmt::Debug> fmt::Debug for Param<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "Param({}, {:?}, {value:?})", self.id, self.role),
            None => write!(f, "Param({}, {:?}, lost)", self.id, self.role),
        }
    }
}

impl<B: Backend, const D: usize, K: Kind> Module for Param<Tensor<B, D, K>> {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        visited::show(Parameter::new(self.id, self.as_any().clone(), self.role), path, visitor);
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        let value = self.value.take().expect(LOST).into_any();
        let below = Parameter::new(self.id, value, self.role).map(AnyTensor::inner);
        let (value, role) = visited::replace(below, path, visitor);
        self.value = Some(Tensor::from_any(value));
        self.role = role;
    }
}

impl<B: Backend, const D: usize, K: Kind> BackendModule<B> for Param<Tensor<B, D, K>> {}

impl<B: Backend, B2: Backend, const D: usize, K: Kind> ModuleOn<B2> for Param<Tensor<B, D, K>> {
    type On = Param<Tensor<B2, D, K>>;

    #[track_caller]
    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Self::On {
        let value = place(path, Parameter::new(self.id, self.as_any().clone(), self.role));
        Param { id: self.id, role: self.role, value: Some(placed(path, self.as_any(), value)) }
    }
}

/// A buffer that a module updates through a shared reference while it runs: the running statistics of batch
/// normalisation. It is saved and moved with the module. Clones have one id, but each is updated, saved and loaded for
/// itself: they are not tied.
pub struct RunningState<T> {
    id: ParamId,
    /// `None` only while a visitor holds the tensor. Locked for moving and cloning the tensor, never while computing.
    value: Mutex<Option<T>>,
    /// Serializes updates.
    update_lock: UpdateLock,
}

impl<B: Backend, const D: usize> RunningState<Tensor<B, D, Float>> {
    /// Returns a buffer with this initial value and a new id.
    pub fn new(value: Tensor<B, D>) -> Self {
        RunningState::with_id(ParamId::new(), value)
    }

    fn with_id(id: ParamId, value: Tensor<B, D>) -> Self {
        let leaf = as_leaf(value.into_any(), ParameterRole::Buffer);
        RunningState {
            id,
            value: Mutex::new(Some(Tensor::from_any(leaf))),
            update_lock: UpdateLock::default(),
        }
    }

    /// Returns the current value, not tracked by automatic differentiation.
    ///
    /// # Panics
    /// When a visitor panicked while it held the tensor.
    #[track_caller]
    pub fn value(&self) -> Tensor<B, D> {
        #[cfg(feature = "std")]
        kiln_ir::profile::read_parameter(self.id.0);
        self.current()
    }

    /// The current value, for a visitor: the profiler does not count it as a use of the module.
    #[track_caller]
    fn current(&self) -> Tensor<B, D> {
        self.value.lock().clone().expect(LOST)
    }

    /// Replaces the value by a function of it. Automatic differentiation does not track the update.
    ///
    /// Concurrent updates are serialized, so that no update is lost; readers do not wait. If the function panics, the
    /// value does not change.
    ///
    /// The function must not update the same buffer: that may deadlock.
    #[track_caller]
    pub fn update(&self, f: impl FnOnce(Tensor<B, D>) -> Tensor<B, D>) {
        let _guard = self.update_lock.lock();
        self.replace(f(self.value()));
    }

    /// Updates two buffers together, such as a mean and a variance: no other update of either happens between. See
    /// [`update`](RunningState::update).
    ///
    /// # Panics
    /// When both are the same buffer.
    #[track_caller]
    pub fn update_both<const D2: usize>(
        &self,
        other: &RunningState<Tensor<B, D2>>,
        f: impl FnOnce(Tensor<B, D>, Tensor<B, D2>) -> (Tensor<B, D>, Tensor<B, D2>),
    ) {
        let _guards = lock_both(&self.update_lock, &other.update_lock);
        let (new, others) = f(self.value(), other.value());
        self.replace(new);
        other.replace(others);
    }

    fn replace(&self, new: Tensor<B, D>) {
        let new = Tensor::from_any(as_leaf(new.into_any(), ParameterRole::Buffer));
        // The old value is dropped after the lock is released.
        let _old = self.value.lock().replace(new);
    }
}

impl<T: Clone> Clone for RunningState<T> {
    /// Clones the buffer. The clone has the same id and value, and is updated independently.
    fn clone(&self) -> Self {
        RunningState {
            id: self.id,
            value: Mutex::new(self.value.lock().clone()),
            update_lock: UpdateLock::default(),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for RunningState<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.value.lock() {
            Some(value) => write!(f, "RunningState({}, {value:?})", self.id),
            None => write!(f, "RunningState({}, lost)", self.id),
        }
    }
}

impl<B: Backend, const D: usize> Module for RunningState<Tensor<B, D>> {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        let value = self.current().into_any();
        visitor.parameter(path, Parameter::new(self.id, value, ParameterRole::Buffer));
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        let value = self.value.get_mut().take().expect(LOST).into_any();
        let below = Parameter::new(self.id, value, ParameterRole::Buffer).map(AnyTensor::inner);
        let (value, _) = pass(below, path, visitor);
        *self.value.get_mut() = Some(Tensor::from_any(value.detach()));
    }
}

impl<B: Backend, const D: usize> BackendModule<B> for RunningState<Tensor<B, D>> {}

impl<B: Backend, B2: Backend, const D: usize> ModuleOn<B2> for RunningState<Tensor<B, D>> {
    type On = RunningState<Tensor<B2, D>>;

    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Self::On {
        let before = self.current().into_any();
        let value = place(path, Parameter::new(self.id, before.clone(), ParameterRole::Buffer));
        RunningState::with_id(self.id, placed(path, &before, value))
    }
}

/// Checks the replacement of a parameter and returns it as a typed tensor of backend `B`.
#[track_caller]
fn placed<B: Backend, const D: usize, K: Kind>(
    path: &Path,
    before: &AnyTensor,
    value: AnyTensor,
) -> Tensor<B, D, K> {
    check_placed(path, before.ty(), value.ty());
    match value.try_into_tensor() {
        Ok(value) => value,
        Err(error) => panic!("[module] the tensor for parameter `{path}` is of another backend: {error}"),
    }
}

/// Panics unless a replacement has the shape and kind of its parameter.
#[track_caller]
pub(super) fn check_placed(path: &Path, before: &TensorType, after: &TensorType) {
    assert!(
        before.shape == after.shape && kind(before.dtype) == kind(after.dtype),
        "[module] parameter `{path}` is {before}, but got {after}\n  \
         hint: the dtype may differ within floats or integers; the shape must match"
    );
}

/// Prepares a tensor for a role: a leaf that requires a gradient, or a tensor that is not tracked.
#[track_caller]
pub(super) fn as_leaf(value: AnyTensor, role: ParameterRole) -> AnyTensor {
    if value.stack().inner().is_none() {
        return value;
    }
    match role {
        ParameterRole::Trainable if value.is_require_grad() => value,
        ParameterRole::Trainable => value.detach().require_grad().unwrap_or_else(|error| panic!("{error}")),
        ParameterRole::Frozen | ParameterRole::Buffer => value.detach(),
    }
}

impl Parameter {
    pub(super) fn new(id: ParamId, value: AnyTensor, role: ParameterRole) -> Parameter {
        let stack = value.stack().clone();
        Parameter { id, value, role, stack }
    }
}

/// Moves a parameter through a visitor and makes the result a leaf of the parameter's stack. The value is below automatic
/// differentiation.
pub(super) fn pass(
    parameter: Parameter,
    path: &Path,
    visitor: &mut dyn VisitorMut,
) -> (AnyTensor, ParameterRole) {
    let before = *parameter.value.ty();
    let Parameter { value, role, stack, .. } = visitor.parameter(path, parameter);
    let after = *value.ty();
    assert!(
        before.shape == after.shape && kind(before.dtype) == kind(after.dtype),
        "[visit_mut] parameter `{path}` is {before}, but the visitor returned {after}\n  \
         hint: a visitor may change the values and, within floats or integers, the dtype"
    );
    let is_below = stack.inner().is_some_and(|inner| inner.same(value.stack()));
    let placed = if is_below { value.from_inner(&stack) } else { value.detach().to_stack(&stack) };
    match placed {
        Ok(value) => (as_leaf(value, role), role),
        Err(error) => panic!("[visit_mut] parameter `{path}` cannot be put on {stack:?}: {error}"),
    }
}

fn kind(dtype: DType) -> &'static str {
    match () {
        () if dtype.is_float() => "float",
        () if dtype.is_int() => "integer",
        () => "bool",
    }
}
