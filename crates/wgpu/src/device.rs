//! Names of devices and graphics APIs.

use kiln_ir::Error;
use std::fmt;
use std::str::FromStr;

/// A device by the type of its adapter. Default: the fastest type that the machine has, in the order of the variants.
///
/// ```
/// use kiln_wgpu::WgpuDevice;
///
/// assert_eq!("discrete-gpu:1".parse(), Ok(WgpuDevice::DiscreteGpu(1)));
/// assert_eq!(WgpuDevice::Cpu.to_string(), "cpu");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WgpuDevice {
    /// The first discrete GPU; without one, the first integrated GPU, virtual GPU or CPU.
    #[default]
    Default,
    /// A GPU with its own memory, by its index among those.
    DiscreteGpu(usize),
    /// A GPU that shares the memory of the CPU, by its index among those.
    IntegratedGpu(usize),
    /// A GPU of a virtual machine, or an adapter of unknown type, by its index among those.
    VirtualGpu(usize),
    /// An implementation on the CPU, such as lavapipe or WARP.
    Cpu,
    /// A device of the program, by the number that [`from_existing`](crate::from_existing) returned.
    Existing(usize),
}

impl fmt::Display for WgpuDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WgpuDevice::Default => f.write_str("default"),
            WgpuDevice::DiscreteGpu(index) => write!(f, "discrete-gpu:{index}"),
            WgpuDevice::IntegratedGpu(index) => write!(f, "integrated-gpu:{index}"),
            WgpuDevice::VirtualGpu(index) => write!(f, "virtual-gpu:{index}"),
            WgpuDevice::Cpu => f.write_str("cpu"),
            WgpuDevice::Existing(number) => write!(f, "existing:{number}"),
        }
    }
}

impl FromStr for WgpuDevice {
    type Err = Error;

    /// Parses the form that `Display` writes. The index 0 may be omitted.
    fn from_str(text: &str) -> Result<WgpuDevice, Error> {
        let unknown = || {
            let accepted =
                "`default`, `discrete-gpu:N`, `integrated-gpu:N`, `virtual-gpu:N`, `cpu` or `existing:N`";
            Error::unsupported("wgpu", format!("unknown device `{text}`; a device is {accepted}"))
        };
        let (kind, index) = match text.split_once(':') {
            Some((kind, index)) => (kind, index.parse().map_err(|_| unknown())?),
            None => (text, 0),
        };
        match (kind, index) {
            ("default", 0) => Ok(WgpuDevice::Default),
            ("discrete-gpu", _) => Ok(WgpuDevice::DiscreteGpu(index)),
            ("integrated-gpu", _) => Ok(WgpuDevice::IntegratedGpu(index)),
            ("virtual-gpu", _) => Ok(WgpuDevice::VirtualGpu(index)),
            ("cpu", 0) => Ok(WgpuDevice::Cpu),
            ("existing", _) => Ok(WgpuDevice::Existing(index)),
            _ => Err(unknown()),
        }
    }
}

/// A graphics API that reaches the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Api {
    /// The first API with an adapter: Metal on Apple platforms, WebGPU in browsers, otherwise Vulkan, then Direct3D 12.
    #[default]
    Auto,
    /// Vulkan.
    Vulkan,
    /// Metal.
    Metal,
    /// Direct3D 12.
    Dx12,
    /// WebGPU in a browser.
    WebGpu,
}

impl Api {
    /// The APIs that `Auto` tries, in their order, or the API itself.
    pub(crate) fn candidates(self) -> &'static [Api] {
        match self {
            Api::Auto => &[Api::WebGpu, Api::Metal, Api::Vulkan, Api::Dx12],
            Api::Vulkan => &[Api::Vulkan],
            Api::Metal => &[Api::Metal],
            Api::Dx12 => &[Api::Dx12],
            Api::WebGpu => &[Api::WebGpu],
        }
    }

    /// The API in wgpu's terms; empty for `Auto`.
    pub(crate) fn backends(self) -> wgpu::Backends {
        match self {
            Api::Auto => wgpu::Backends::empty(),
            Api::Vulkan => wgpu::Backends::VULKAN,
            Api::Metal => wgpu::Backends::METAL,
            Api::Dx12 => wgpu::Backends::DX12,
            Api::WebGpu => wgpu::Backends::BROWSER_WEBGPU,
        }
    }

    /// The API of an adapter; `Auto` for one that Kiln does not select.
    pub(crate) fn of(backend: wgpu::Backend) -> Api {
        match backend {
            wgpu::Backend::Vulkan => Api::Vulkan,
            wgpu::Backend::Metal => Api::Metal,
            wgpu::Backend::Dx12 => Api::Dx12,
            wgpu::Backend::BrowserWebGpu => Api::WebGpu,
            wgpu::Backend::Gl | wgpu::Backend::Noop => Api::Auto,
        }
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Api::Auto => "wgpu",
            Api::Vulkan => "vulkan",
            Api::Metal => "metal",
            Api::Dx12 => "dx12",
            Api::WebGpu => "webgpu",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_parse_from_their_names() {
        use WgpuDevice::{Cpu, Default, DiscreteGpu, Existing, IntegratedGpu, VirtualGpu};
        for device in
            [Default, DiscreteGpu(0), DiscreteGpu(7), IntegratedGpu(1), VirtualGpu(2), Cpu, Existing(3)]
        {
            assert_eq!(device.to_string().parse(), Ok(device));
        }
        assert_eq!("discrete-gpu".parse(), Ok(DiscreteGpu(0)));
        for wrong in ["", "gpu", "cpu:1", "discrete-gpu:x", "discrete-gpu:-1"] {
            let error = wrong.parse::<WgpuDevice>().unwrap_err().to_string();
            assert!(error.contains("integrated-gpu:N"), "{error}");
        }
    }
}
