//! The engine for GPUs of all vendors through [wgpu]: Vulkan, Metal, Direct3D 12, and WebGPU in browsers.
//!
//! The engine is that of [`kiln_gpu`]; this crate implements its [driver](WgpuDriver). Kernels are WGSL, which wgpu
//! checks and translates for the API. A program builds on a machine without a GPU: the API is looked for when a device is
//! opened, and [`shared`] returns an error that lists the adapters of the machine. An implementation on the CPU, such as
//! lavapipe, is an adapter too.
//!
//! * **Dtypes**: `f64`, `i64` and `u64` need features of the adapter. Kernels with them are otherwise an error that names
//!   the dtype. 8- and 16-bit elements are unpacked from words of 32 bits, and computed in 32 bits.
//! * **Accuracy**: division and square roots are rounded to nearest on every driver, and other functions have errors of a few
//!   units in the last place. Drivers may take subnormal `f32` numbers for zero in sums, products and comparisons.
//! * **Limits**: a binding has at most 128 MiB in a browser. A kernel binds a larger tensor in parts, as far as its number of
//!   bindings allows. `KILN_WGPU_LIMITS=webgpu` opens devices with the limits and features that every browser has
//!   ([`Profile::WebGpu`]).
//! * **Tensor cores** multiply 16-bit floats where the adapter has cooperative matrices (`KILN_WGPU_COOPERATIVE=off`
//!   disables them).
//! * **Errors** never abort the program. After the loss of a device, every call returns an error with the reason.
//! * **Compiled pipelines** are kept on disk where the API is Vulkan (`KILN_CACHE_DIR`), so that later processes start
//!   faster. Other drivers have caches of their own.
//! * **Renderers** share a device with tensors: [`from_existing`].
//! * **Browsers** cannot block: [`init_async`] opens a device, and values are read by asynchronous methods.
//!
//! ```
//! use kiln_ir::{Engine, TensorData, block_on};
//! use kiln_wgpu::{Api, WgpuDevice};
//!
//! match kiln_wgpu::shared(WgpuDevice::Default, Api::Auto) {
//!     Ok(gpu) => {
//!         let data = TensorData::new(vec![1.0f32, 2.0], [2])?;
//!         assert_eq!(block_on(gpu.read(gpu.write(data.clone())))?, data);
//!     }
//!     Err(error) => println!("{error}"),
//! }
//! # Ok::<(), kiln_ir::Error>(())
//! ```
#![deny(unsafe_code)]

mod adapter;
mod arguments;
mod bytes;
mod commands;
mod device;
// Launching is unsafe in the trait, since other drivers do not check the bounds of accesses.
#[allow(unsafe_code)]
mod driver;
mod failure;
mod info;
mod options;
// Creating a pipeline cache from data is unsafe.
#[allow(unsafe_code)]
mod pipeline_cache;
// Compiling without runtime checks is unsafe.
#[allow(unsafe_code)]
mod program;
mod signal;

pub use adapter::AdapterInfo;
pub use device::{Api, WgpuDevice};
pub use driver::{WgpuDriver, WgpuMemory};
pub use options::{Profile, WgpuOptions};
pub use program::WgpuFunction;
pub use wgpu;

