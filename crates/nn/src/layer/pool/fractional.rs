//! Fractional max pooling.

use crate::module::forward::forward_modules;
use crate::module::plain::plain_module;
use kiln_tensor::{Backend, Int, Tensor, module};

macro_rules! fractional_pools {
    ($($name:ident $config:ident $function:ident $with_indices:ident $unpool:ident $axes:literal $rank:literal $space:literal;)*) => {$(
        plain_module! {
            #[doc = concat!("Fractional max pooling over ", $space, ": the maximum of windows at random positions, which")]
            /// reduces sizes by a factor that need not be an integer ([Graham 2014](https://arxiv.org/abs/1412.6071)).
            ///
            /// Positions are random in training and in evaluation, as in PyTorch. They come from the device's random
            /// stream ([`Backend::seed`]).
            $name
            /// Either `output_size` or `output_ratio` is set.
            $config {
                /// Window size.
                kernel_size: [usize; $axes],
                /// Output size: the number of windows along each dimension. Default: none.
                output_size: Option<[usize; $axes]> = None,
                /// Output size divided by the input size, between 0 and 1, along each dimension. Default: none.
                output_ratio: Option<[f64; $axes]> = None,
            }
            init
            ///
            /// # Panics
            /// When both or none of `output_size` and `output_ratio` are set, or a ratio is not between 0 and 1.
            #[track_caller]
            |config| {
                let ratios = config.output_ratio.as_ref();
                check_choice(config.output_size.is_some(), ratios.map(|ratios| ratios.as_slice()));
            }
        }

        impl $name {
            /// Pools `[batch, channels, space..]`. The output is `[batch, channels, windows..]`.
            ///
            /// # Panics
            /// When the windows do not fit into a dimension.
            #[track_caller]
            pub fn forward<B: Backend>(&self, x: Tensor<B, $rank>) -> Tensor<B, $rank> {
                let size = self.size(x.dims());
                module::$function(x, self.kernel_size, size, None)
            }

            /// Like [`forward`](Self::forward), with window positions from `samples`, `[batch, channels, dimensions]`
            /// in `0..1`, in the order of the spatial dimensions. PyTorch's two-dimensional layer has the last
            /// dimension first.
            ///
            /// # Panics
            /// When the windows do not fit into a dimension, or `samples` has another shape.
            #[track_caller]
            pub fn forward_with_samples<B: Backend>(
                &self,
                x: Tensor<B, $rank>,
                samples: Tensor<B, 3>,
            ) -> Tensor<B, $rank> {
                let size = self.size(x.dims());
                module::$function(x, self.kernel_size, size, Some(samples))
            }

            /// Like [`forward`](Self::forward), and returns the position of each maximum: a row-major index into the
            /// spatial dimensions. Of equal maxima it is the first. The windows need not have one distance, so
            #[doc = concat!("[`", stringify!($unpool), "`](crate::", stringify!($unpool), ") receives the lengths of `x`:")]
            #[doc = concat!("[`forward_with_size`](crate::", stringify!($unpool), "::forward_with_size).")]
            ///
            /// # Panics
            /// When the windows do not fit into a dimension.
            #[doc(alias = "return_indices")]
            #[track_caller]
            pub fn forward_with_indices<B: Backend>(
                &self,
                x: Tensor<B, $rank>,
            ) -> (Tensor<B, $rank>, Tensor<B, $rank, Int>) {
                let size = self.size(x.dims());
                module::$with_indices(x, self.kernel_size, size, None)
            }

            /// Like [`forward_with_indices`](Self::forward_with_indices), with window positions from `samples`, as
            /// [`forward_with_samples`](Self::forward_with_samples) has them.
            ///
            /// # Panics
            /// When the windows do not fit into a dimension, or `samples` has another shape.
            #[track_caller]
            pub fn forward_with_samples_and_indices<B: Backend>(
                &self,
                x: Tensor<B, $rank>,
                samples: Tensor<B, 3>,
            ) -> (Tensor<B, $rank>, Tensor<B, $rank, Int>) {
                let size = self.size(x.dims());
                module::$with_indices(x, self.kernel_size, size, Some(samples))
            }

            fn size(&self, dims: [usize; $rank]) -> [usize; $axes] {
                let scaled = |axis: usize, ratio: f64| (dims[axis + 2] as f64 * ratio) as usize;
                let by_ratio = |ratios: [f64; $axes]| core::array::from_fn(|axis| scaled(axis, ratios[axis]));
                let own = core::array::from_fn(|axis| dims[axis + 2]);
                self.output_size.or(self.output_ratio.map(by_ratio)).unwrap_or(own)
            }
        }

        forward_modules! { $name: $rank => $rank; }
    )*};
}

fractional_pools! {
    FractionalMaxPool2d FractionalMaxPool2dConfig fractional_max_pool2d fractional_max_pool2d_with_indices MaxUnpool2d
        2 4 "two spatial dimensions";
    FractionalMaxPool3d FractionalMaxPool3dConfig fractional_max_pool3d fractional_max_pool3d_with_indices MaxUnpool3d
        3 5 "three spatial dimensions";
}

#[track_caller]
fn check_choice(has_size: bool, ratios: Option<&[f64]>) {
    assert!(
        has_size != ratios.is_some(),
        "[fractional_max_pool] expected either `output_size` or `output_ratio`"
    );
    let ratios = ratios.unwrap_or_default();
    assert!(
        ratios.iter().all(|ratio| 0.0 < *ratio && *ratio < 1.0),
        "[fractional_max_pool] the ratios {ratios:?} are not between 0 and 1"
    );
}
