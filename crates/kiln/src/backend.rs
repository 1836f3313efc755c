//! Backends and their devices, each device in the module of its backend.

pub use kiln_backends::{
    Autocast, Cpu, CpuDevice, Device, Dyn, Flex, FlexDevice, Fusion, LowPrecision, NdArray, NdArrayDevice,
    with_autocast, with_fusion,
};
#[cfg(feature = "candle")]
pub use kiln_backends::{Candle, CandleDevice};
#[cfg(feature = "cuda")]
pub use kiln_backends::{Cuda, CudaDevice};
pub use kiln_tensor::{Autodiff, AutodiffBackend, Backend, Forward, ForwardBackend, Vmap, VmapBackend};

/// Automatic differentiation as a backend.
pub mod autodiff {
    pub use kiln_tensor::Autodiff;

    /// Activation checkpointing: which intermediates the tape keeps for the backward pass.
    pub mod checkpoint {
        /// The strategies, as type parameters of [`Autodiff`](kiln_tensor::Autodiff).
        pub mod strategy {
            pub use kiln_tensor::{BalancedCheckpointing, CheckpointingStrategy, NoCheckpointing};
        }
    }
}

/// Tensors of candle-core.
#[cfg(feature = "candle")]
pub mod candle {
    pub use kiln_backends::{Candle, CandleDevice};
}

/// The processor, with fusion.
pub mod cpu {
    pub use kiln_backends::{Cpu, CpuDevice};
}

/// NVIDIA GPUs.
#[cfg(feature = "cuda")]
pub mod cuda {
    pub use kiln_backends::{Cuda, CudaDevice};
}

/// The processor, op by op.
pub mod flex {
    pub use kiln_backends::{Flex, FlexDevice};
}

/// The processor, op by op, under Burn's older name. Conversions from and to arrays of the crate `ndarray` are
/// in `kiln::ndarray`.
pub mod ndarray {
    pub use kiln_backends::{NdArray, NdArrayDevice};
}
