//! The list of the devices of this machine.

use super::{Device, kinds, registered};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use kiln_tensor::Result;

/// A kind of device, with the devices of this machine or the reason why there is none. [`Device::list`] returns all
/// kinds. Its [`Display`](fmt::Display) form has a line for each device, or a line with the reason and one with the hint.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceKind {
    /// The name that [`Device::open`] takes.
    pub name: String,
    /// The crate feature that this build lacks; `None` if it has all that the kind needs.
    pub missing_feature: Option<&'static str>,
    /// At least one device; or the error of the library, server or crate feature that is missing.
    pub devices: Result<Vec<DeviceInfo>>,
}

/// A device that [`open`](DeviceInfo::open) opens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The name of its kind.
    pub kind: String,
    /// Its index among the devices of the kind.
    pub index: usize,
    /// The model, address or configuration, such as `NVIDIA H100 80GB HBM3`.
    pub description: String,
    /// The bytes of its memory; `None` if it is not known before the device is opened.
    pub memory_bytes: Option<u64>,
}

impl DeviceInfo {
    pub(crate) fn new(kind: &str, index: usize, description: impl Into<String>) -> DeviceInfo {
        DeviceInfo { kind: kind.into(), index, description: description.into(), memory_bytes: None }
    }

    /// Opens the device.
    ///
    /// # Errors
    /// Those of [`Device::open`].
    pub fn open(&self) -> Result<Device> {
        Device::open(&self.kind, self.index)
    }
}

/// Every kind: the built-in ones, then the registered ones.
pub(super) fn all() -> Vec<DeviceKind> {
    let built_in = kinds::KINDS.iter().map(|kind| DeviceKind {
        name: kind.name.to_string(),
        missing_feature: kind.feature.filter(|_| kind.driver.is_none()),
        devices: kind.driver().and_then(|driver| (driver.list)()),
    });
    let others = registered().into_iter().map(|name| DeviceKind {
        devices: first(&name),
        missing_feature: None,
        name,
    });
    built_in.chain(others).collect()
}

/// Device 0 of a registered kind, whose number of devices is not known.
fn first(kind: &str) -> Result<Vec<DeviceInfo>> {
    let device = Device::open(kind, 0)?;
    Ok(vec![DeviceInfo::new(kind, 0, device.as_ref().device_name())])
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.devices {
            Ok(devices) => devices.iter().try_for_each(|device| writeln!(f, "{device}")),
            Err(error) => {
                let text = error.to_string();
                let mut lines = text.lines();
                writeln!(f, "{:<14} -  {}", self.name, lines.next().unwrap_or_default())?;
                lines.try_for_each(|line| writeln!(f, "{:<14}    {}", "", line.trim_start()))
            }
        }
    }
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = self
            .memory_bytes
            .map_or_else(String::new, |bytes| format!(", {:.1} GiB", bytes as f64 / (1u64 << 30) as f64));
        write!(f, "{:<14} {:<2} {}{memory}", self.kind, self.index, self.description)
    }
}
