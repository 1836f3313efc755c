//! Max unpooling.

use crate::{Config, ForwardModule, Module};
use kiln_tensor::{Backend, Int, Tensor, module};

macro_rules! unpools {
    ($($name:ident $config:ident $function:ident $pool:ident $axes:literal $rank:literal $space:literal;)*) => {$(
        #[doc = concat!("Settings of a [`", stringify!($name), "`] layer: those of")]
        #[doc = concat!("the [`", stringify!($pool), "`](crate::", stringify!($pool), ") that it reverses.")]
        #[derive(Config, Clone, Debug, PartialEq)]
        pub struct $config {
            /// Window size.
            pub kernel_size: [usize; $axes],
            /// Stride. Default (`None`): the window size.
            pub stride: Option<[usize; $axes]>,
            /// Padding at both ends of each dimension. Default: 0.
            #[config(default = [0; $axes])]
            pub padding: [usize; $axes],
        }

        #[doc = concat!("Max unpooling over ", $space, ": writes each element to the position of the maximum that")]
        #[doc = concat!("[`", stringify!($pool), "`](crate::", stringify!($pool), ")")]
        /// found, and zeros elsewhere. Of duplicate positions, the last element is stored.
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            /// Window size.
            #[module(attribute)]
            pub kernel_size: [usize; $axes],
            /// Stride.
            #[module(attribute)]
            pub stride: [usize; $axes],
            /// Padding at both ends of each dimension.
            #[module(attribute)]
            pub padding: [usize; $axes],
        }

        impl $config {
            /// Sets the stride: `with_stride(Some(strides))` under the name that Burn uses.
            #[must_use]
            pub fn with_strides(self, strides: [usize; $axes]) -> Self {
                self.with_stride(Some(strides))
            }

            /// Returns the layer.
            pub fn init(&self) -> $name {
                $name {
                    kernel_size: self.kernel_size,
                    stride: self.stride.unwrap_or(self.kernel_size),
                    padding: self.padding,
                }
            }
        }

        impl $name {
            /// Unpools `[batch, channels, windows..]` with indices of the same shape. The lengths of the output are
            /// `(windows - 1) stride - 2 padding + kernel_size`.
            ///
            /// # Panics
            /// When input and indices differ in shape.
            #[track_caller]
            pub fn forward<B: Backend>(
                &self,
                x: Tensor<B, $rank>,
                indices: Tensor<B, $rank, Int>,
            ) -> Tensor<B, $rank> {
                let dims = x.dims();
                let size = core::array::from_fn(|axis| {
                    let reach = dims[axis + 2].saturating_sub(1) * self.stride[axis] + self.kernel_size[axis];
                    reach.saturating_sub(2 * self.padding[axis])
                });
                self.forward_with_size(x, indices, size)
            }

            /// Like [`forward`](Self::forward), with the lengths of the output. Inputs of several lengths are pooled to
            /// the same number of windows.
            ///
            /// # Panics
            /// When input and indices differ in shape.
            #[doc(alias = "output_size")]
            #[track_caller]
            pub fn forward_with_size<B: Backend>(
                &self,
                x: Tensor<B, $rank>,
                indices: Tensor<B, $rank, Int>,
                output_size: [usize; $axes],
            ) -> Tensor<B, $rank> {
                module::$function(x, indices, output_size)
            }
        }

        impl<B: Backend> ForwardModule<(Tensor<B, $rank>, Tensor<B, $rank, Int>)> for $name {
            type Output = Tensor<B, $rank>;

            #[track_caller]
            fn forward(&self, (x, indices): (Tensor<B, $rank>, Tensor<B, $rank, Int>)) -> Tensor<B, $rank> {
                $name::forward(self, x, indices)
            }
        }
    )*};
}

unpools! {
    MaxUnpool1d MaxUnpool1dConfig max_unpool1d MaxPool1d 1 3 "one spatial dimension";
    MaxUnpool2d MaxUnpool2dConfig max_unpool2d MaxPool2d 2 4 "two spatial dimensions";
    MaxUnpool3d MaxUnpool3dConfig max_unpool3d MaxPool3d 3 5 "three spatial dimensions";
}
