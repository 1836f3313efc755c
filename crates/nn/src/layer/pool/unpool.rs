//! Max unpooling.

use crate::ForwardModule;
use crate::module::plain::plain_module;
use kiln_tensor::{Backend, Int, Tensor, module};

macro_rules! unpools {
    ($($name:ident $config:ident $function:ident $pool:ident $axes:literal $rank:literal $space:literal;)*) => {$(
        plain_module! {
            #[doc = concat!("Max unpooling over ", $space, ": writes each element to the position of the maximum that")]
            #[doc = concat!("[`", stringify!($pool), "`](crate::", stringify!($pool), ")")]
            /// found, and zeros elsewhere. Of duplicate positions, the last element is stored.
            $name
            #[doc = concat!("They are those of the [`", stringify!($pool), "`](crate::", stringify!($pool), ") that it")]
            /// reverses.
            $config {
                /// Window size.
                kernel_size: [usize; $axes],
            }
            stride $axes {
                /// Padding at both ends of each dimension. Default: 0.
                padding: [usize; $axes] = [0; $axes],
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
