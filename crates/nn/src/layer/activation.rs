//! Layers of the activation functions in [`kiln_tensor::activation`].

mod axis;
mod choice;
mod elementwise;
mod gated;
mod learned;
mod numbers;

pub use axis::{LogSoftmax, QuietSoftmax, Softmax, Softmax2d, Softmin};
pub use choice::{Activation, ActivationConfig};
pub use elementwise::{
    Gelu, HardSwish, LogSigmoid, Mish, Relu, Relu6, Selu, Sigmoid, Silu, Softsign, Tanh, Tanhshrink,
};
pub use gated::{GeGlu, GeGluConfig, Glu, ReGlu, ReGluConfig, SwiGlu, SwiGluConfig};
pub use learned::{PRelu, PReluConfig, RRelu, RReluConfig};
pub use numbers::{
    Celu, CeluConfig, Elu, EluConfig, HardShrink, HardShrinkConfig, HardSigmoid, HardSigmoidConfig, Hardtanh,
    HardtanhConfig, LeakyRelu, LeakyReluConfig, Shrink, ShrinkConfig, SoftShrink, SoftShrinkConfig, Softplus,
    SoftplusConfig, Threshold, ThresholdConfig, ThresholdedRelu, ThresholdedReluConfig,
};
