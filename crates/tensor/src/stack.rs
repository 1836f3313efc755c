//! Engine stacks, which a backend opens for a device.

mod device;
mod domain;
mod registry;

pub use device::{DeviceKey, DeviceValue};
pub use domain::DomainId;

use crate::{DType, random::KeyStream};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use device::OpenDevice;
use domain::Domain;
use kiln_autodiff::{Autodiff as AutodiffLayer, Forward as ForwardLayer};
use kiln_ir::{Dispatch, Engine, Expand, Memory, Op, Operands, TensorType, Value, Values, expanding};
use kiln_vmap::Vmap as VmapLayer;

/// An opened stack of engines for a device: the device's engine and the layers of a backend around it. Cheap to clone.
///
/// Every tensor holds its stack, so ops need no global lookup.
///
/// * **Device.** A stack and the layers over it share one device: a [typed value](Stack::device), a name and a
///   [stream of keys](Stack::keys).
/// * **Domain.** Values of stacks of one [domain](Stack::domain) may be operands of one op. Every opened stack is a
///   domain of its own; [`with_device`](Stack::with_device) returns a stack of the same domain for another device.
/// * **Layers.** [`layered`](Stack::layered) adds a layer around a stack; [`find`](Stack::find) returns a layer or
///   engine of a stack by its type.
/// * **Lifetime.** [`opened`](Stack::opened) keeps stacks of local devices, and the layers around them, until the
///   process ends. Any other stack lives as long as a tensor or a handle holds it.
#[derive(Clone)]
pub struct Stack(Arc<Inner>);

struct Inner {
    /// The outermost engine, which is the domain's.
    engine: Dispatch,
    domain: Arc<Domain>,
    device: Arc<OpenDevice>,
    /// That of the device, where ops look for it.
    number: Option<usize>,
    below: Option<Stack>,
}

impl Stack {
    /// Creates a stack of only an engine, on a device without a value. `float` and `int` are the dtypes of new tensors.
    /// Ops that the engine does not run natively are expanded, as on every stack: see [`of_device`](Stack::of_device).
    pub fn new(engine: Arc<dyn Engine>, device_name: &str, float: DType, int: DType) -> Stack {
        Stack::of_device(engine, (), device_name, float, int)
    }

    /// Creates a stack of only a device's engine. [`device`](Stack::device) returns the value `device`; `float` and
    /// `int` are the dtypes of new tensors.
    ///
    /// The stack wraps the engine in [`Expand`](kiln_ir::Expand), unless it is wrapped already: an engine of a few ops
    /// runs every op.
    pub fn of_device(
        engine: Arc<dyn Engine>,
        device: impl DeviceValue,
        device_name: &str,
        float: DType,
        int: DType,
    ) -> Stack {
        let domain = Domain::new(expanding(engine), String::new(), [float, int]);
        domain.stack(&Arc::new(OpenDevice::new(device, device_name, None)), None)
    }

