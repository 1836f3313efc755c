//! The devices of the workloads: the GPU that is there, through CUDA or Vulkan, or one that runs nothing.

use kiln::ir::{Engine, MemoryConfig, Unavailable};
use kiln::{Backend, DType, DeviceKey, Stack, with_fusion};
use kiln_cuda::Cuda;
use kiln_gpu::{DeviceInfo, DryDriver, Gpu as Engines};
use kiln_wgpu::{Api, Wgpu, WgpuDevice};
use std::sync::{Arc, OnceLock};

/// The measured backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gpu;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GpuDevice {
    /// The first GPU, through CUDA.
    #[default]
    Present,
    /// The same GPU, always with hand-written kernels.
    Native,
    /// The same GPU with block kernels in their place.
    Blocks,
    /// The first GPU, through Vulkan.
    Vulkan,
    /// None.
    Dry,
}

type Dry = Engines<DryDriver>;

/// The engine of [`GpuDevice::Dry`], which `compile` gives machine code.
pub(crate) fn dry(compile: fn(&str) -> kiln::Result<Vec<u8>>) -> Arc<Dry> {
    static ENGINE: OnceLock<Arc<Dry>> = OnceLock::new();
    let open = || {
        let info = DeviceInfo::absent("cuda dry");
        Arc::new(Engines::new(DryDriver::new(info, compile).with_libraries(), MemoryConfig::default()))
    };
    ENGINE.get_or_init(open).clone()
}

/// The engine of [`GpuDevice::Native`] or [`GpuDevice::Blocks`].
pub(crate) fn kernels(native: bool) -> kiln::Result<Arc<Cuda>> {
    static ENGINES: [OnceLock<kiln::Result<Arc<Cuda>>>; 2] = [const { OnceLock::new() }; 2];
    let open = || kiln_cuda::open(0).map(|engine| Arc::new(engine.with_native_kernels(native)));
    ENGINES[usize::from(native)].get_or_init(open).clone()
}

/// The engine of [`GpuDevice::Vulkan`].
pub(crate) fn vulkan() -> kiln::Result<Arc<Wgpu>> {
    kiln_wgpu::shared(WgpuDevice::Default, Api::Vulkan)
}

impl GpuDevice {
    /// Opens it.
    ///
    /// # Errors
    /// When a library or the device is missing.
    pub(crate) fn engine(self) -> kiln::Result<Arc<dyn Engine>> {
        let engine: Arc<dyn Engine> = match self {
            GpuDevice::Present => kiln_cuda::shared(0)?,
            GpuDevice::Native => kernels(true)?,
            GpuDevice::Blocks => kernels(false)?,
            GpuDevice::Vulkan => vulkan()?,
            GpuDevice::Dry => dry(|_| Ok(Vec::new())),
        };
        Ok(engine)
    }

    fn name(self) -> &'static str {
        match self {
            GpuDevice::Present => "cuda:0",
            GpuDevice::Native => "cuda:0 with hand-written kernels",
            GpuDevice::Blocks => "cuda:0 with block kernels",
            GpuDevice::Vulkan => "vulkan",
            GpuDevice::Dry => "cuda:dry",
        }
    }
}

impl Backend for Gpu {
    type Device = GpuDevice;
    type FloatElem = f32;
    type IntElem = i32;
    type BoolElem = bool;

    fn stack(device: &GpuDevice) -> Stack {
        let open = || {
            let name = device.name();
            let engine = device.engine().unwrap_or_else(|error| Arc::new(Unavailable::new(name, error)));
            with_fusion(&Stack::of_device(engine, *device, name, DType::F32, DType::I32))
        };
        Stack::opened::<Gpu>(DeviceKey::Index(*device as u64), open)
    }
}
