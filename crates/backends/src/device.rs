//! Devices chosen at run time, and their backend. [`kinds`] is the table of device kinds.

mod kinds;
mod list;

#[allow(unused_imports, reason = "the kinds of crate features use it")]
pub(crate) use kinds::Driver;
pub use list::{DeviceInfo, DeviceKind};

use crate::{Cpu, CpuDevice, Flex, FlexDevice, cpu, with_autocast, with_fusion};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use kiln_autocast::LowPrecision;
use kiln_ir::{Custom, Engine, Expand, TensorData};
use kiln_tensor::{
    AutodiffBackend, Backend, Checkpointing, DType, DeviceKey, Error, ForwardBackend, MemoryConfig,
    MemoryUse, Result, Stack, VmapBackend,
};
use spin::Mutex;

/// A device chosen at run time, including its layers: the device of [`Dyn`]. Any [`Stack`] can be converted to it.
///
/// ```
/// use kiln_backends::{Device, Dyn};
/// use kiln_tensor::Tensor;
///
/// let device = Device::cpu().autodiff();
/// let x = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], &device).require_grad();
/// let gradients = (&x * &x).sum().backward();
/// assert_eq!(x.grad(&gradients).unwrap().into_data().to_vec::<f32>(), [2.0, 4.0]);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Device(Stack);

impl AsRef<Stack> for Device {
    fn as_ref(&self) -> &Stack {
        &self.0
    }
}

impl From<Stack> for Device {
    fn from(stack: Stack) -> Device {
        Device(stack)
    }
}

type Opener = fn(usize) -> Result<Arc<dyn Engine>>;
static OPENERS: Mutex<BTreeMap<String, Opener>> = Mutex::new(BTreeMap::new());

impl Device {
    /// Returns the CPU with fusion: the device of [`Cpu`].
    pub fn cpu() -> Device {
        Device(Cpu::stack(&CpuDevice))
    }

    /// Returns the CPU without fusion: the device of [`Flex`].
    pub fn flex() -> Device {
        Device(Flex::stack(&FlexDevice))
    }

    /// Returns the CPU with fusion and a thread pool of `threads` threads. Repeated calls with the same number return
    /// equal devices.
    ///
    /// # Panics
    /// When `threads` is 0 or more than 1024.
    #[track_caller]
    pub fn cpu_with_threads(threads: usize) -> Device {
        at_least_one(threads);
        Device(with_fusion(&cpu::with_threads(threads)))
    }

    /// Returns the CPU without fusion, with a thread pool of `threads` threads. Repeated calls with the same number
    /// return equal devices.
    ///
    /// # Panics
    /// When `threads` is 0 or more than 1024.
    #[track_caller]
    pub fn flex_with_threads(threads: usize) -> Device {
        at_least_one(threads);
        Device(cpu::with_threads(threads))
    }

    /// Returns NVIDIA GPU `index` with fusion: the device of [`Cuda`](crate::Cuda). If the GPU is missing, tensors on
    /// it carry the error.
    #[cfg(feature = "cuda")]
    pub fn cuda(index: usize) -> Device {
        Device(crate::Cuda::<f32, i32>::stack(&crate::CudaDevice::new(index)))
    }

    /// Returns a GPU of any vendor with fusion, through wgpu: the device of [`Wgpu`](crate::Wgpu). If it is missing, tensors
    /// on it carry the error.
    #[cfg(any(feature = "vulkan", feature = "metal", feature = "dx12", feature = "webgpu"))]
    pub fn wgpu(device: crate::WgpuDevice) -> Device {
        Device(crate::Wgpu::<f32, i32>::stack(&device))
    }

    /// Returns the CPU, by candle's kernels: the device of [`Candle`](crate::Candle).
    #[cfg(feature = "candle")]
    pub fn candle() -> Device {
        Device(crate::Candle::<f32, i64>::stack(&crate::CandleDevice::Cpu))
    }

