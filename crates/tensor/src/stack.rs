//! Engine stacks: what a backend and a device open.

use crate::{DType, random::KeyStream};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::any::TypeId;
use core::fmt;
use kiln_autodiff::Autodiff as AutodiffLayer;
use kiln_ir::Engine;
use spin::Mutex;

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
    autodiff: Option<(Arc<AutodiffLayer>, Stack)>,
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
            autodiff: None,
        }))
    }

    /// This stack with automatic differentiation around it.
    #[must_use]
    pub fn with_autodiff(&self, checkpointing: crate::Checkpointing) -> Stack {
        let layer = Arc::new(AutodiffLayer::new(self.0.engine.clone(), checkpointing));
        Stack(Arc::new(Inner {
            engine: layer.clone(),
            device_name: self.0.device_name.clone(),
            float: self.0.float,
            int: self.0.int,
            keys: KeyStream::default(),
            autodiff: Some((layer, self.clone())),
        }))
    }

    /// The outermost engine.
    #[inline]
    pub fn engine(&self) -> &dyn Engine {
        &*self.0.engine
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
        self.0.autodiff.as_ref().map(|(layer, _)| layer)
    }

    /// The stack below automatic differentiation, if that is the outermost layer.
    pub fn inner(&self) -> Option<&Stack> {
        self.0.autodiff.as_ref().map(|(_, inner)| inner)
    }

    /// Where random ops on this stack get their keys.
    pub fn keys(&self) -> &KeyStream {
        &self.0.keys
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
        let layer = if self.0.autodiff.is_some() { "autodiff over " } else { "" };
        write!(f, "{layer}{}", self.0.device_name)
    }
}
