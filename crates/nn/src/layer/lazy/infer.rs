//! Configurations that read the number of inputs from an input.

use super::InferConfig;
use crate::*;
use kiln_tensor::{Backend, Stack, Tensor};

macro_rules! of_any_rank {
    ($($config:ident $layer:ident $axis:expr, $field:ident;)*) => {$(
        impl<B: Backend, const D: usize> InferConfig<Tensor<B, D>> for $config {
            type Module = $layer<B>;

            #[track_caller]
            fn init_for(&self, x: &Tensor<B, D>) -> $layer<B> {
                let axis: fn(usize) -> Option<usize> = $axis;
                let length = axis(D).and_then(|axis| x.dims().get(axis).copied());
                let Some($field) = length else {
                    panic!("[lazy] the input has too few dimensions: {}", x.as_any().ty());
                };
                $config { $field, ..self.clone() }.init(&x.device())
            }

            fn stack(x: &Tensor<B, D>) -> &Stack {
                x.as_any().stack()
            }
        }
    )*};
}

of_any_rank! {
    LinearConfig Linear |rank| rank.checked_sub(1), d_input;
    BatchNormConfig BatchNorm |_| Some(1), num_features;
    InstanceNormConfig InstanceNorm |_| Some(1), num_channels;
}

macro_rules! convolutions {
    ($($config:ident $layer:ident $rank:literal;)*) => {$(
        impl<B: Backend> InferConfig<Tensor<B, $rank>> for $config {
            type Module = $layer<B>;

            #[track_caller]
            fn init_for(&self, x: &Tensor<B, $rank>) -> $layer<B> {
                let channels = [x.dims()[1], self.channels[1]];
                $config { channels, ..self.clone() }.init(&x.device())
            }

            fn stack(x: &Tensor<B, $rank>) -> &Stack {
                x.as_any().stack()
            }
        }
    )*};
}

convolutions! {
    Conv1dConfig Conv1d 3;
    Conv2dConfig Conv2d 4;
    Conv3dConfig Conv3d 5;
    ConvTranspose1dConfig ConvTranspose1d 3;
    ConvTranspose2dConfig ConvTranspose2d 4;
    ConvTranspose3dConfig ConvTranspose3d 5;
}