    /// Returns the CPU, by LibTorch's kernels: the device of [`LibTorch`](crate::LibTorch). If LibTorch is missing,
    /// tensors carry the error.
    #[cfg(feature = "libtorch")]
    pub fn libtorch() -> Device {
        Device(crate::LibTorch::<f32, i64>::stack(&crate::LibTorchDevice::Cpu))
    }

    /// Returns devices of one router over these devices, in their order: their tensors may be operands of one op, and
    /// meet as the [`TransferPolicy`](crate::router::TransferPolicy) of the [engine](Device::router_engine) says. Each
    /// call makes a router of its own. The dtypes of new tensors are those of the first device.
    ///
    /// # Panics
    /// When a device has automatic differentiation, which goes around the router.
    ///
    /// ```
    /// use kiln_backends::{Device, Dyn};
    /// use kiln_tensor::Tensor;
    ///
    /// let [cpu, flex] = Device::router(&[Device::cpu(), Device::flex()]);
    /// let x = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], &cpu);
    /// let y = Tensor::<Dyn, 1>::from_floats([3.0, 4.0], &flex);
    /// assert_eq!((x + y).into_data().to_vec::<f32>(), [4.0, 6.0]);
    /// assert_eq!(flex.router_engine().unwrap().statistics().automatic.transfers, 1);
    /// ```
    #[cfg(feature = "router")]
    #[track_caller]
    pub fn router<const N: usize>(devices: &[Device; N]) -> [Device; N] {
        for device in devices {
            assert!(
                !device.0.is_differentiated(),
                "[device] a router is over devices without automatic differentiation, not over {device:?}\n  hint: \
                 put it around the router: `Device::router(...).map(|device| device.autodiff())`"
            );
        }
        crate::routed::over(devices)
    }

    /// Returns the engine of the [router](Device::router) that the device belongs to: its policy and its statistics.
    #[cfg(feature = "router")]
    pub fn router_engine(&self) -> Option<&kiln_router::Router> {
        self.0.find()
    }

    /// Returns the device of a server at this address, such as `ws://host:3000`: that of
    /// [`RemoteBackend`](crate::RemoteBackend), where a server that does not answer surfaces too.
    #[cfg(feature = "remote")]
    pub fn remote(url: &str) -> Device {
        Device(crate::RemoteBackend::stack(&crate::RemoteDevice::new(url)))
    }

    /// Opens device `index` of a kind: a [registered](Device::register) one, or one of these.
    ///
    /// | kind | crate feature | device `index` |
    /// |---|---|---|
    /// | `cpu` | | the CPU with fusion; the index is ignored |
    /// | `flex` | | the CPU without fusion; the index is ignored |
    /// | `cuda` | `cuda` | NVIDIA GPU `index` |
    /// | `wgpu` | `wgpu` | adapter `index` of the first API that finds one, the fastest first |
    /// | `vulkan`, `metal`, `dx12`, `webgpu` | of the same names | adapter `index` of the API, the fastest first |
    /// | `router` | `router` | a router over the CPU (index 0) and all GPUs after it, in their order |
    /// | `remote` | `remote` | the server at address `index` of those in `KILN_REMOTE`, separated by commas |
    /// | `candle` | `candle` | candle on the CPU |
    /// | `candle-cuda`, `candle-metal` | of the same names | candle on GPU `index` |
    /// | `libtorch` | `libtorch` | LibTorch on the CPU |
    /// | `libtorch-cuda`, `libtorch-mps` | `libtorch` | LibTorch on GPU `index` of NVIDIA or AMD, or of Apple |
    ///
    /// [`Device::list`] says which of them this machine has.
    ///
    /// # Errors
    /// When the kind is unknown, this build lacks its crate feature, or the device cannot be opened.
    pub fn open(kind: &str, index: usize) -> Result<Device> {
        if let Some(built_in) = kinds::built_in(kind) {
            return (built_in.driver()?.open)(index);
        }
        let open = || {
            let opener = OPENERS.lock().get(kind).copied();
            // The lock must be released before the error lists the kinds.
            let opener = opener.ok_or_else(|| unknown_kind(kind))?;
            Ok(Stack::new(opener(index)?, &format!("{kind}:{index}"), DType::F32, DType::I32))
        };
        Stack::try_opened(kind, DeviceKey::Index(index as u64), open).map(Device)
    }

