//! Backends and their devices, one module per backend.

#[cfg(feature = "dx12")]
pub use kiln_backends::Dx12;
#[cfg(feature = "metal")]
pub use kiln_backends::Metal;
#[cfg(feature = "vulkan")]
pub use kiln_backends::Vulkan;
#[cfg(feature = "webgpu")]
pub use kiln_backends::WebGpu;
pub use kiln_backends::{
    Autocast, Cpu, CpuDevice, Device, DeviceInfo, DeviceKind, Dyn, Flex, FlexDevice, Fusion, LowPrecision,
    NdArray, NdArrayDevice, with_autocast, with_fusion,
};
#[cfg(feature = "candle")]
pub use kiln_backends::{Candle, CandleDevice};
#[cfg(feature = "cuda")]
pub use kiln_backends::{Cuda, CudaDevice};
#[cfg(feature = "libtorch")]
pub use kiln_backends::{LibTorch, LibTorchDevice};
#[cfg(feature = "remote")]
pub use kiln_backends::{RemoteBackend, RemoteDevice};
#[cfg(feature = "router")]
pub use kiln_backends::{Router, router};
#[cfg(any(feature = "vulkan", feature = "metal", feature = "dx12", feature = "webgpu"))]
pub use kiln_backends::{Wgpu, WgpuDevice, wgpu};
pub use kiln_tensor::{Autodiff, AutodiffBackend, Backend, Forward, ForwardBackend, Vmap, VmapBackend};

/// Automatic differentiation as a backend.
pub mod autodiff {
    pub use kiln_tensor::Autodiff;

    /// Activation checkpointing: the intermediates that the tape saves for the backward pass.
    pub mod checkpoint {
        /// Checkpointing strategies, as type parameters of [`Autodiff`](kiln_tensor::Autodiff).
        pub mod strategy {
            pub use kiln_tensor::{BalancedCheckpointing, CheckpointingStrategy, NoCheckpointing};
        }
    }
}

/// The backend over candle-core.
#[cfg(feature = "candle")]
pub mod candle {
    pub use kiln_backends::{Candle, CandleDevice};
}

/// The backend over LibTorch, PyTorch's C++ library.
#[cfg(feature = "libtorch")]
pub mod libtorch {
    pub use kiln_backends::{LibTorch, LibTorchDevice};
}

/// The CPU backend with fusion.
pub mod cpu {
    pub use kiln_backends::{Cpu, CpuDevice};
}

/// The backend of NVIDIA GPUs.
#[cfg(feature = "cuda")]
pub mod cuda {
    pub use kiln_backends::{Cuda, CudaDevice};
}

/// Kernels of custom ops for GPUs.
#[cfg(any(
    feature = "cuda",
    feature = "vulkan",
    feature = "metal",
    feature = "dx12",
    feature = "webgpu"
))]
pub use kiln_backends::gpu;

/// The eager CPU backend.
pub mod flex {
    pub use kiln_backends::{Flex, FlexDevice};
}

/// The backend of a device on another machine.
#[cfg(feature = "remote")]
pub mod remote {
    pub use kiln_backends::{RemoteBackend, RemoteDevice};
}

/// The eager CPU backend under the older name that Burn uses. Conversions from and to arrays of the crate `ndarray` are
/// in `kiln::ndarray`.
pub mod ndarray {
    pub use kiln_backends::{NdArray, NdArrayDevice};
}
