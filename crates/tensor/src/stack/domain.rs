//! Domains: an engine with layers, for one or several devices.

use super::device::OpenDevice;
use super::{DeviceValue, Inner, Stack, registry};
use crate::DType;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::{Any, TypeId};
use core::fmt;
use kiln_ir::{Dispatch, Engine};
use spin::Mutex;

/// The id of stacks whose values may be operands of one op: see [`Stack::domain`]. Unique in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(u64);

impl DomainId {
    fn next() -> DomainId {
        static NEXT: Mutex<u64> = Mutex::new(0);
        let mut next = NEXT.lock();
        *next += 1;
        DomainId(*next)
    }
}

impl fmt::Display for DomainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "domain {}", self.0)
    }
}

/// An engine with the layers around it. Stacks hold their domain, so references from here to stacks and to domains above
/// are weak.
pub(super) struct Domain {
    id: DomainId,
    engine: Arc<dyn Engine>,
    /// The label of the outermost layer.
    label: String,
    /// The dtypes of new floats and integers.
    dtypes: [DType; 2],
    /// A stack for each device.
    stacks: Mutex<Vec<(Arc<OpenDevice>, Weak<Inner>)>>,
    /// Domains of this one with a layer around it.
    layers: Mutex<Vec<Layered>>,
}

struct Layered {
    layer: TypeId,
    settings: Box<dyn Any + Send + Sync>,
    domain: Weak<Domain>,
}

impl Layered {
    fn is<L: 'static, S: PartialEq + 'static>(&self, settings: &S) -> bool {
        self.layer == TypeId::of::<L>() && self.settings.downcast_ref::<S>() == Some(settings)
    }
}

impl Domain {
    pub(super) fn new(engine: Arc<dyn Engine>, label: String, dtypes: [DType; 2]) -> Arc<Domain> {
        let (stacks, layers) = (Mutex::default(), Mutex::default());
        Arc::new(Domain { id: DomainId::next(), engine, label, dtypes, stacks, layers })
    }

    pub(super) fn id(&self) -> DomainId {
        self.id
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn dtypes(&self) -> [DType; 2] {
        self.dtypes
    }

    /// Returns the stack for a device. `below` is the one without the outermost layer.
    pub(super) fn stack(self: &Arc<Domain>, device: &Arc<OpenDevice>, below: Option<&Stack>) -> Stack {
        let mut stacks = self.stacks.lock();
        let known = stacks.iter().find(|(known, _)| Arc::ptr_eq(known, device));
        if let Some(stack) = known.and_then(|(_, stack)| stack.upgrade()) {
            return Stack(stack);
        }
        let inner = Inner {
            engine: Dispatch::new(self.engine.clone()),
            domain: self.clone(),
            device: device.clone(),
            number: device.number(),
            below: below.cloned(),
        };
        let stack = Stack(Arc::new(inner));
        stacks.retain(|(_, stack)| stack.strong_count() > 0);
        stacks.push((device.clone(), Arc::downgrade(&stack.0)));
        if device.is_kept() {
            registry::keep(&stack);
        }
        stack
    }

    /// Returns the device of an open stack that has this value.
    pub(super) fn device(&self, value: &impl DeviceValue) -> Option<Arc<OpenDevice>> {
        let stacks = self.stacks.lock();
        let mut open = stacks.iter().filter(|(_, stack)| stack.strong_count() > 0);
        open.find(|(device, _)| device.is(value)).map(|(device, _)| device.clone())
    }

    /// Returns the domain with a layer around it.
    /// The device of an open stack that has this number.
    pub(super) fn numbered(&self, number: usize) -> Option<Arc<OpenDevice>> {
        let stacks = self.stacks.lock();
        let mut open = stacks.iter().filter(|(_, stack)| stack.strong_count() > 0);
        open.find(|(device, _)| device.number() == Some(number)).map(|(device, _)| device.clone())
    }

    pub(super) fn layered<L: Engine, S: PartialEq + Send + Sync + 'static>(
        &self,
        label: &str,
        settings: S,
        wrap: impl FnOnce(Arc<dyn Engine>) -> Arc<L>,
    ) -> Arc<Domain> {
        let known = |layers: &[Layered]| {
            layers
                .iter()
                .filter(|layered| layered.is::<L, S>(&settings))
                .find_map(|known| known.domain.upgrade())
        };
        if let Some(domain) = known(&self.layers.lock()) {
            return domain;
        }
        // Created outside the lock, since a layer may add others to its engine. Of two threads, the first wins.
        let domain = Domain::new(wrap(self.engine.clone()), label.to_string(), self.dtypes);
        let mut layers = self.layers.lock();
        if let Some(first) = known(&layers) {
            return first;
        }
        layers.retain(|layered| layered.domain.strong_count() > 0);
        let layer = TypeId::of::<L>();
        layers.push(Layered { layer, settings: Box::new(settings), domain: Arc::downgrade(&domain) });
        domain
    }
}
