//! The device of the workloads: the GPU that is there, or one that runs nothing.

use kiln::ir::{Engine, MemoryConfig};
use kiln::{Backend, Cuda, CudaDevice, DType, DeviceKey, Stack, with_fusion};
use kiln_gpu::{DeviceInfo, DryDriver, Gpu as Engines};
use std::sync::{Arc, OnceLock};

/// The measured backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gpu;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GpuDevice {
    /// The first GPU.
    #[default]
    Present,
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

impl Backend for Gpu {
    type Device = GpuDevice;

    fn stack(device: &GpuDevice) -> Stack {
        match device {
            GpuDevice::Present => Cuda::<f32, i32>::stack(&CudaDevice::new(0)),
            GpuDevice::Dry => {
                let open = || {
                    let engine: Arc<dyn Engine> = dry(|_| Ok(Vec::new()));
                    with_fusion(&Stack::of_device(engine, *device, "cuda:dry", DType::F32, DType::I32))
                };
                Stack::opened::<Gpu>(DeviceKey::Index(0), open)
            }
        }
    }
}