    /// Returns each device kind with the devices of this machine, or the reason why there is none.
    ///
    /// NVIDIA GPUs of Kiln's own backend are counted without being opened. The devices of candle and LibTorch may be
    /// opened; device 0 of each [registered](Device::register) kind is. Each `remote` server is asked, which takes at most
    /// 10 seconds where nobody answers.
    ///
    /// ```
    /// use kiln_backends::Device;
    ///
    /// for kind in Device::list() {
    ///     print!("{kind}");
    /// }
    /// let list = Device::list();
    /// let cpu = list.iter().find(|kind| kind.name == "cpu").unwrap();
    /// let device = cpu.devices.as_ref().unwrap()[0].open()?;
    /// assert_eq!(device, Device::cpu());
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[doc(alias = "device_count")]
    #[doc(alias = "is_available")]
    pub fn list() -> Vec<DeviceKind> {
        list::all()
    }

    /// Registers the function that opens devices of a kind by index, replacing the previous one. Built-in kinds take
    /// precedence.
    pub fn register(kind: &str, open: fn(usize) -> Result<Arc<dyn Engine>>) {
        OPENERS.lock().insert(kind.into(), open);
    }

    /// Returns the device kinds that [`open`](Device::open) accepts in this build.
    pub fn kinds() -> Vec<String> {
        let built_in = kinds::KINDS.iter().filter(|kind| kind.driver.is_some());
        built_in.map(|kind| kind.name.to_string()).chain(registered()).collect()
    }

    /// Returns a new device over an engine, for engines and layers of other crates.
    pub fn from_engine(engine: Arc<dyn Engine>, name: &str) -> Device {
        Device(Stack::new(engine, name, DType::F32, DType::I32))
    }

    /// Registers a host kernel for the custom ops of that name on this device. It receives the op and its operands as
    /// data, a plain number as a rank-0 tensor, and returns results of the types that the op's `infer` returns. It has
    /// priority over the op's expansion. On a GPU, operands are copied to the host and results back.
    ///
    /// ```
    /// use kiln_backends::Device;
    ///
    /// Device::cpu().register_kernel("same", |_, inputs| Ok(inputs.to_vec()));
    /// ```
    pub fn register_kernel(
        &self,
        name: &str,
        kernel: impl Fn(&Custom, &[TensorData]) -> Result<Vec<TensorData>> + Send + Sync + 'static,
    ) {
        // Every stack has the layer that runs custom ops.
        if let Some(layer) = self.0.find::<Expand>() {
            layer.register_kernel(name, kernel);
        }
    }

    /// Returns the device with automatic differentiation. Repeated calls on one device return equal devices.
    #[must_use]
    pub fn autodiff(&self) -> Device {
        Device(self.0.with_autodiff(Checkpointing::None))
    }

    /// Returns the device with mixed precision; see [`Autocast`](crate::Autocast). Call [`autodiff`](Device::autodiff)
    /// on the result, not before. Repeated calls with the same precision on one device return equal devices.
    ///
    /// ```
    /// use kiln_backends::{Device, LowPrecision};
    ///
    /// let device = Device::cpu().autocast(LowPrecision::BF16).autodiff();
    /// assert_eq!(format!("{device:?}"), "Device(autodiff over autocast to bf16 over cpu)");
    /// ```
    #[must_use]
    pub fn autocast(&self, precision: LowPrecision) -> Device {
        Device(with_autocast(&self.0, precision))
    }

    /// Returns the device below [`autodiff`](Device::autodiff), or the same device if there is no such layer.
    #[must_use]
    pub fn inner(&self) -> Device {
        Device(self.0.inner().unwrap_or(&self.0).clone())
    }

