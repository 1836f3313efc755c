//! Devices behind servers, by their number among the addresses in `KILN_REMOTE`.

use crate::device::{Device, DeviceInfo, Driver};
use crate::{RemoteBackend, RemoteDevice};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use kiln_tensor::{Backend, Error, Result};

/// The kind `remote`.
pub(crate) const DRIVER: Driver = Driver { open, list };

fn open(index: usize) -> Result<Device> {
    let urls = addresses();
    let url = urls.get(index).ok_or_else(|| {
        Error::device("remote", alloc::format!("there is no address number {index} in {}", urls.join(", ")))
            .hint("set `KILN_REMOTE` to the addresses of servers, separated by commas")
    })?;
    let device = RemoteDevice::new(url.as_str());
    device.open()?;
    Ok(RemoteBackend::stack(&device).into())
}

/// Those that answer. If none does, the error of the first.
fn list() -> Result<Vec<DeviceInfo>> {
    let mut devices = Vec::new();
    let mut lost = None;
    for (index, url) in addresses().iter().enumerate() {
        match RemoteDevice::new(url.as_str()).open() {
            Ok(()) => devices.push(DeviceInfo::new("remote", index, url.as_str())),
            Err(error) => lost = lost.or(Some(error)),
        }
    }
    match lost {
        Some(error) if devices.is_empty() => Err(error),
        Some(_) | None => Ok(devices),
    }
}

/// At least one.
fn addresses() -> Vec<String> {
    let split = |text: &str| {
        let urls: Vec<String> =
            text.split(',').map(|url| url.trim().to_string()).filter(|url| !url.is_empty()).collect();
        (!urls.is_empty()).then_some(urls)
    };
    kiln_ir::setting("KILN_REMOTE", "addresses such as `ws://host:3000`", split)
        .unwrap_or_else(|| alloc::vec!["ws://127.0.0.1:3000".to_string()])
}
