//! Devices of stacks: a typed value, a name, a key stream.

use crate::random::KeyStream;
use alloc::boxed::Box;
use alloc::string::String;
use core::any::Any;
use core::fmt;
use serde::{Deserialize, Serialize};
use spin::Once;

/// A value that identifies the device of a [stack](crate::Stack). Implemented for all types with these bounds.
pub trait DeviceValue: Clone + fmt::Debug + PartialEq + Send + Sync + 'static {}

impl<D: Clone + fmt::Debug + PartialEq + Send + Sync + 'static> DeviceValue for D {}

/// The key that identifies a device of a backend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKey {
    /// A device of this machine, by index. Its stacks stay open until the process ends.
    Index(u64),
    /// A remote device, by address. Its stacks stay open as long as a tensor or a handle holds them.
    Url(String),
}

impl fmt::Display for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceKey::Index(index) => write!(f, "{index}"),
            DeviceKey::Url(url) => f.write_str(url),
        }
    }
}

/// A device as its stacks share it.
pub(super) struct OpenDevice {
    value: Box<dyn Value>,
    name: String,
    keys: KeyStream,
    key: Once<DeviceKey>,
    /// Its number, where the engine stands for several devices and creates values on this one.
    number: Option<usize>,
}

/// A [`DeviceValue`] behind a pointer.
trait Value: Any + Send + Sync {
    fn equals(&self, other: &dyn Any) -> bool;
}

impl<D: DeviceValue> Value for D {
    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<D>() == Some(self)
    }
}

impl OpenDevice {
    pub(super) fn new(value: impl DeviceValue, name: &str, number: Option<usize>) -> OpenDevice {
        let (keys, key) = (KeyStream::default(), Once::new());
        OpenDevice { value: Box::new(value), name: name.into(), keys, key, number }
    }

    pub(super) fn number(&self) -> Option<usize> {
        self.number
    }

    pub(super) fn value<D: DeviceValue>(&self) -> Option<&D> {
        let value: &dyn Any = &*self.value;
        value.downcast_ref()
    }

    pub(super) fn is<D: DeviceValue>(&self, value: &D) -> bool {
        self.value.equals(value)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn keys(&self) -> &KeyStream {
        &self.keys
    }

    pub(super) fn key(&self) -> Option<&DeviceKey> {
        self.key.get()
    }

    /// Sets the key by which the device is opened, unless it has one.
    pub(super) fn open_by(&self, key: &DeviceKey) {
        self.key.call_once(|| key.clone());
    }

    /// Returns whether stacks on the device live until the process ends.
    pub(super) fn is_kept(&self) -> bool {
        matches!(self.key(), Some(DeviceKey::Index(_)))
    }
}
