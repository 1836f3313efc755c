//! Kiln: a tensor library and deep-learning framework.
//!
//! This crate re-exports all parts: [`Tensor`] and its [`Backend`]s, modules with derive macros ([`nn`]), optimizers
//! ([`optim`]), data loaders ([`data`]), a training loop ([`train`]) and files for weights ([`store`]).
//!
//! ```
//! use kiln::{Autodiff, Cpu, Distribution, Tensor};
//!
//! type B = Autodiff<Cpu>;
//! let device = Default::default();
//! let x: Tensor<B, 2> = Tensor::random([32, 32], Distribution::Default, &device);
//! let y: Tensor<B, 2> = Tensor::random([32, 32], Distribution::Default, &device).require_grad();
//! let loss = (&x + &y).matmul(x).exp();
//! let gradients = loss.backward();
//! assert_eq!(y.grad(&gradients).unwrap().dims(), [32, 32]);
//! ```
//!
//! A backend is a zero-sized type that names a stack of engines. [`Cpu`] is the CPU engine with fusion, [`Flex`] the
//! same engine without it. [`Autodiff<B>`](Autodiff) adds gradients to a backend, [`Autocast<B>`](Autocast) mixed
//! precision. [`Dyn`] is chosen at run time by its [`Device`]; [`dynamic`] has the types without a backend parameter.
//!
//! A model is a struct of modules:
//!
//! ```
//! use kiln::nn::{Linear, LinearConfig};
//! use kiln::prelude::*;
//!
//! #[derive(Module, Clone, Debug)]
//! struct Mlp<B: Backend> {
//!     hidden: Linear<B>,
//!     output: Linear<B>,
//! }
//!
//! impl<B: Backend> Mlp<B> {
//!     fn new(device: &B::Device) -> Self {
//!         Mlp { hidden: LinearConfig::new(4, 8).init(device), output: LinearConfig::new(8, 3).init(device) }
//!     }
//!
//!     fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
//!         self.output.forward(activation::relu(self.hidden.forward(x)))
//!     }
//! }
//!
//! let model = Mlp::<Flex>::new(&Default::default());
//! assert_eq!(model.forward(Tensor::zeros([2, 4], &Default::default())).dims(), [2, 3]);
//! assert_eq!(model.num_parameters(), 4 * 8 + 8 + 8 * 3 + 3);
//! ```
//!
//! # Features
//!
//! * `std` and `threads` (default): the operating system and several cores.
//! * `train` (default): data sets, optimizers, the training loop, safetensors and NumPy files.
//! * `cuda`: the backend `Cuda` for NVIDIA GPUs. It builds without CUDA and loads it at run time.
//! * `wgpu`: the backend `Wgpu` for GPUs of all vendors; `vulkan`, `metal`, `dx12` and `webgpu`: that of one API.
//! * `remote`: the backend `RemoteBackend` of a device on another machine; `server`: `server::start` serves one.
//! * `linalg`: matrix decompositions and solvers.
//! * `ndarray`: conversions from and to the `ndarray` crate.
//! * `dlpack`: tensors shared with other frameworks.
//! * `dashboard`: live curves in the terminal while training; `signals`: Ctrl-C stops after the current step;
//!   `tensorboard`: a logger for TensorBoard; `nvml`: use of NVIDIA GPUs in the dashboard.
//! * `download`: missing data sets are downloaded; `hub`: models are downloaded from the Hugging Face hub.
//! * `models`: pre-trained models in `kiln::models`; `text`: tokenizers, chat templates and generation in `kiln::text`.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

pub mod backend;

pub use kiln_backends::*;
#[cfg(feature = "dlpack")]
pub use kiln_dlpack as dlpack;
pub use kiln_ir as ir;
/// The crate whose arrays [`TensorData`] converts from and to.
#[cfg(feature = "ndarray")]
pub use kiln_ir::ndarray;
pub use kiln_nn as nn;
// Named, so that they stand for the modules of equal names in `kiln_tensor`, whose items they have too.
pub use kiln_nn::{activation, config, loss, module};
pub use kiln_tensor::*;

/// Tensors, their backends and devices.
pub mod tensor {
    pub use kiln_backends::*;
    pub use kiln_nn::{activation, loss, module};
    pub use kiln_tensor::*;

    /// The device of a backend; by default that of [`Dyn`], which is [`kiln::Device`](crate::Device).
    ///
    /// ```
    /// use kiln::tensor::{Device, Tensor, backend::Backend};
    ///
    /// fn zeros<B: Backend>(device: &Device<B>) -> Tensor<B, 1> {
    ///     Tensor::zeros([3], device)
    /// }
    /// assert_eq!(zeros::<kiln::Flex>(&Default::default()).dims(), [3]);
    /// ```
    pub type Device<B = Dyn> = <B as Backend>::Device;

    /// Conversions of single numbers.
    pub mod cast {
        pub use kiln_tensor::ToElement;
    }

    /// The backend traits.
    pub mod backend {
        pub use kiln_tensor::{AutodiffBackend, Backend, ForwardBackend, VmapBackend};
    }
}

#[cfg(feature = "train")]
pub use kiln_data as data;
#[cfg(feature = "linalg")]
pub use kiln_linalg as linalg;
#[cfg(feature = "models")]
pub use kiln_models as models;
#[cfg(feature = "train")]
pub use kiln_optim as optim;
#[cfg(feature = "train")]
pub use kiln_optim::{grad_clipping, lr_scheduler};
#[cfg(feature = "server")]
pub use kiln_remote::server;
#[cfg(feature = "train")]
pub use kiln_store as store;
#[cfg(feature = "text")]
pub use kiln_text as text;
#[cfg(feature = "train")]
pub use kiln_train as train;

/// Types with a backend chosen at run time: [`Tensor`](dynamic::Tensor) without a backend parameter.
///
/// ```
/// use kiln::dynamic;
///
/// let x = dynamic::Tensor::<2>::from([[1.0, 2.0], [3.0, 4.0]]);
/// assert_eq!(x.to_vec::<f32>(), [1.0, 2.0, 3.0, 4.0]);
/// ```
pub mod dynamic {
    pub use kiln_backends::{Device, Dyn};

    /// A tensor whose device selects the backend at run time.
    pub type Tensor<const D: usize, K = kiln_tensor::Float> = kiln_tensor::Tensor<Dyn, D, K>;
}

/// The items that most programs use: `use kiln::prelude::*;`.
pub mod prelude {
    pub use crate::{backend, nn, tensor};
    pub use kiln_backends::{Autocast, Cpu, Device, Dyn, Flex};
    #[cfg(feature = "cuda")]
    pub use kiln_backends::{Cuda, CudaDevice};
    #[cfg(feature = "remote")]
    pub use kiln_backends::{RemoteBackend, RemoteDevice};
    #[cfg(any(feature = "vulkan", feature = "metal", feature = "dx12", feature = "webgpu"))]
    pub use kiln_backends::{Wgpu, WgpuDevice};
    pub use kiln_nn::{
        AutodiffModule, BackendModule, Config, GradientsParams, Module, Param, activation, loss,
    };
    #[cfg(feature = "train")]
    pub use kiln_optim::Optimizer;
    #[cfg(feature = "std")]
    pub use kiln_tensor::with_device;
    pub use kiln_tensor::{
        Autodiff, AutodiffBackend, Backend, Bool, DType, Distribution, ElementConversion, Float, Int, Shape,
        SliceArg, Tensor, TensorData, ToElement, default_device, einsum, s,
    };
}
