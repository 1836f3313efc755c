//! Layers and their configurations.

mod activation;
mod conv;
mod conv_transpose;
mod dropout;
mod embedding;
mod flatten;
mod linear;
mod norm;
mod padding;
mod pool;

pub use activation::{
    Elu, EluConfig, Gelu, LeakyRelu, LeakyReluConfig, LogSoftmax, Relu, Sigmoid, Silu, Softmax, Softplus,
    SoftplusConfig, Tanh,
};
pub use conv::{Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, Conv3d, Conv3dConfig};
pub use conv_transpose::{
    ConvTranspose1d, ConvTranspose1dConfig, ConvTranspose2d, ConvTranspose2dConfig, ConvTranspose3d,
    ConvTranspose3dConfig,
};
pub use dropout::{Dropout, DropoutConfig};
pub use embedding::{Embedding, EmbeddingConfig};
pub use flatten::Flatten;
pub use linear::{Linear, LinearConfig};
pub use norm::{
    BatchNorm, BatchNormConfig, GroupNorm, GroupNormConfig, LayerNorm, LayerNormConfig, RmsNorm,
    RmsNormConfig,
};
pub use padding::{PaddingConfig1d, PaddingConfig2d, PaddingConfig3d};
pub use pool::{
    AdaptiveAvgPool1d, AdaptiveAvgPool1dConfig, AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, AvgPool1d,
    AvgPool1dConfig, AvgPool2d, AvgPool2dConfig, MaxPool1d, MaxPool1dConfig, MaxPool2d, MaxPool2dConfig,
};
