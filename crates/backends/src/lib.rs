//! Backends and devices: the engines and layers that tensors run on.
//!
//! | backend | stack of engines | device |
//! |---|---|---|
//! | [`Cpu`] | fusion over the CPU engine | [`CpuDevice`] |
//! | [`Flex`] | the CPU engine | [`FlexDevice`] |
//! | [`NdArray`] | the CPU engine, under Burn's older name | [`NdArrayDevice`] |
//! | `Cuda` (crate feature `cuda`) | fusion over an NVIDIA GPU's engine | `CudaDevice` |
//! | `Wgpu`, `Vulkan`, `Metal`, `Dx12`, `WebGpu` (crate features of these names, in lower case) | fusion over the engine of any GPU, through wgpu | `WgpuDevice` |
//! | `RemoteBackend` (crate feature `remote`) | the engine of a client, which sends ops to a server | `RemoteDevice` |
//! | [`Fusion<B>`](Fusion), [`Autocast<B>`](Autocast) | a layer over `B` | that of `B` |
//! | [`Autodiff<B>`](kiln_tensor::Autodiff), [`Forward<B>`](kiln_tensor::Forward), [`Vmap<B>`](kiln_tensor::Vmap) | a layer over `B` | that of `B` |
//! | `Router<(A, B)>` (crate feature `router`) | several backends as one | `router::duo::MultiDevice` |
//! | [`Dyn`] | that of the device | [`Device`] |
//!
//! ```
//! use kiln_backends::{Cpu, Device, Dyn};
//! use kiln_tensor::{Autodiff, Tensor};
//!
//! let x = Tensor::<Autodiff<Cpu>, 1>::from_floats([1.0, 2.0], &Default::default());
//! let y = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], &Device::cpu().autodiff());
//! assert_eq!((x * 2).into_data(), (y * 2).into_data());
//! ```
//!
//! Engines and layers from other crates become backends in the same way:
//! [`Stack::opened`](kiln_tensor::Stack::opened) opens a stack once, [`Stack::layered`](kiln_tensor::Stack::layered)
//! adds a layer, and a [`Device`] is created from any stack.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod autocast;
#[cfg(feature = "candle")]
mod candle;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod device;
mod element;
mod fusion;
#[cfg(feature = "remote")]
mod remote;
#[cfg(feature = "router")]
mod routed;
#[cfg(feature = "libtorch")]
mod torch;
#[cfg(any(feature = "vulkan", feature = "metal", feature = "dx12", feature = "webgpu"))]
pub mod wgpu;

pub use autocast::{Autocast, AutocastFloat, with_autocast};
#[cfg(feature = "candle")]
pub use candle::{Candle, CandleDevice};
pub use cpu::{Cpu, CpuDevice, Flex, FlexDevice, NdArray, NdArrayDevice};
#[cfg(feature = "cuda")]
pub use cuda::{Cuda, CudaDevice};
/// Kernels of custom ops for GPUs, in the language of the device.
#[cfg(feature = "gpu")]
pub mod gpu {
    pub use kiln_gpu::{CustomKernel, MakeKernel, register_kernel};
    pub use kiln_kernel::print::Dialect;
}
pub use device::{Device, DeviceInfo, DeviceKind, Dyn};
pub use element::{FloatElement, IntElement};
pub use fusion::{Fusion, set_plan_limit, with_fusion};
pub use kiln_autocast::LowPrecision;
#[cfg(feature = "std")]
pub use kiln_cpu::MappedFile;
#[cfg(feature = "remote")]
pub use kiln_remote::{RemoteBackend, RemoteDevice};
#[cfg(feature = "router")]
pub use routed::Router;
#[cfg(feature = "libtorch")]
pub use torch::{LibTorch, LibTorchDevice};
#[cfg(feature = "dx12")]
pub use wgpu::Dx12;
#[cfg(feature = "metal")]
pub use wgpu::Metal;
#[cfg(feature = "vulkan")]
pub use wgpu::Vulkan;
#[cfg(feature = "webgpu")]
pub use wgpu::WebGpu;
#[cfg(any(feature = "vulkan", feature = "metal", feature = "dx12", feature = "webgpu"))]
pub use wgpu::{Wgpu, WgpuDevice};

/// Several backends as one: the devices of each [`Router`], the policy of transfers, and statistics.
#[cfg(feature = "router")]
pub mod router {
    pub use crate::routed::{Router, duo, oct, quad, quint, sept, sext, solo, trio};
    pub use kiln_router::{MemberStatistics, Statistics, TransferPolicy, Transfers};
}
