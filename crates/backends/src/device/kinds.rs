//! The table of device kinds that are built in.

use super::{Device, DeviceInfo};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::{Error, Result};

/// A kind of device that is built in.
pub(super) struct Kind {
    /// The name that [`Device::open`] takes.
    pub(super) name: &'static str,
    /// The crate feature with which it is compiled; `None` if every build has it.
    pub(super) feature: Option<&'static str>,
    /// `None` in a build without the feature.
    pub(super) driver: Option<Driver>,
}

/// The functions of a kind.
pub(crate) struct Driver {
    /// Opens a device by index.
    pub(crate) open: fn(usize) -> Result<Device>,
    /// Lists the devices of this machine, at least one, or says why there is none. Opens only those that their library
    /// cannot count.
    pub(crate) list: fn() -> Result<Vec<DeviceInfo>>,
}

/// A kind that needs a crate feature.
macro_rules! kind {
    ($name:literal if $feature:literal: $driver:expr) => {
        Kind {
            name: $name,
            feature: Some($feature),
            #[cfg(feature = $feature)]
            driver: Some($driver),
            #[cfg(not(feature = $feature))]
            driver: None,
        }
    };
}

/// All kinds. The book and [`Device::open`] describe the same rows.
pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "cpu",
        feature: None,
        driver: Some(Driver { open: |_| Ok(Device::cpu()), list: || processor("cpu", "with fusion") }),
    },
    Kind {
        name: "flex",
        feature: None,
        driver: Some(Driver { open: |_| Ok(Device::flex()), list: || processor("flex", "op by op") }),
    },
    kind!("cuda" if "cuda": crate::cuda::DRIVER),
    kind!("wgpu" if "wgpu": crate::wgpu::WGPU),
    kind!("vulkan" if "vulkan": crate::wgpu::VULKAN),
    kind!("metal" if "metal": crate::wgpu::METAL),
    kind!("dx12" if "dx12": crate::wgpu::DX12),
    kind!("webgpu" if "webgpu": crate::wgpu::WEBGPU),
    kind!("router" if "router": crate::routed::DRIVER),
    kind!("remote" if "remote": crate::remote::DRIVER),
    kind!("candle" if "candle": crate::candle::CPU),
    kind!("candle-cuda" if "candle-cuda": crate::candle::CUDA),
    kind!("candle-metal" if "candle-metal": crate::candle::METAL),
    kind!("libtorch" if "libtorch": crate::torch::CPU),
    kind!("libtorch-cuda" if "libtorch": crate::torch::CUDA),
    kind!("libtorch-mps" if "libtorch": crate::torch::MPS),
];

/// The built-in kind of that name.
pub(super) fn built_in(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}

impl Kind {
    /// The functions of the kind.
    ///
    /// # Errors
    /// When this build lacks its feature.
    pub(super) fn driver(&self) -> Result<&Driver> {
        self.driver.as_ref().ok_or_else(|| {
            let feature = self.feature.unwrap_or(self.name);
            let problem = format!("this program was built without Kiln's feature `{feature}`");
            Error::unsupported("device", format!("no device of kind `{}`: {problem}", self.name))
                .hint(format!("build with it: `cargo add kiln --features {feature}`"))
        })
    }
}

fn processor(kind: &str, manner: &str) -> Result<Vec<DeviceInfo>> {
    Ok(vec![DeviceInfo::new(kind, 0, format!("{}, {manner}", kiln_cpu::processor()))])
}
