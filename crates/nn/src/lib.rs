//! Neural networks: the module trait, layers, initialisers and losses.
//!
//! A network is a struct that derives [`Module`](macro@Module). Its fields are layers. Its `forward` method may have
//! any signature:
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_nn::{Linear, LinearConfig, Module, Relu};
//! use kiln_tensor::{Backend, Tensor};
//!
//! #[derive(Debug, Module)]
//! struct Net<B: Backend> {
//!     first: Linear<B>,
//!     activation: Relu,
//!     second: Linear<B>,
//! }
//!
//! impl<B: Backend> Net<B> {
//!     fn new(device: &B::Device) -> Self {
//!         Net {
//!             first: LinearConfig::new(4, 8).init(device),
//!             activation: Relu::new(),
//!             second: LinearConfig::new(8, 2).with_bias(false).init(device),
//!         }
//!     }
//!
//!     fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
//!         self.second.forward(self.activation.forward(self.first.forward(x)))
//!     }
//! }
//!
//! let device = Default::default();
//! let net = Net::<Flex>::new(&device);
//! assert_eq!(net.forward(Tensor::ones([3, 4], &device)).dims(), [3, 2]);
//! assert_eq!(net.num_parameters(), 4 * 8 + 8 + 8 * 2);
//! let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
//! assert_eq!(names, ["first.weight", "first.bias", "second.weight"]);
//! println!("{net}"); // a table of its layers
//! ```
//!
//! * [`Module`] is the object-safe traversal over parameters with dotted names. [`AutodiffModule::valid`] returns the
//!   copy for inference, and [`GradientsParams`] holds the gradients of a module. [`with_parameters`] makes a module a
//!   function of its parameters, for `grad`, `vmap` and the other transforms.
//! * Each layer has a configuration, derived with [`Config`](macro@Config), with PyTorch's defaults:
//!   `Conv2dConfig::new([1, 8], [3, 3]).with_stride([2, 2]).init(&device)`. Parameters have PyTorch's names and
//!   layouts.
//! * The default backend of layers is chosen at run time: `Linear` is `Linear<Dyn>`.
//! * Training mode (dropout, the statistics of batch normalisation) follows the backend unless [`Module::train`] or
//!   [`Module::eval`] sets it: it is on with automatic differentiation, and off on the inner backend, to which
//!   [`AutodiffModule::valid`] moves the module.
//! * A module with one input and one output implements [`ForwardModule`]. Such modules form chains ([`Sequential`], or a
//!   tuple) and lists of different types ([`BoxedModule`]).
//! * [`reparametrize`] computes weights from other parameters: LoRA adapters, weight and spectral normalisation.
//! * [`ModuleSummary::summary`] prints output shapes, parameters and arithmetic operations of each layer.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;
// Lets the derives refer to this crate as `kiln_nn` here too.
extern crate self as kiln_nn;

pub mod attention;
pub mod config;
mod container;
mod initializer;
mod layer;
pub mod loss;
pub mod module;
mod recurrent;
pub mod reparametrize;
pub mod transformer;

/// Caches of autoregressive inference.
pub mod cache {
    pub use crate::attention::{CachePosition, MhaCache, StaticCache, TensorCache};
}

/// Convolution layers and their configurations.
pub mod conv {
    pub use crate::layer::{
        Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, Conv3d, Conv3dConfig, ConvTranspose1d,
        ConvTranspose1dConfig, ConvTranspose2d, ConvTranspose2dConfig, ConvTranspose3d,
        ConvTranspose3dConfig, DeformConv2d, DeformConv2dConfig,
    };
}

/// Pooling layers and their configurations.
pub mod pool {
    pub use crate::layer::{
        AdaptiveAvgPool1d, AdaptiveAvgPool1dConfig, AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig,
        AdaptiveAvgPool3d, AdaptiveAvgPool3dConfig, AdaptiveMaxPool1d, AdaptiveMaxPool1dConfig,
        AdaptiveMaxPool2d, AdaptiveMaxPool2dConfig, AdaptiveMaxPool3d, AdaptiveMaxPool3dConfig, AvgPool1d,
        AvgPool1dConfig, AvgPool2d, AvgPool2dConfig, AvgPool3d, AvgPool3dConfig, FractionalMaxPool2d,
        FractionalMaxPool2dConfig, FractionalMaxPool3d, FractionalMaxPool3dConfig, LpPool1d, LpPool1dConfig,
        LpPool2d, LpPool2dConfig, LpPool3d, LpPool3dConfig, MaxPool1d, MaxPool1dConfig, MaxPool2d,
        MaxPool2dConfig, MaxPool3d, MaxPool3dConfig, MaxUnpool1d, MaxUnpool1dConfig, MaxUnpool2d,
        MaxUnpool2dConfig, MaxUnpool3d, MaxUnpool3dConfig,
    };
}

/// Activation layers, their configurations, and the [functions](kiln_tensor::activation) that they apply.
pub mod activation {
    pub use crate::layer::activation::*;
    pub use kiln_tensor::activation::*;
}

/// Normalisation layers and their configurations.
pub mod norm {
    pub use crate::layer::norm::*;
}

/// Resizing layers and their configurations.
pub mod interpolate {
    pub use crate::layer::{
        Interpolate1d, Interpolate1dConfig, Interpolate2d, Interpolate2dConfig, Interpolate3d,
        Interpolate3dConfig, InterpolateMode, Upsample, UpsampleConfig,
    };
}

/// Recurrent networks, and their sequences of different lengths.
pub mod rnn {
    pub use crate::recurrent::*;
}

/// Gated recurrent units.
pub mod gru {
    pub use crate::recurrent::{BiGru, BiGruConfig, Gru, GruCell, GruCellConfig, GruConfig, GruOptions};
}

pub use attention::{
    LearnedPositionalEncoding, LearnedPositionalEncodingConfig, PositionalEncoding, PositionalEncodingConfig,
    RotaryEncoding, RotaryEncodingConfig,
};
pub use config::{Config, ConfigError, OutOfRange};
pub use container::{BoxedModule, ModuleDict, ModuleList, Sequential};
pub use initializer::Initializer;
pub use layer::*;
#[doc(hidden)]
pub use module::edit_distance;
pub use module::{
    AutodiffModule, BackendModule, ForwardModule, GradientsParams, LayerTable, Mode, Module, ModuleOn,
    ModuleSummary, NamedTensors, Param, ParamId, Parameter, ParameterRole, Path, Pattern, RunningState,
    Summary, Visitor, VisitorMut, buffers, set_mode, trainable_parameters, with_parameters,
};
pub use recurrent::{
    BiGru, BiGruConfig, BiLstm, BiLstmConfig, BiRnn, BiRnnConfig, Gru, GruCell, GruCellConfig, GruConfig,
    GruOptions, Lstm, LstmCell, LstmCellConfig, LstmConfig, LstmOptions, LstmState, Recurrent, RecurrentCell,
    RecurrentLayers, RecurrentWeights, Rnn, RnnCell, RnnCellConfig, RnnConfig, RnnOptions,
};