use adapter::{Found, find, pick};
use kiln_gpu::Gpu;
use kiln_ir::{Error, MemoryConfig, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The engine of a device of wgpu.
pub type Wgpu = Gpu<WgpuDriver>;

/// The key of an opened engine: with the limits that its kernels keep to, whether they use cooperative matrices, and
/// whether it is deterministic.
type Key = (WgpuDevice, Api, Profile, Option<u64>, [bool; 2]);

fn key(device: WgpuDevice, api: Api, options: &WgpuOptions) -> Key {
    // Browsers have no cooperative matrices.
    let has_matrices = options.cooperative_matrices && options.profile == Profile::Adapter;
    (device, api, options.profile, options.binding_bytes, [has_matrices, options.deterministic])
}

static OPENED: Mutex<BTreeMap<Key, Arc<Wgpu>>> = Mutex::new(BTreeMap::new());

/// The engines that [`shared`] returns: the first one that it or [`init_async`] opened for a device and an API.
static CHOSEN: Mutex<BTreeMap<(WgpuDevice, Api), Arc<Wgpu>>> = Mutex::new(BTreeMap::new());

/// Engines over devices of the program.
static EXISTING: Mutex<Vec<Arc<Wgpu>>> = Mutex::new(Vec::new());

/// The process-wide shared engine of a device, opened by the first call and cached. If [`init_async`] opened the device,
/// it is that engine, with its settings. Otherwise, devices and APIs that select the same adapter share one engine.
///
/// # Errors
/// When there is no such adapter, with the list of adapters; the next call tries again. In a browser, when the device was
/// not opened by [`init_async`].
pub fn shared(device: WgpuDevice, api: Api) -> Result<Arc<Wgpu>> {
    let known = chosen().get(&(device, api)).cloned();
    match known {
        Some(engine) => Ok(engine),
        None => Ok(choose(device, api, shared_with(device, api, &WgpuOptions::default())?)),
    }
}

/// The engine of a device with these settings: each combination of profile, bytes of a binding, cooperative matrices and
/// determinism has its own. An engine that is open keeps the memory limits that it was opened with. A device of [`from_existing`]
/// keeps all its settings.
///
/// # Errors
/// As [`shared`].
pub fn shared_with(device: WgpuDevice, api: Api, options: &WgpuOptions) -> Result<Arc<Wgpu>> {
    // One thread opens a device while others wait for it.
    static OPENING: Mutex<()> = Mutex::new(());
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(engine) = found_open(device, api, options)? {
        return Ok(engine);
    }
    if cfg!(target_arch = "wasm32") {
        let problem =
            format!("the device `{device}` is not open, and a browser opens devices asynchronously");
        return Err(Error::device(&api.to_string(), problem).hint("await `init_async` first"));
    }
    kiln_ir::block_on(open_shared(device, api, options))
}

/// Opens a device with these settings, and makes it the one that [`shared`] returns, unless that has returned one before.
/// Backends use it too: await it before the first tensor. In a browser, no other function opens a device.
///
/// # Errors
/// When there is no such adapter, with the list of adapters.
pub async fn init_async(device: WgpuDevice, api: Api, options: &WgpuOptions) -> Result<Arc<Wgpu>> {
    let engine = open_shared(device, api, options).await?;
    choose(device, api, engine.clone());
    Ok(engine)
}

/// The engine of a device with these settings, opened by the first call.
async fn open_shared(device: WgpuDevice, api: Api, options: &WgpuOptions) -> Result<Arc<Wgpu>> {
    if let Some(engine) = found_open(device, api, options)? {
        return Ok(engine);
    }
    let found = pick(find(api).await?, api, device)?;
    // The adapter may be open under another name.
    let (adapter_device, adapter_api) = (found.info.device, found.info.api);
    let engine = match found_open(adapter_device, adapter_api, options)? {
        Some(engine) => engine,
        None => Arc::new(open(&found, options).await?),
    };
    let mut opened = opened();
    let engine = opened.entry(key(adapter_device, adapter_api, options)).or_insert(engine).clone();
    opened.insert(key(device, api, options), engine.clone());
    Ok(engine)
}

/// Makes a device of the program, such as that of a renderer, a device of Kiln. Both then submit to one queue, in the order
/// of their submissions. The device keeps its error handlers: in a browser, errors of Kiln's work reach only these. The
/// environment variables for devices do not apply to it, except for `KILN_DETERMINISTIC`.
///
/// ```no_run
/// # fn example(device: kiln_wgpu::wgpu::Device, queue: kiln_wgpu::wgpu::Queue) -> kiln_ir::Result<()> {
/// use kiln_wgpu::{Api, from_existing, shared};
///
/// let device = from_existing(device, queue)?;
/// let engine = shared(device, Api::Auto)?;
/// # drop(engine);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When the device is out of memory.
pub fn from_existing(device: wgpu::Device, queue: wgpu::Queue) -> Result<WgpuDevice> {
    let mut existing = existing();
    let number = WgpuDevice::Existing(existing.len());
    let driver = WgpuDriver::from_existing(&format!("wgpu {number}"), device, queue)?;
    existing.push(Arc::new(Gpu::new(driver, MemoryConfig::new())));
    Ok(number)
}

/// The adapters of an API, those of the fastest types first. For [`Api::Auto`], they are those of the first API that has
/// any. Without an adapter, or in a browser, the list is empty.
///
/// ```
/// use kiln_wgpu::{Api, adapters};
///
/// for adapter in adapters(Api::Auto) {
///     println!("{adapter}");
/// }
/// ```
pub fn adapters(api: Api) -> Vec<AdapterInfo> {
    list(api).unwrap_or_default()
}

/// As [`adapters`], with the reason why there is none.
///
/// # Errors
/// When there is no adapter.
pub fn list(api: Api) -> Result<Vec<AdapterInfo>> {
    if cfg!(target_arch = "wasm32") {
        let problem = "a browser lists adapters asynchronously";
        return Err(Error::device(&api.to_string(), problem).hint("await `list_async`"));
    }
    kiln_ir::block_on(list_async(api))
}

/// The adapters of an API: the form of [`list`] for browsers.
///
/// # Errors
/// When there is no adapter.
pub async fn list_async(api: Api) -> Result<Vec<AdapterInfo>> {
    Ok(find(api).await?.into_iter().map(|found| found.info).collect())
}

/// Opens an adapter.
async fn open(found: &Found, options: &WgpuOptions) -> Result<Wgpu> {
    let name = format!("{} {}", found.info.api, found.info.device);
    let driver = WgpuDriver::open(&name, &found.adapter, options).await?;
    Ok(Gpu::new(driver, options.memory))
}

/// The engine of a device that is open.
///
/// # Errors
/// When the device is one of the program's that does not exist.
fn found_open(device: WgpuDevice, api: Api, options: &WgpuOptions) -> Result<Option<Arc<Wgpu>>> {
    if let WgpuDevice::Existing(number) = device {
        let known = existing();
        return known.get(number).cloned().map(Some).ok_or_else(|| {
            let problem = format!("no device `{device}`: {} were registered", known.len());
            Error::device("wgpu", problem).hint("`from_existing` registers a device and returns its number")
        });
    }
    Ok(opened().get(&key(device, api, options)).cloned())
}

/// Makes an engine the one that [`shared`] returns, unless there is one, and returns that.
fn choose(device: WgpuDevice, api: Api, engine: Arc<Wgpu>) -> Arc<Wgpu> {
    chosen().entry((device, api)).or_insert(engine).clone()
}

fn chosen() -> MutexGuard<'static, BTreeMap<(WgpuDevice, Api), Arc<Wgpu>>> {
    CHOSEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn opened() -> MutexGuard<'static, BTreeMap<Key, Arc<Wgpu>>> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn existing() -> MutexGuard<'static, Vec<Arc<Wgpu>>> {
    EXISTING.lock().unwrap_or_else(PoisonError::into_inner)
}
