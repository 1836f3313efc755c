//! Adapters of the machine, and their selection.

use crate::device::{Api, WgpuDevice};
use crate::info::device_of;
use kiln_ir::{Error, Result};
use std::fmt;

/// An adapter of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdapterInfo {
    /// The device that selects it.
    pub device: WgpuDevice,
    /// The API that reaches it.
    pub api: Api,
    /// The vendor's model name.
    pub model: String,
    /// Name and version of the driver.
    pub driver: String,
}

impl fmt::Display for AdapterInfo {
    /// Writes for example `cpu: llvmpipe (LLVM 15.0.6, 256 bits), vulkan, llvmpipe Mesa 22.3.6`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, {}", self.device, self.model, self.api)?;
        if self.driver.is_empty() { Ok(()) } else { write!(f, ", {}", self.driver) }
    }
}

/// An adapter that can be opened.
pub(crate) struct Found {
    pub(crate) adapter: wgpu::Adapter,
    pub(crate) info: AdapterInfo,
}

/// The adapters of an API, those of the fastest types first. For [`Api::Auto`], they are those of the first API that has
/// any.
///
/// # Errors
/// When there is no adapter.
pub(crate) async fn find(api: Api) -> Result<Vec<Found>> {
    let enabled = wgpu::Instance::enabled_backend_features();
    let mut tried = Vec::new();
    for candidate in api.candidates().iter().filter(|candidate| enabled.contains(candidate.backends())) {
        let found = enumerate(candidate.backends()).await;
        if !found.is_empty() {
            return Ok(found);
        }
        tried.push(candidate.to_string());
    }
    if tried.is_empty() {
        let problem = format!("this build has no support for {api} on this platform");
        let hint = "Vulkan is for Linux, Windows and Android, Metal for Apple, Direct3D 12 for Windows and WebGPU for \
                    browsers; each has a crate feature";
        return Err(Error::device(&api.to_string(), problem).hint(hint));
    }
    let hint = match tried.contains(&Api::Vulkan.to_string()) {
        true => "install the GPU's Vulkan driver; Debian's mesa-vulkan-drivers has one for the CPU",
        false => "install the GPU's driver, or use a browser with WebGPU",
    };
    Err(Error::device(&api.to_string(), format!("no adapter was found; tried {}", tried.join(", ")))
        .hint(hint))
}

/// The adapter that a device names.
///
/// # Errors
/// When there is none: the error lists the adapters.
pub(crate) fn pick(found: Vec<Found>, api: Api, device: WgpuDevice) -> Result<Found> {
    let listed: Vec<String> = found.iter().map(|found| found.info.to_string()).collect();
    let wanted = |found: &Found| device == WgpuDevice::Default || found.info.device == device;
    found.into_iter().find(wanted).ok_or_else(|| {
        let problem = format!("no adapter is `{device}`; the adapters are: {}", listed.join("; "));
        Error::device(&api.to_string(), problem).hint("`WgpuDevice::Default` selects the first of them")
    })
}

/// The adapters of one API, those of the fastest types first.
async fn enumerate(backends: wgpu::Backends) -> Vec<Found> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends,
        // Validation layers cost much time; wgpu itself validates every call.
        flags: wgpu::InstanceFlags::empty(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let mut adapters = adapters_of(&instance, backends).await;
    adapters.sort_by_key(|adapter| rank(adapter.get_info().device_type));
    let mut found: Vec<Found> = Vec::new();
    for adapter in adapters {
        let info = adapter.get_info();
        let is_alike = |other: &&Found| {
            std::mem::discriminant(&other.info.device)
                == std::mem::discriminant(&device_of(info.device_type, 0))
        };
        let device = device_of(info.device_type, found.iter().filter(is_alike).count());
        let driver = [info.driver, info.driver_info].join(" ").trim().to_owned();
        let info = AdapterInfo { device, api: Api::of(info.backend), model: info.name, driver };
        found.push(Found { adapter, info });
    }
    found
}

#[cfg(not(target_arch = "wasm32"))]
async fn adapters_of(instance: &wgpu::Instance, backends: wgpu::Backends) -> Vec<wgpu::Adapter> {
    instance.enumerate_adapters(backends).await
}

/// A browser offers one adapter, without its type.
#[cfg(target_arch = "wasm32")]
async fn adapters_of(instance: &wgpu::Instance, _: wgpu::Backends) -> Vec<wgpu::Adapter> {
    let wanted = wgpu::RequestAdapterOptions {
        power_preference: wgpu::PowerPreference::HighPerformance,
        ..wgpu::RequestAdapterOptions::default()
    };
    instance.request_adapter(&wanted).await.into_iter().collect()
}

/// The order of [`WgpuDevice::Default`].
fn rank(kind: wgpu::DeviceType) -> usize {
    match kind {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}
