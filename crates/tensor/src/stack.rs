//! Engine stacks: what a backend and a device open.

use crate::{DType, random::KeyStream};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::any::TypeId;
use core::fmt;
use kiln_autocast::Autocast as AutocastLayer;
use kiln_autodiff::{Autodiff as AutodiffLayer, Forward as ForwardLayer};
use kiln_fusion::Fusion as FusionLayer;
use kiln_ir::{Engine, Memory, Value};
use kiln_vmap::Vmap as VmapLayer;
use spin::{Mutex, Once};

/// An opened stack of engines: a device's engine with the layers of a backend around it. Cheap to clone.
///
/// Every tensor holds its stack, so ops need no global look-up. Stacks are opened once per backend and device and
/// live as long as the process.
#[derive(Clone)]
pub struct Stack(Arc<Inner>);

struct Inner {
    engine: Arc<dyn Engine>,
    device_name: String,
    float: DType,
    int: DType,
    keys: KeyStream,
    layer: Layer,
    below: Option<Stack>,
    /// The stacks of this one with a layer around it, once asked for.
    with_forward: Once<Stack>,
    with_vmap: Once<Stack>,
}

/// The outermost layer of a stack.
enum Layer {
    /// There is none: the engine of a device.
    None,
    Autodiff(Arc<AutodiffLayer>),
    /// Its tangents may be batches.
    Forward(Arc<ForwardLayer>, Arc<VmapLayer>),
    Vmap(Arc<VmapLayer>),
    Fusion(Arc<FusionLayer>),
    Autocast(Arc<AutocastLayer>),
}

impl Stack {
    /// A stack of a device's engine alone. `float` and `int` are the dtypes of new tensors.
    pub fn new(engine: Arc<dyn Engine>, device_name: &str, float: DType, int: DType) -> Stack {
        Stack(Arc::new(Inner {
            engine,
            device_name: device_name.into(),
            float,
            int,
            keys: KeyStream::default(),
            layer: Layer::None,
            below: None,
            with_forward: Once::new(),
            with_vmap: Once::new(),
        }))
    }

    /// This stack with automatic differentiation around it.
    #[must_use]
    pub fn with_autodiff(&self, checkpointing: crate::Checkpointing) -> Stack {
        let layer = Arc::new(AutodiffLayer::new(self.0.engine.clone(), checkpointing));
        self.layered(layer.clone(), Layer::Autodiff(layer))
    }

    /// This stack with forward-mode differentiation around it. Repeated calls give the same stack.
    #[must_use]
    pub fn with_forward(&self) -> Stack {
        let open = || {
            let tangents = Arc::new(VmapLayer::new(self.0.engine.clone()));
            let layer = Arc::new(ForwardLayer::with_tangents_on(self.0.engine.clone(), tangents.clone()));
            self.layered(layer.clone(), Layer::Forward(layer, tangents))
        };
        self.0.with_forward.call_once(open).clone()
    }

    /// This stack with batching around it. Repeated calls give the same stack.
    #[must_use]
    pub fn with_vmap(&self) -> Stack {
        let open = || {
            let layer = Arc::new(VmapLayer::new(self.0.engine.clone()));
            self.layered(layer.clone(), Layer::Vmap(layer))
        };
        self.0.with_vmap.call_once(open).clone()
    }

    /// This stack with fusion around it: ops are recorded, and neighbours run as one kernel. `KILN_FUSION` in the
    /// environment switches it (`off`, `on`, `check`).
    #[must_use]
    pub fn with_fusion(&self) -> Stack {
        let layer = Arc::new(FusionLayer::new(self.0.engine.clone()));
        self.layered(layer.clone(), Layer::Fusion(layer))
    }

    /// This stack with mixed precision around it: contractions run in 16 bits.
    #[must_use]
    pub fn with_autocast(&self, precision: crate::LowPrecision) -> Stack {
        let layer = Arc::new(AutocastLayer::new(self.0.engine.clone(), precision));
        self.layered(layer.clone(), Layer::Autocast(layer))
    }

    fn layered(&self, engine: Arc<dyn Engine>, layer: Layer) -> Stack {
        Stack(Arc::new(Inner {
            engine,
            device_name: self.0.device_name.clone(),
            float: self.0.float,
            int: self.0.int,
            keys: KeyStream::default(),
            layer,
            below: Some(self.clone()),
            with_forward: Once::new(),
            with_vmap: Once::new(),
        }))
    }

    /// The outermost engine.
    #[inline]
    pub fn engine(&self) -> &dyn Engine {
        &*self.0.engine
    }

    /// The memory that the device's engine keeps account of, if it does.
    pub fn memory(&self) -> Option<&dyn Memory> {
        self.engine().memory()
    }

    /// The name of the device, for messages and printing.
    pub fn device_name(&self) -> &str {
        &self.0.device_name
    }

    /// The dtype of new float tensors.
    pub fn float_dtype(&self) -> DType {
        self.0.float
    }

    /// The dtype of new integer tensors.
    pub fn int_dtype(&self) -> DType {
        self.0.int
    }