    /// Returns the stack that was opened before for a backend's device, or opens it with `open`. `B` is the type of the
    /// backend; `key` identifies the device.
    ///
    /// Stacks of local devices ([`DeviceKey::Index`]), and the layers around them, live until the process ends. Stacks
    /// of remote devices ([`DeviceKey::Url`]) are dropped with the last tensor or handle, and opened again by the next
    /// use.
    pub fn opened<B: 'static>(key: DeviceKey, open: impl FnOnce() -> Stack) -> Stack {
        registry::opened::<B>(key, open)
    }

    /// Like [`opened`](Stack::opened), for a kind of device that has a name instead of a type.
    ///
    /// # Errors
    /// The errors of `open`.
    pub fn try_opened(
        kind: &str,
        key: DeviceKey,
        open: impl FnOnce() -> crate::Result<Stack>,
    ) -> crate::Result<Stack> {
        registry::try_opened(kind, key, open)
    }

    /// Adds a layer around this stack. `wrap` creates the layer from the outermost engine. It is not called if the
    /// [domain](Stack::domain) already has a layer of the same type with equal settings. Repeated calls therefore
    /// return the same stack, and calls on stacks of one domain return stacks of one domain.
    ///
    /// The label is for messages, as in "`label` over cpu". A layer that changes no value may have an empty label,
    /// which messages omit.
    ///
    /// ```
    /// use kiln_autodiff::{Autodiff, Checkpointing};
    /// use kiln_reference::Reference;
    /// use kiln_tensor::{DType, Stack};
    /// use std::sync::Arc;
    ///
    /// let stack = Stack::new(Arc::new(Reference::new()), "reference", DType::F32, DType::I32);
    /// let wrap = |engine| Arc::new(Autodiff::new(engine, Checkpointing::Balanced));
    /// let layered = stack.layered("autodiff", Checkpointing::Balanced, wrap);
    /// assert_eq!(format!("{layered:?}"), "autodiff over reference");
    /// assert_eq!(layered, stack.layered("autodiff", Checkpointing::Balanced, wrap));
    /// assert!(layered.outermost::<Autodiff>().is_some() && layered.find::<Reference>().is_some());
    /// ```
    #[must_use]
    pub fn layered<L: Engine, S: PartialEq + Send + Sync + 'static>(
        &self,
        label: &str,
        settings: S,
        wrap: impl FnOnce(Arc<dyn Engine>) -> Arc<L>,
    ) -> Stack {
        self.0.domain.layered(label, settings, wrap).stack(&self.0.device, Some(self))
    }

    /// Adds automatic differentiation around this stack. Repeated calls return the same stack.
    #[must_use]
    pub fn with_autodiff(&self, checkpointing: crate::Checkpointing) -> Stack {
        let wrap = |engine| Arc::new(AutodiffLayer::new(engine, checkpointing));
        self.layered("autodiff", checkpointing, wrap)
    }

    /// Adds forward-mode differentiation around this stack. Repeated calls return the same stack.
    #[must_use]
    pub fn with_forward(&self) -> Stack {
        let wrap = |engine: Arc<dyn Engine>| {
            // Tangents may be batches.
            let tangents = Arc::new(VmapLayer::new(engine.clone()));
            Arc::new(ForwardLayer::with_tangents_on(engine, tangents))
        };
        self.layered("forward", (), wrap)
    }

    /// Adds batching around this stack. Repeated calls return the same stack.
    #[must_use]
    pub fn with_vmap(&self) -> Stack {
        self.layered("vmap", (), |engine| Arc::new(VmapLayer::new(engine)))
    }

    /// Returns a stack of the same domain for another device: the same engine, with the same layers. An equal value
    /// returns the same device, with its first name.
    ///
    /// For engines of several devices. Ops accept operands from all of them; the result of an op is on the stack of its
    /// first operand.
    #[must_use]
    pub fn with_device(&self, device: impl DeviceValue, device_name: &str) -> Stack {
        self.with_open_device(device, device_name, None)
    }

    /// As [`with_device`](Stack::with_device), for an engine that knows its devices by number: values that are made on the
    /// stack are on the device of that [number](kiln_ir::Engine::to_device), and `to_device` moves values there.
    #[must_use]
    pub fn with_numbered_device(&self, device: impl DeviceValue, device_name: &str, number: usize) -> Stack {
        self.with_open_device(device, device_name, Some(number))
    }

    fn with_open_device(&self, device: impl DeviceValue, name: &str, number: Option<usize>) -> Stack {
        let known = self.base().0.domain.device(&device);
        self.on(&known.unwrap_or_else(|| Arc::new(OpenDevice::new(device, name, number))))
    }

    /// The stack below all layers.
    fn base(&self) -> &Stack {
        self.levels().last().unwrap_or(self)
    }

    /// Returns the stack of this domain for the device of another stack.
    #[must_use]
    pub fn with_device_of(&self, other: &Stack) -> Stack {
        self.on(&other.0.device)
    }

    fn on(&self, device: &Arc<OpenDevice>) -> Stack {
        if Arc::ptr_eq(&self.0.device, device) {
            return self.clone();
        }
        let below = self.below().map(|below| below.on(device));
        self.0.domain.stack(device, below.as_ref())
    }

    /// Returns the outermost engine.
    #[inline]
    pub fn engine(&self) -> &dyn Engine {
        &**self.0.engine.engine()
    }

    /// Like [`Engine::execute`] of the outermost engine, and faster for small ops: see [`Dispatch`].
    #[inline]
    pub(crate) fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        if self.0.number.is_some() && inputs.iter().all(|operand| operand.value().is_none()) {
            return self.create(op, inputs, results);
        }
        self.0.engine.execute(op, inputs, results)
    }

    /// The results of an op without tensor operands, on the stack's device.
    #[inline(never)]
    fn create(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let values = self.0.engine.execute(op, inputs, results);
        values.into_iter().map(|value| self.place(value)).collect()
    }

    /// The value on the stack's device: moved there, where the engine stands for several devices.
    #[inline]
    pub(crate) fn place(&self, value: Value) -> Value {
        match self.0.number {
            Some(number) => self.engine().to_device(value, number),
            None => value,
        }
    }

    /// The stack of the device that a value of this domain is on. It differs from this one only where the engine stands for
    /// several devices, and computed the value on another one than that of the first operand.
    pub(crate) fn stack_of(&self, value: &Value) -> Stack {
        let Some(here) = self.0.number else { return self.clone() };
        let there = self.engine().device_of(value).filter(|number| *number != here);
        match there.and_then(|number| self.base().0.domain.numbered(number)) {
            Some(device) => self.on(&device),
            None => self.clone(),
        }
    }

    /// The outermost engine, shared: for engines around the engines of other stacks.
    pub fn shared_engine(&self) -> Arc<dyn Engine> {
        self.0.engine.engine().clone()
    }

    /// Returns the outermost engine, if it is of this type. The layer that [expands](kiln_ir::Expand) ops is skipped,
    /// unless `L` is that layer.
    #[inline]
    pub fn outermost<L: Engine>(&self) -> Option<&L> {
        let engine: &dyn Any = self.engine();
        engine.downcast_ref().or_else(|| {
            let inside: &dyn Any = &**engine.downcast_ref::<Expand>()?.inner();
            inside.downcast_ref()
        })
    }

    /// Returns the outermost layer of this type; the engine of the device is included.
    pub fn find<L: Engine>(&self) -> Option<&L> {
        self.levels().find_map(|stack| stack.engine().find())
    }

    /// Returns the memory statistics of the device's engine, if it tracks memory.
    pub fn memory(&self) -> Option<&dyn Memory> {
        self.engine().memory()
    }

    /// Returns the device, if its value is of this type.
    pub fn device<D: DeviceValue>(&self) -> Option<&D> {
        self.0.device.value()
    }

    /// Returns the name of the device, for messages and printing. Two devices may have one name.
    pub fn device_name(&self) -> &str {
        self.0.device.name()
    }

    /// Returns the key by which the device was [opened](Stack::opened); `None` if it was not opened by a key.
    pub fn device_key(&self) -> Option<&DeviceKey> {
        self.0.device.key()
    }

    /// Returns the id of the domain: values of its stacks may be operands of one op.
    pub fn domain(&self) -> DomainId {
        self.0.domain.id()
    }

    /// Returns the dtype of new float tensors.
    pub fn float_dtype(&self) -> DType {
        self.0.domain.dtypes()[0]
    }

    /// Returns the dtype of new integer tensors.
    pub fn int_dtype(&self) -> DType {
        self.0.domain.dtypes()[1]
    }

    /// Returns the stack below automatic differentiation, if that is the outermost layer.
    pub fn inner(&self) -> Option<&Stack> {
        self.outermost::<AutodiffLayer>().and(self.below())
    }

    /// Returns the stack below the outermost layer, of any type; `None` for the engine of a device.
    pub fn below(&self) -> Option<&Stack> {
        self.0.below.as_ref()
    }

    /// This stack and those below its layers, from the outermost down.
    pub(crate) fn levels(&self) -> impl Iterator<Item = &Stack> {
        core::iter::successors(Some(self), |stack| stack.below())
    }

    /// Returns whether automatic differentiation is among the layers. Modules use it to detect training.
    pub fn is_differentiated(&self) -> bool {
        self.find::<AutodiffLayer>().is_some()
    }

    /// Returns whether the values of `other` are of this stack's domain, or of the domain below one of its layers.
    pub fn is_at_or_above(&self, other: &Stack) -> bool {
        self.levels().any(|stack| stack.same_domain(other))
    }

    /// Returns the key stream of random ops on this stack: a device has one stream, which all its layers share.
    pub fn keys(&self) -> &KeyStream {
        self.0.device.keys()
    }

    /// Returns the information of a value that another stack has no layer for: the gradient of a tape, the tangent of
    /// forward mode, or the examples of a batch.
    pub(crate) fn lost_layer_state(&self, value: &Value, other: &Stack) -> Option<&'static str> {
        let (carried, inside, place) = if let Some(layer) = self.outermost::<AutodiffLayer>() {
            let carried = layer.is_tracked(value).then_some("the gradient");
            (carried, layer.inner_value(value), other.level_of::<AutodiffLayer>())
        } else if let Some(layer) = self.outermost::<ForwardLayer>() {
            let carried = layer.tangent(value).map(|_| "the tangent");
            (carried, layer.primal(value), other.level_of::<ForwardLayer>())
        } else if let Some(layer) = self.outermost::<VmapLayer>() {
            let carried = layer.is_batched(value).then_some("the batch of examples");
            (carried, layer.lower(value.clone()), other.level_of::<VmapLayer>())
        } else {
            return self.below()?.lost_layer_state(value, other);
        };
        if place.is_none() && carried.is_some() {
            return carried;
        }
        let other = place.map_or(other, |place| place.below().unwrap_or(place));
        self.below()?.lost_layer_state(&inside, other)
    }

    /// Returns the stack whose outermost layer is the outermost of this type.
    fn level_of<L: Engine>(&self) -> Option<&Stack> {
        self.levels().find(|stack| stack.outermost::<L>().is_some())
    }

    /// Returns whether both are the same opened stack: the same engine and layers for the same device.
    #[inline]
    pub fn same(&self, other: &Stack) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns whether values of both may be operands of one op.
    #[inline]
    pub fn same_domain(&self, other: &Stack) -> bool {
        self.same(other) || Arc::ptr_eq(&self.0.domain, &other.0.domain)
    }

    /// Formats this stack and another one for a message, with their [domains](Stack::domain) if they are otherwise
    /// equal.
    pub fn distinguishable_names(&self, other: &Stack) -> [String; 2] {
        let texts = [format!("{self:?}"), format!("{other:?}")];
        if texts[0] != texts[1] {
            return texts;
        }
        [self, other].map(|stack| format!("{stack:?} ({})", stack.domain()))
    }
}

impl AsRef<Stack> for Stack {
    fn as_ref(&self) -> &Stack {
        self
    }
}

impl PartialEq for Stack {
    fn eq(&self, other: &Stack) -> bool {
        self.same(other)
    }
}

impl Eq for Stack {}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for stack in self.levels() {
            match stack.0.domain.label() {
                "" => {}
                label => write!(f, "{label} over ")?,
            }
        }
        f.write_str(self.device_name())
    }
}
