//! The backends of GPUs of all vendors, through wgpu: Vulkan, Metal, Direct3D 12 and WebGPU.
//!
//! A browser cannot wait: await [`init_async`] before the first tensor, and read tensors by
//! [`into_data_async`](kiln_tensor::Tensor::into_data_async).

pub use kiln_wgpu::{
    AdapterInfo, Api, Profile, WgpuDevice, WgpuOptions, adapters, from_existing, init_async, list_async,
};

use crate::device::{Device, DeviceInfo, Driver};
use crate::{FloatElement, IntElement, with_fusion};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::time::Duration;
use kiln_ir::{Engine, or_unavailable};
use kiln_tensor::{Backend, DeviceKey, Error, Result, Stack};

/// A backend over one API, and its kind of devices.
macro_rules! backend {
    ($(#[$attribute:meta])* $name:ident, $api:expr, $driver:ident) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name<F = f32, I = i32>(PhantomData<(F, I)>);

        impl<F: FloatElement, I: IntElement> Backend for $name<F, I> {
            type Device = WgpuDevice;
            type FloatElem = F;
            type IntElem = I;
            type BoolElem = bool;

            fn stack(device: &WgpuDevice) -> Stack {
                let open = || {
                    let (engine, name) = engine(*device, $api);
                    with_fusion(&Stack::of_device(engine, *device, &name, F::DTYPE, I::DTYPE))
                };
                Stack::opened::<$name<F, I>>(key(*device), open)
            }
        }

        /// The kind of the backend's devices.
        #[allow(dead_code, reason = "a build for one API has no kind `wgpu`")]
        pub(crate) const $driver: Driver =
            Driver { open: |index| open::<$name>($api, index), list: || list($api) };
    };
}

backend! {
    /// The backend of GPUs of all vendors with [fusion](crate::Fusion), through the first API that finds an adapter: Metal on
    /// Apple platforms, WebGPU in browsers, otherwise Vulkan, then Direct3D 12. The environment variable `KILN_FUSION`
    /// (`off`, `on`, `check`) switches fusion.
    ///
    /// `F` and `I` are the dtypes of new float and integer tensors. `f64`, `i64` and `u64` need features of the adapter, and
    /// browsers have none of them; tensors of other dtypes are supported everywhere. All backends on one adapter share its
    /// engine, unless [`init_async`] opened one for them.
    ///
    /// If no adapter is found, tensors carry the error until one is read; it lists the adapters of the machine.
    /// [`Device::open`](crate::Device::open) returns the error at once.
    ///
    /// ```
    /// use kiln_backends::wgpu::{Wgpu, WgpuDevice};
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Wgpu, 1>::from_floats([1.0, 2.0], &WgpuDevice::Default);
    /// match (x * 2).try_into_data() {
    ///     Ok(data) => assert_eq!(data.to_vec::<f32>(), [2.0, 4.0]),
    ///     Err(error) => println!("{error}"),
    /// }
    /// ```
    Wgpu, Api::Auto, WGPU
}

#[cfg(feature = "vulkan")]
backend! {
    /// The backend of GPUs on Linux, Windows and Android through Vulkan; otherwise as [`Wgpu`].
    Vulkan, Api::Vulkan, VULKAN
}

#[cfg(feature = "metal")]
backend! {
    /// The backend of GPUs on Apple platforms through Metal; otherwise as [`Wgpu`].
    Metal, Api::Metal, METAL
}

#[cfg(feature = "dx12")]
backend! {
    /// The backend of GPUs on Windows through Direct3D 12; otherwise as [`Wgpu`].
    Dx12, Api::Dx12, DX12
}

#[cfg(feature = "webgpu")]
backend! {
    /// The backend of GPUs in browsers through WebGPU; otherwise as [`Wgpu`].
    WebGpu, Api::WebGpu, WEBGPU
}

/// Measures how fast the candidate kernels compute the matmuls that ran on a device so far. Later matmuls of similar sizes
/// run by the fastest kernel; their results differ by rounding. The choices are kept in the folder of `KILN_CACHE_DIR`, or
/// in the user's cache directory. Returns the number of measured classes of sizes. Those for which the budget is too short
/// are left to the next call.
///
/// Waits until the device has done all work, which a browser cannot.
///
/// ```
/// use core::time::Duration;
/// use kiln_backends::wgpu::{Api, WgpuDevice, tune};
///
/// match tune(WgpuDevice::Default, Api::Auto, Duration::ZERO) {
///     Ok(measured) => assert_eq!(measured, 0),
///     Err(error) => println!("{error}"),
/// }
/// ```
///
/// # Errors
/// When there is no such adapter, or the device failed or has no memory for the operands of a matmul.
pub fn tune(device: WgpuDevice, api: Api, budget: Duration) -> Result<usize> {
    kiln_wgpu::shared(device, api)?.tune(budget)
}

/// The engine of a device with its name in messages. The engine in place of a missing device returns the error.
fn engine(device: WgpuDevice, api: Api) -> (Arc<dyn Engine>, String) {
    let name = if device == WgpuDevice::Default { api.to_string() } else { format!("{api} {device}") };
    (or_unavailable(kiln_wgpu::shared(device, api), &name), name)
}

/// The key of a device: its type, and the index among the devices of that type.
fn key(device: WgpuDevice) -> DeviceKey {
    let (kind, index) = match device {
        WgpuDevice::Default => (0, 0),
        WgpuDevice::DiscreteGpu(index) => (1, index),
        WgpuDevice::IntegratedGpu(index) => (2, index),
        WgpuDevice::VirtualGpu(index) => (3, index),
        WgpuDevice::Cpu => (4, 0),
        WgpuDevice::Existing(index) => (5, index),
    };
    DeviceKey::Index((kind << 32) | index as u64)
}

/// Opens adapter `index` of an API.
fn open<B: Backend<Device = WgpuDevice>>(api: Api, index: usize) -> Result<Device> {
    let adapters = kiln_wgpu::list(api)?;
    let adapter = adapters.get(index).ok_or_else(|| {
        let listed: Vec<String> = adapters.iter().map(ToString::to_string).collect();
        let problem = format!("no adapter {index}; the adapters from 0 are: {}", listed.join("; "));
        Error::device(&api.to_string(), problem)
    })?;
    // The first adapter is the default device.
    let device = if index == 0 { WgpuDevice::Default } else { adapter.device };
    kiln_wgpu::shared(device, api)?;
    Ok(B::stack(&device).into())
}

fn list(api: Api) -> Result<Vec<DeviceInfo>> {
    let adapters = kiln_wgpu::list(api)?;
    let info = |(index, adapter): (usize, AdapterInfo)| {
        DeviceInfo::new(&api.to_string(), index, adapter.to_string())
    };
    Ok(adapters.into_iter().enumerate().map(info).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_different_keys() {
        use WgpuDevice::{Cpu, Default, DiscreteGpu, Existing, IntegratedGpu, VirtualGpu};
        let devices = [
            Default,
            Cpu,
            DiscreteGpu(0),
            DiscreteGpu(1),
            IntegratedGpu(0),
            VirtualGpu(0),
            Existing(0),
            Existing(1),
        ];
        for (place, device) in devices.iter().enumerate() {
            assert!(devices[..place].iter().all(|other| key(*other) != key(*device)), "{device}");
        }
    }
}
