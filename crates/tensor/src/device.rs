//! Devices.

use crate::{Backend, Checkpointing, Cpu, DType, Error, Flex, Result, Stack};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use kiln_autocast::LowPrecision;
use kiln_ir::{Engine, MemoryUse};
use spin::Mutex;

/// The kinds that need no registration.
const BUILT_IN: &[&str] = if cfg!(feature = "cuda") { &["cpu", "flex", "cuda"] } else { &["cpu", "flex"] };

/// What tells the devices of one backend apart.
pub type DeviceKey = (u32, u32);

/// The device of [`Flex`]: the processor, with one engine for the whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlexDevice;

/// The device of [`Cpu`](crate::Cpu): the processor, all its cores, with one engine for the whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuDevice;

/// A device chosen at run time, with the layers around it: the device of [`Dyn`](crate::Dyn).
///
/// ```
/// use kiln_tensor::{Device, Dyn, Tensor};
///
/// let device = Device::cpu().autodiff();
/// let x = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], &device).require_grad();
/// let gradients = (&x * &x).sum().backward();
/// assert_eq!(x.grad(&gradients).unwrap().into_data().to_vec::<f32>(), [2.0, 4.0]);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Device(pub(crate) Stack);

impl AsRef<Stack> for Device {
    fn as_ref(&self) -> &Stack {
        &self.0
    }
}

type Opener = fn(usize) -> Result<Arc<dyn Engine>>;
static OPENERS: Mutex<BTreeMap<String, Opener>> = Mutex::new(BTreeMap::new());
static OPENED: Mutex<BTreeMap<(String, usize), Device>> = Mutex::new(BTreeMap::new());

impl Device {
    /// The processor, with fusion: the device of [`Cpu`].
    pub fn cpu() -> Device {
        Device(Cpu::stack(&CpuDevice))
    }

    /// The processor, op by op: the device of [`Flex`].
    pub fn flex() -> Device {
        Device(Flex::stack(&FlexDevice))
    }

    /// The processor, with fusion and that many threads of its own. Repeated calls with the same number give equal devices.
    ///
    /// # Panics
    /// With 0 threads, or more than 1024.
    #[track_caller]
    pub fn cpu_with_threads(threads: usize) -> Device {
        at_least_one(threads);
        if let Some(device) = OPENED.lock().get(&("cpu".to_string(), threads)) {
            return device.clone();
        }
        // Opened outside the lock, which the device below takes too. Of two threads, the first wins.
        let device = Device(Device::flex_with_threads(threads).0.with_fusion());
        OPENED.lock().entry(("cpu".to_string(), threads)).or_insert(device).clone()
    }

    /// The processor op by op, with that many threads of its own. Repeated calls with the same number give equal devices.
    ///
    /// # Panics
    /// With 0 threads, or more than 1024.
    #[track_caller]
    pub fn flex_with_threads(threads: usize) -> Device {
        at_least_one(threads);
        let open = || {
            let engine = crate::backend::processor(kiln_cpu::Cpu::with_threads(threads));
            Device(Stack::new(engine, &format!("cpu with {threads} threads"), DType::F32, DType::I32))
        };
        OPENED.lock().entry(("flex".to_string(), threads)).or_insert_with(open).clone()
    }

    /// NVIDIA GPU number `index`, with fusion: the device of [`Cuda`](crate::Cuda), where a GPU that is missing surfaces too.
    #[cfg(feature = "cuda")]
    pub fn cuda(index: usize) -> Device {
        Device(crate::Cuda::<f32, i32>::stack(&crate::CudaDevice::new(index)))
    }

    /// Device number `index` of a kind that was [registered](Device::register), or `"cpu"`, or `"flex"`, or with the crate
    /// feature `cuda`, `"cuda"`.
    ///
    /// # Errors
    /// When nothing is registered under that name, or the device cannot be opened.
    pub fn open(kind: &str, index: usize) -> Result<Device> {
        match kind {
            "cpu" => return Ok(Device::cpu()),
            "flex" => return Ok(Device::flex()),
            #[cfg(feature = "cuda")]
            "cuda" => return crate::CudaDevice::open(index).map(|_| Device::cuda(index)),
            _ => {}
        }
        let key = (kind.to_string(), index);
        if let Some(device) = OPENED.lock().get(&key) {
            return Ok(device.clone());
        }
        // The lock must be free again before the error lists the kinds.
        let opener = OPENERS.lock().get(kind).copied();
        let opener = opener.ok_or_else(|| unknown_kind(kind))?;
        let stack = Stack::new(opener(index)?, &format!("{kind}:{index}"), DType::F32, DType::I32);
        Ok(OPENED.lock().entry(key).or_insert(Device(stack)).clone())
    }