    /// The outermost layer, if it is automatic differentiation.
    pub fn autodiff(&self) -> Option<&Arc<AutodiffLayer>> {
        match &self.0.layer {
            Layer::Autodiff(layer) => Some(layer),
            Layer::None | Layer::Forward(..) | Layer::Vmap(_) | Layer::Fusion(_) | Layer::Autocast(_) => None,
        }
    }

    /// The outermost layer, if it is forward-mode differentiation, and the layer of batches whose values its tangents
    /// are.
    pub(crate) fn forward(&self) -> Option<(&Arc<ForwardLayer>, &Arc<VmapLayer>)> {
        match &self.0.layer {
            Layer::Forward(layer, tangents) => Some((layer, tangents)),
            Layer::None | Layer::Autodiff(_) | Layer::Vmap(_) | Layer::Fusion(_) | Layer::Autocast(_) => None,
        }
    }

    /// The outermost layer, if it is batching.
    pub(crate) fn vmap(&self) -> Option<&Arc<VmapLayer>> {
        match &self.0.layer {
            Layer::Vmap(layer) => Some(layer),
            Layer::None | Layer::Autodiff(_) | Layer::Forward(..) | Layer::Fusion(_) | Layer::Autocast(_) => {
                None
            }
        }
    }

    /// The outermost layer, if it is fusion.
    pub fn fusion(&self) -> Option<&Arc<FusionLayer>> {
        match &self.0.layer {
            Layer::Fusion(layer) => Some(layer),
            Layer::None | Layer::Autodiff(_) | Layer::Forward(..) | Layer::Vmap(_) | Layer::Autocast(_) => {
                None
            }
        }
    }

    /// The outermost layer, if it is mixed precision.
    pub fn autocast(&self) -> Option<&Arc<AutocastLayer>> {
        match &self.0.layer {
            Layer::Autocast(layer) => Some(layer),
            Layer::None | Layer::Autodiff(_) | Layer::Forward(..) | Layer::Vmap(_) | Layer::Fusion(_) => None,
        }
    }

    /// The stack below automatic differentiation, if that is the outermost layer.
    pub fn inner(&self) -> Option<&Stack> {
        self.autodiff().and(self.0.below.as_ref())
    }

    /// The stack below the outermost layer, whichever it is; `None` for the engine of a device.
    pub fn below(&self) -> Option<&Stack> {
        self.0.below.as_ref()
    }

    /// Whether automatic differentiation by a tape is among the layers: what modules that differ in training ask.
    pub fn is_differentiated(&self) -> bool {
        core::iter::successors(Some(self), |stack| stack.below()).any(|stack| stack.autodiff().is_some())
    }

    /// Whether `other` is this stack, or below one of its layers.
    pub fn is_at_or_above(&self, other: &Stack) -> bool {
        core::iter::successors(Some(self), |stack| stack.below()).any(|stack| stack.same(other))
    }

    /// Where random ops on this stack get their keys: a device has one stream, which all its layers share.
    pub fn keys(&self) -> &KeyStream {
        self.below().map_or(&self.0.keys, Stack::keys)
    }

    /// The derivative that flows through a value of this stack: `the gradient` of a tape, or `the tangent` of forward mode.
    pub(crate) fn derivative_of(&self, value: &Value) -> Option<&'static str> {
        match &self.0.layer {
            Layer::Autodiff(layer) if layer.is_tracked(value) => Some("the gradient"),
            Layer::Forward(layer, _) if layer.tangent(value).is_some() => Some("the tangent"),
            // What the layer does not mark is a value of the stack below.
            Layer::Autodiff(_) | Layer::Forward(..) => self.below()?.derivative_of(value),
            Layer::None | Layer::Vmap(_) | Layer::Fusion(_) | Layer::Autocast(_) => None,
        }
    }

    /// A number that tells this stack from every other that is open.
    pub(crate) fn key(&self) -> crate::DeviceKey {
        let address = Arc::as_ptr(&self.0) as usize as u64;
        ((address >> 32) as u32, address as u32)
    }

    /// Whether both are the same opened stack.
    #[inline]
    pub fn same(&self, other: &Stack) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The stack opened before for this backend and device, or the one that `open` makes.
    pub(crate) fn opened(backend: TypeId, device: crate::DeviceKey, open: impl FnOnce() -> Stack) -> Stack {
        static OPENED: Mutex<BTreeMap<(TypeId, crate::DeviceKey), Stack>> = Mutex::new(BTreeMap::new());
        if let Some(stack) = OPENED.lock().get(&(backend, device)) {
            return stack.clone();
        }
        // Opened outside the lock: opening a stack opens the stacks below it. Of two threads, the first wins.
        let stack = open();
        OPENED.lock().entry((backend, device)).or_insert(stack).clone()
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
        match &self.0.layer {
            // Fusion changes no value: messages need not name it.
            Layer::None | Layer::Fusion(_) => {}
            Layer::Autodiff(_) => f.write_str("autodiff over ")?,
            Layer::Forward(..) => f.write_str("forward over ")?,
            Layer::Vmap(_) => f.write_str("vmap over ")?,
            Layer::Autocast(layer) => write!(f, "autocast to {} over ", layer.precision().dtype())?,
        }
        match &self.0.below {
            Some(below) => fmt::Debug::fmt(below, f),
            None => f.write_str(&self.0.device_name),
        }
    }
}
