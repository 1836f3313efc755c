//! Max pooling.

use crate::layer::padding::{PaddingConfig1d, PaddingConfig2d, PaddingConfig3d};
use crate::module::forward::forward_modules;
use crate::module::plain::plain_module;
use kiln_tensor::module::{self, PoolOptions};
use kiln_tensor::{Backend, Int, Tensor};

macro_rules! max_pools {
    ($($name:ident $config:ident $function:ident $with_indices:ident $unpool:ident $padding:ident $axes:literal $rank:literal
       $space:literal;)*) => {$(
        plain_module! {
            #[doc = concat!("Max pooling over ", $space, ".")]
            $name $config {
                /// Window size.
                kernel_size: [usize; $axes],
            }
            stride $axes {
                /// Padding, smaller than a window with its dilation. It is never the maximum. Default: none.
                padding: $padding = $padding::Valid => [into = $padding],
                /// Dilation: distance between window elements. Default: 1.
                dilation: [usize; $axes] = [1; $axes],
                /// Whether to round the number of windows up, so that the last window may extend past the end. Default:
                /// false.
                ceil_mode: bool = false,
            }
        }

        impl $name {
            /// Pools `[batch, channels, space..]`. The output is `[batch, channels, windows..]`.
            ///
            /// # Panics
            /// When a window is longer than the padded input, a window contains padding only, or a stride or dilation
            /// is 0.
            #[track_caller]
            pub fn forward<B: Backend>(&self, x: Tensor<B, $rank>) -> Tensor<B, $rank> {
                let options = self.options(x.dims());
                module::$function(x, &options)
            }

            /// Like [`forward`](Self::forward), and returns the position of each maximum: a row-major index into the
            /// spatial dimensions, for
            #[doc = concat!("[`", stringify!($unpool), "`](crate::", stringify!($unpool), ").")]
            ///
            /// # Panics
            /// As [`forward`](Self::forward).
            #[doc(alias = "return_indices")]
            #[track_caller]
            pub fn forward_with_indices<B: Backend>(
                &self,
                x: Tensor<B, $rank>,
            ) -> (Tensor<B, $rank>, Tensor<B, $rank, Int>) {
                let options = self.options(x.dims());
                module::$with_indices(x, &options)
            }

            fn options(&self, dims: [usize; $rank]) -> PoolOptions<$axes> {
                let lengths = core::array::from_fn(|axis| dims[axis + 2]);
                PoolOptions {
                    window: self.kernel_size,
                    stride: self.stride,
                    padding: self.padding.sides(lengths, self.kernel_size, self.stride, self.dilation),
                    dilation: self.dilation,
                    ceil_mode: self.ceil_mode,
                }
            }
        }

        forward_modules! { $name: $rank => $rank; }
    )*};
}

max_pools! {
    MaxPool1d MaxPool1dConfig max_pool1d max_pool1d_with_indices MaxUnpool1d PaddingConfig1d 1 3 "one spatial dimension";
    MaxPool2d MaxPool2dConfig max_pool2d max_pool2d_with_indices MaxUnpool2d PaddingConfig2d 2 4 "two spatial dimensions";
    MaxPool3d MaxPool3dConfig max_pool3d max_pool3d_with_indices MaxUnpool3d PaddingConfig3d 3 5 "three spatial dimensions";
}
