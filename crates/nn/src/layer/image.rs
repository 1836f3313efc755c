//! Resizing images, and shuffling their channels.

mod interpolate;
mod shuffle;
mod upsample;

pub use interpolate::{
    Interpolate1d, Interpolate1dConfig, Interpolate2d, Interpolate2dConfig, Interpolate3d,
    Interpolate3dConfig, InterpolateMode,
};
pub use shuffle::{
    ChannelShuffle, ChannelShuffleConfig, PixelShuffle, PixelShuffleConfig, PixelUnshuffle,
    PixelUnshuffleConfig,
};
pub use upsample::{Upsample, UpsampleConfig};
