//! Devices chosen at run time, and their backend.

use crate::{Cpu, CpuDevice, Flex, FlexDevice, cpu, with_autocast, with_fusion};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use kiln_autocast::LowPrecision;
use kiln_ir::Engine;
use kiln_tensor::{
    AutodiffBackend, Backend, Checkpointing, DType, DeviceKey, Error, ForwardBackend, MemoryConfig,
    MemoryUse, Result, Stack, VmapBackend,
};
use spin::Mutex;

/// The kinds that need no registration.
/// The device kinds that are built in.
const BUILT_IN: &[&str] = &[
    "cpu",
    "flex",
    #[cfg(feature = "cuda")]
    "cuda",
    #[cfg(feature = "candle")]
    "candle",
    #[cfg(feature = "candle")]
    "candle-cuda",
    #[cfg(feature = "candle")]
    "candle-metal",
    #[cfg(feature = "libtorch")]
    "libtorch",
    #[cfg(feature = "libtorch")]
    "libtorch-cuda",
    #[cfg(feature = "libtorch")]
    "libtorch-mps",
    #[cfg(feature = "remote")]
    "remote",
    #[cfg(feature = "router")]
    "router",
];

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

    /// The CPU, by candle's kernels: the device of [`Candle`](crate::Candle).
    #[cfg(feature = "candle")]
    pub fn candle() -> Device {
        Device(crate::Candle::<f32, i64>::stack(&crate::CandleDevice::Cpu))
    }

    /// The CPU, by LibTorch's kernels: the device of [`LibTorch`](crate::LibTorch). If LibTorch is missing, tensors carry the error.
    #[cfg(feature = "libtorch")]
    pub fn libtorch() -> Device {
        Device(crate::LibTorch::<f32, i64>::stack(&crate::LibTorchDevice::Cpu))
    }

    /// Devices of one router over these devices, in their order: their tensors may be operands of one op, and meet as the
    /// [`TransferPolicy`](crate::router::TransferPolicy) of the [engine](Device::router_engine) says. Each call makes a router of
    /// its own. The dtypes of new tensors are those of the first device.
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

    /// The engine of the [router](Device::router) that the device belongs to: its policy and its statistics.
    #[cfg(feature = "router")]
    pub fn router_engine(&self) -> Option<&kiln_router::Router> {
        self.0.find()
    }

    /// The device of a server at this address, such as `ws://host:3000`: that of [`RemoteBackend`](crate::RemoteBackend), where
    /// a server that does not answer surfaces too.
    #[cfg(feature = "remote")]
    pub fn remote(url: &str) -> Device {
        Device(crate::RemoteBackend::stack(&crate::RemoteDevice::new(url)))
    }

    /// Opens device `index` of a kind: a [registered](Device::register) one, `"cpu"`, `"flex"`, or with the crate
    /// feature `cuda`, `"cuda"`. The index is ignored for `"cpu"` and `"flex"`. With the crate feature `router`, `"router"`
    /// is a router over the CPU ([`Device::cpu`], index 0) and all GPUs after it, in their order. With the
    /// crate feature `remote`, `"remote"` is the server at address number `index` of those in `KILN_REMOTE`, which are
    /// separated by commas. With the crate feature `candle`, `"candle"` (the CPU), `"candle-cuda"` and
    /// `"candle-metal"` are devices of candle. With the crate feature `libtorch`, `"libtorch"` (the CPU), `"libtorch-cuda"` and
    /// `"libtorch-mps"` are devices of LibTorch.
    ///
    /// # Errors
    /// When the kind is not registered, or the device cannot be opened.
    pub fn open(kind: &str, index: usize) -> Result<Device> {
        match kind {
            "cpu" => return Ok(Device::cpu()),
            "flex" => return Ok(Device::flex()),
            #[cfg(feature = "cuda")]
            "cuda" => return crate::CudaDevice::open(index).map(|_| Device::cuda(index)),
            #[cfg(feature = "router")]
            "router" => return crate::routed::of_machine(index),
            #[cfg(feature = "remote")]
            "remote" => return open_remote(index),
            #[cfg(feature = "candle")]
            "candle" | "candle-cuda" | "candle-metal" => {
                return crate::candle::open(kind, index).map(Device);
            }
            #[cfg(feature = "libtorch")]
            "libtorch" | "libtorch-cuda" | "libtorch-mps" => {
                return crate::torch::open(kind, index).map(Device);
            }
            _ => {}
        }
        let open = || {
            let opener = OPENERS.lock().get(kind).copied();
            // The lock must be released before the error lists the kinds.
            let opener = opener.ok_or_else(|| unknown_kind(kind))?;
            Ok(Stack::new(opener(index)?, &format!("{kind}:{index}"), DType::F32, DType::I32))
        };
        Stack::try_opened(kind, DeviceKey::Index(index as u64), open).map(Device)
    }

    /// Registers the function that opens devices of a kind by index, replacing the previous one. Built-in kinds take
    /// precedence.
    pub fn register(kind: &str, open: fn(usize) -> Result<Arc<dyn Engine>>) {
        OPENERS.lock().insert(kind.into(), open);
    }

    /// Returns the device kinds that [`open`](Device::open) accepts.
    pub fn kinds() -> Vec<String> {
        BUILT_IN.iter().copied().map(ToString::to_string).chain(OPENERS.lock().keys().cloned()).collect()
    }

    /// Returns a new device over an engine, for engines and layers of other crates.
    pub fn from_engine(engine: Arc<dyn Engine>, name: &str) -> Device {
        Device(Stack::new(engine, name, DType::F32, DType::I32))
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

    fn stack(device: &Device) -> Stack {
        device.0.clone()
    }

    fn device(stack: &Stack) -> Device {
        Device(stack.clone())
    }
}

impl AutodiffBackend for Dyn {
    type InnerBackend = Dyn;
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

#[cfg(feature = "remote")]
fn open_remote(index: usize) -> Result<Device> {
    let split = |text: &str| Some(text.split(',').map(|url| url.trim().to_string()).collect());
    let urls: Vec<String> = kiln_ir::setting("KILN_REMOTE", "addresses such as `ws://host:3000`", split)
        .unwrap_or_else(|| alloc::vec!["ws://127.0.0.1:3000".to_string()]);
    let url = urls.get(index).ok_or_else(|| {
        Error::device("remote", format!("there is no address number {index} in {}", urls.join(", ")))
            .hint("set `KILN_REMOTE` to the addresses of servers, separated by commas")
    })?;
    let device = Device::remote(url);
    match crate::RemoteDevice::new(url.as_str()).lost() {
        Some(error) => Err(error),
        None => Ok(device),
    }
}

fn unknown_kind(kind: &str) -> Error {
    let problem = format!("unknown device kind `{kind}`; known: {}", Device::kinds().join(", "));
    let hint = match kind {
        "cuda" => "build with Kiln's feature `cuda`",
        "router" => "build with Kiln's feature `router`",
        "remote" => "build with Kiln's feature `remote`",
        "candle" => "build with Kiln's feature `candle`",
        _ => "`Device::register` adds a kind",
    };
    Error::unsupported("device", problem).hint(hint)
}
