//! Activations that normalise along one dimension.

use crate::Module;
use crate::module::forward::forward_modules;
use crate::module::plain::unit_modules;
use kiln_tensor::{Backend, Tensor, activation};

macro_rules! along_an_axis {
    ($($(#[$doc:meta])* $name:ident $function:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Module, Clone, Copy, Debug)]
            pub struct $name {
                /// The dimension along which the function normalises, counted from 0.
                pub axis: usize,
            }

            impl $name {
                /// Returns the layer over dimension `axis`.
                pub fn new(axis: usize) -> $name {
                    $name { axis }
                }

                /// Applies the function along the dimension. The input has any shape; the output has the same shape.
                ///
                /// # Panics
                /// When `axis` is out of range.
                #[track_caller]
                pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
                    activation::$function(x, self.axis)
                }
            }
        )*

        forward_modules! { $($name;)* }
    };
}

along_an_axis! {
    /// Softmax along one dimension: `exp(x) / Σ exp(x)`.
    Softmax softmax;
    /// Logarithm of [`Softmax`], computed without overflow.
    LogSoftmax log_softmax;
    /// Softmin along one dimension: the [`Softmax`] of `-x`.
    Softmin softmin;
    /// Softmax with an added 1 in the denominator, `exp(x) / (1 + Σ exp(x))`, so that all outputs may be near 0
    /// ([Miller 2023](https://www.evanmiller.org/attention-is-off-by-one.html)).
    QuietSoftmax quiet_softmax;
}

unit_modules! {
    /// [`Softmax`] over the channels at each position of an image: along the third dimension from the end of
    /// `[batch, channels, height, width]` or `[channels, height, width]`.
    Softmax2d;
}

impl Softmax2d {
    /// Applies softmax over the channels of `[.., channels, height, width]`; the output has the same shape.
    ///
    /// # Panics
    /// With fewer than three dimensions.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        assert!(D >= 3, "[softmax2d] expected [.., channels, height, width]: {}", x.as_any().ty());
        activation::softmax(x, -3)
    }
}

forward_modules! {
    Softmax2d;
}