    /// Returns the memory statistics of the device; `None` if its engine does not track allocations.
    ///
    /// All CPU devices share one allocator, so these are the statistics of the process. With fusion, pending ops
    /// take no memory.
    ///
    /// ```
    /// use kiln_backends::{Device, Dyn};
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Device::flex();
    /// let before = device.memory().unwrap();
    /// let x = Tensor::<Dyn, 1>::zeros([1 << 20], &device);
    /// assert!(device.memory().unwrap().live_bytes >= before.live_bytes + (4 << 20));
    /// drop(x);
    /// device.memory_cleanup();
    /// assert_eq!(device.memory().unwrap().cached_bytes, 0);
    /// ```
    #[doc(alias = "memory_allocated")]
    pub fn memory(&self) -> Option<MemoryUse> {
        Dyn::memory(self)
    }

    /// Sets the memory strategy of the device from now on; see [`Backend::configure_memory`].
    ///
    /// # Errors
    /// When its engine has no caching allocator.
    ///
    /// ```
    /// use kiln_backends::{Device, Dyn};
    /// use kiln_tensor::{CacheStrategy, MemoryConfig, Tensor};
    ///
    /// let device = Device::flex();
    /// device.configure_memory(MemoryConfig::new().with_cache(CacheStrategy::AtMost(1 << 20)))?;
    /// drop(Tensor::<Dyn, 1>::zeros([1 << 22], &device));
    /// assert!(device.memory().unwrap().cached_bytes <= 1 << 20);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    pub fn configure_memory(&self, config: MemoryConfig) -> Result<()> {
        Dyn::configure_memory(self, config)
    }

    /// Returns cached memory to the system.
    #[doc(alias = "empty_cache")]
    pub fn memory_cleanup(&self) {
        Dyn::memory_cleanup(self);
    }

    /// Resets [`peak_live_bytes`](MemoryUse::peak_live_bytes) to the bytes in use now.
    #[doc(alias = "reset_peak_memory_stats")]
    pub fn reset_peak_memory(&self) {
        Dyn::reset_peak_memory(self);
    }

    /// Returns whether the outermost layer is automatic differentiation.
    pub fn is_autodiff(&self) -> bool {
        self.0.inner().is_some()
    }
}

impl Default for Device {
    /// The CPU with fusion.
    fn default() -> Device {
        Device::cpu()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({:?})", self.0)
    }
}

/// The backend that its [`Device`] selects at run time. `backward` requires a device with automatic differentiation
/// ([`Device::autodiff`]), and panics on others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dyn;

impl Backend for Dyn {
    type Device = Device;
    type FloatElem = f32;
    type IntElem = i32;
    type BoolElem = bool;

    fn stack(device: &Device) -> Stack {
        device.0.clone()
    }

    fn device(stack: &Stack) -> Device {
        Device(stack.clone())
    }
}

impl AutodiffBackend for Dyn {
    type InnerBackend = Dyn;

    fn inner_device(device: &Device) -> Device {
        device.inner()
    }
}

impl ForwardBackend for Dyn {
    type InnerBackend = Dyn;
}

impl VmapBackend for Dyn {
    type InnerBackend = Dyn;
}

#[track_caller]
fn at_least_one(threads: usize) {
    assert!(
        threads > 0,
        "[device] the processor needs at least 1 thread\n  hint: `Device::cpu()` uses all cores"
    );
    assert!(
        threads <= kiln_cpu::MAX_THREADS,
        "[device] {threads} threads are more than the {} that an engine may have\n  hint: `Device::cpu()` uses all cores",
        kiln_cpu::MAX_THREADS
    );
}

/// The registered kinds.
fn registered() -> Vec<String> {
    OPENERS.lock().keys().cloned().collect()
}

fn unknown_kind(kind: &str) -> Error {
    let problem = format!("unknown device kind `{kind}`; known: {}", Device::kinds().join(", "));
    Error::unsupported("device", problem).hint("`Device::register` adds a kind")
}
