//! Layers and their configurations.

pub(crate) mod activation;
mod bilinear;
mod block_embedding;
mod block_linear;
mod conv;
mod conv_transpose;
mod deform_conv;
mod distance;
mod dropout;
mod embedding;
mod embedding_bag;
mod flatten;
mod identity;
mod image;
mod lazy;
mod linear;
pub(crate) mod norm;
mod pad;
mod padding;
mod patches;
mod pool;
mod projection;
mod token_embedding;

pub use activation::*;
pub use bilinear::{Bilinear, BilinearConfig};
pub use block_embedding::BlockEmbedding;
pub use block_linear::BlockLinear;
pub use conv::{Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, Conv3d, Conv3dConfig};
pub use conv_transpose::{
    ConvTranspose1d, ConvTranspose1dConfig, ConvTranspose2d, ConvTranspose2dConfig, ConvTranspose3d,
    ConvTranspose3dConfig,
};
pub use deform_conv::{DeformConv2d, DeformConv2dConfig};
pub use distance::{CosineSimilarity, CosineSimilarityConfig, PairwiseDistance, PairwiseDistanceConfig};
pub use dropout::*;
pub use embedding::{Embedding, EmbeddingConfig};
pub use embedding_bag::{BagMode, EmbeddingBag, EmbeddingBagConfig};
pub use flatten::{Flatten, Unflatten};
pub use identity::Identity;
pub use image::*;
pub use lazy::*;
pub use linear::{Linear, LinearConfig};
pub use norm::*;
pub use pad::*;
pub use padding::{PaddingConfig1d, PaddingConfig2d, PaddingConfig3d};
pub use patches::{Fold, Fold4d, Fold4dConfig, Unfold, Unfold4d, Unfold4dConfig};
pub use pool::*;
pub use projection::Projection;
pub use token_embedding::TokenEmbedding;
