//! Pooling.

mod adaptive;
mod average;
mod fractional;
mod max;
mod power;
mod unpool;

pub use adaptive::{
    AdaptiveAvgPool1d, AdaptiveAvgPool1dConfig, AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig,
    AdaptiveAvgPool3d, AdaptiveAvgPool3dConfig, AdaptiveMaxPool1d, AdaptiveMaxPool1dConfig,
    AdaptiveMaxPool2d, AdaptiveMaxPool2dConfig, AdaptiveMaxPool3d, AdaptiveMaxPool3dConfig,
};
pub use average::{AvgPool1d, AvgPool1dConfig, AvgPool2d, AvgPool2dConfig, AvgPool3d, AvgPool3dConfig};
pub use fractional::{
    FractionalMaxPool2d, FractionalMaxPool2dConfig, FractionalMaxPool3d, FractionalMaxPool3dConfig,
};
pub use max::{MaxPool1d, MaxPool1dConfig, MaxPool2d, MaxPool2dConfig, MaxPool3d, MaxPool3dConfig};
pub use power::{LpPool1d, LpPool1dConfig, LpPool2d, LpPool2dConfig, LpPool3d, LpPool3dConfig};
pub use unpool::{
    MaxUnpool1d, MaxUnpool1dConfig, MaxUnpool2d, MaxUnpool2dConfig, MaxUnpool3d, MaxUnpool3dConfig,
};
