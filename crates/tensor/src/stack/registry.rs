//! The registry of opened stacks, by backend and device.

use super::{DeviceKey, Inner, Stack};
use crate::Result;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Weak;
use alloc::vec::Vec;
use core::any::TypeId;
use core::convert::Infallible;
use spin::Mutex;

/// The part of a stack's name that is not its device.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Backend(TypeId),
    Name(String),
}

enum Opened {
    /// On a local device.
    Kept(Stack),
    /// On a device elsewhere.
    Held(Weak<Inner>),
}

impl Opened {
    fn stack(&self) -> Option<Stack> {
        match self {
            Opened::Kept(stack) => Some(stack.clone()),
            Opened::Held(stack) => stack.upgrade().map(Stack),
        }
    }

    fn is_open(&self) -> bool {
        match self {
            Opened::Kept(_) => true,
            Opened::Held(stack) => stack.strong_count() > 0,
        }
    }
}

static OPENED: Mutex<BTreeMap<(Kind, DeviceKey), Opened>> = Mutex::new(BTreeMap::new());

/// Stacks with layers that were added to local devices.
static KEPT: Mutex<Vec<Stack>> = Mutex::new(Vec::new());

/// Keeps a stack until the process ends.
pub(super) fn keep(stack: &Stack) {
    KEPT.lock().push(stack.clone());
}

pub(super) fn opened<B: 'static>(key: DeviceKey, open: impl FnOnce() -> Stack) -> Stack {
    let opened = open_once((Kind::Backend(TypeId::of::<B>()), key), || Ok::<_, Infallible>(open()));
    match opened {
        Ok(stack) => stack,
        Err(never) => match never {},
    }
}

pub(super) fn try_opened(kind: &str, key: DeviceKey, open: impl FnOnce() -> Result<Stack>) -> Result<Stack> {
    open_once((Kind::Name(kind.to_string()), key), open)
}

fn open_once<E>(
    name: (Kind, DeviceKey),
    open: impl FnOnce() -> core::result::Result<Stack, E>,
) -> core::result::Result<Stack, E> {
    if let Some(stack) = OPENED.lock().get(&name).and_then(Opened::stack) {
        return Ok(stack);
    }
    // Opened outside the lock: opening a stack opens the stacks below it. Of two threads, the first wins.
    let stack = open()?;
    stack.0.device.open_by(&name.1);
    let mut opened = OPENED.lock();
    if let Some(first) = opened.get(&name).and_then(Opened::stack) {
        return Ok(first);
    }
    opened.retain(|_, opened| opened.is_open());
    let is_kept = stack.0.device.is_kept();
    let entry = if is_kept {
        Opened::Kept(stack.clone())
    } else {
        Opened::Held(alloc::sync::Arc::downgrade(&stack.0))
    };
    opened.insert(name, entry);
    Ok(stack)
}