    /// Registers how to open devices of a kind by number. Replaces what was registered before.
    pub fn register(kind: &str, open: fn(usize) -> Result<Arc<dyn Engine>>) {
        OPENERS.lock().insert(kind.into(), open);
    }

    /// The kinds that [`open`](Device::open) knows.
    pub fn kinds() -> Vec<String> {
        BUILT_IN.iter().copied().map(ToString::to_string).chain(OPENERS.lock().keys().cloned()).collect()
    }

    /// A device of its own over an engine, for engines and layers defined outside Kiln.
    pub fn from_engine(engine: Arc<dyn Engine>, name: &str) -> Device {
        Device(Stack::new(engine, name, DType::F32, DType::I32))
    }

    /// The same device with automatic differentiation. Repeated calls on one device give equal devices.
    #[must_use]
    pub fn autodiff(&self) -> Device {
        static LAYERED: Mutex<Vec<(Stack, Stack)>> = Mutex::new(Vec::new());
        let mut layered = LAYERED.lock();
        if let Some((_, stack)) = layered.iter().find(|(inner, _)| inner.same(&self.0)) {
            return Device(stack.clone());
        }
        let stack = self.0.with_autodiff(Checkpointing::None);
        layered.push((self.0.clone(), stack.clone()));
        Device(stack)
    }

    /// The same device with mixed precision: see [`Autocast`](crate::Autocast). Automatic differentiation goes around it.
    /// Repeated calls with the same precision on one device give equal devices.
    ///
    /// ```
    /// use kiln_tensor::{Device, LowPrecision};
    ///
    /// let device = Device::cpu().autocast(LowPrecision::BF16).autodiff();
    /// assert_eq!(format!("{device:?}"), "Device(autodiff over autocast to bf16 over cpu)");
    /// ```
    #[must_use]
    pub fn autocast(&self, precision: LowPrecision) -> Device {
        static LAYERED: Mutex<Vec<(Stack, LowPrecision, Stack)>> = Mutex::new(Vec::new());
        let mut layered = LAYERED.lock();
        let is_it = |inner: &Stack, other: LowPrecision| inner.same(&self.0) && other == precision;
        if let Some((_, _, stack)) = layered.iter().find(|(inner, other, _)| is_it(inner, *other)) {
            return Device(stack.clone());
        }
        let stack = self.0.with_autocast(precision);
        layered.push((self.0.clone(), precision, stack.clone()));
        Device(stack)
    }

    /// The device below [`autodiff`](Device::autodiff); the same device if there is none.
    #[must_use]
    pub fn inner(&self) -> Device {
        Device(self.0.inner().unwrap_or(&self.0).clone())
    }

    /// What tensors on the device take of its memory; `None` where its engine keeps no account.
    ///
    /// All devices that are the processor share one pool, so these are the numbers of the process. With fusion, ops that
    /// have not run yet take no memory.
    ///
    /// ```
    /// use kiln_tensor::{Device, Dyn, Tensor};
    ///
    /// let device = Device::flex();
    /// let before = device.memory().unwrap();
    /// let x = Tensor::<Dyn, 1>::zeros([1 << 20], &device);
    /// assert!(device.memory().unwrap().live_bytes >= before.live_bytes + (4 << 20));
    /// drop(x);
    /// device.trim_memory();
    /// assert_eq!(device.memory().unwrap().kept_bytes, 0);
    /// ```
    pub fn memory(&self) -> Option<MemoryUse> {
        self.0.memory().map(|memory| memory.usage())
    }

    /// Gives memory that is kept for later tensors back to the system.
    pub fn trim_memory(&self) {
        if let Some(memory) = self.0.memory() {
            memory.trim();
        }
    }

    /// Starts [`peak_live_bytes`](MemoryUse::peak_live_bytes) again from what lives now.
    pub fn reset_peak_memory(&self) {
        if let Some(memory) = self.0.memory() {
            memory.reset_peak();
        }
    }

    /// Whether the outermost layer is automatic differentiation.
    pub fn is_autodiff(&self) -> bool {
        self.0.autodiff().is_some()
    }
}

impl Default for Device {
    /// The processor.
    fn default() -> Device {
        Device::cpu()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({:?})", self.0)
    }
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

fn unknown_kind(kind: &str) -> Error {
    let problem = format!("`{kind}` is no kind of device; known: {}", Device::kinds().join(", "));
    let hint = match kind {
        "cuda" => "build with Kiln's feature `cuda`",
        _ => "`Device::register` adds a kind",
    };
    Error::unsupported("device", problem).hint(hint)
}
