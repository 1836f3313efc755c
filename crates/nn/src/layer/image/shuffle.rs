//! Moving elements between channels and space.

use crate::module::forward::forward_modules;
use crate::module::plain::plain_module;
use kiln_tensor::{Backend, Tensor, module};

macro_rules! shuffles {
    ($(
        $(#[$doc:meta])*
        $name:ident $config:ident $function:ident $(#[$field_doc:meta])* $field:ident
        $(#[$forward_doc:meta])*;
    )*) => {
        $(
            plain_module! {
                $(#[$doc])*
                $name $config {
                    $(#[$field_doc])*
                    $field: usize,
                }
                init
                ///
                /// # Panics
                /// When the number is 0.
                #[track_caller]
                |config| {
                    let message = concat!("[", stringify!($function), "] `", stringify!($field), "` is 0");
                    assert!(config.$field > 0, "{message}");
                }
            }

            impl $name {
                $(#[$forward_doc])*
                #[track_caller]
                pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
                    module::$function(x, self.$field)
                }
            }
        )*

        forward_modules! { $($name;)* }
    };
}

shuffles! {
    /// Pixel shuffle (sub-pixel convolution): rearranges channels into height and width
    /// ([Shi et al. 2016](https://arxiv.org/abs/1609.05158)).
    PixelShuffle PixelShuffleConfig pixel_shuffle
    /// The factor by which height and width grow.
    upscale_factor
    /// Rearranges `[.., channels factor², height, width]` to `[.., channels, height factor, width factor]`.
    ///
    /// # Panics
    /// When the number of channels is not a multiple of `upscale_factor²`.
    ;

    /// Pixel unshuffle: rearranges height and width into channels, the reverse of [`PixelShuffle`].
    PixelUnshuffle PixelUnshuffleConfig pixel_unshuffle
    /// The factor by which height and width shrink.
    downscale_factor
    /// Rearranges `[.., channels, height factor, width factor]` to `[.., channels factor², height, width]`.
    ///
    /// # Panics
    /// When height or width is not a multiple of `downscale_factor`.
    ;

    /// Channel shuffle: mixes the channels of groups, so that group convolutions exchange information: channel `i` of
    /// group `g` moves to index `i groups + g` ([Zhang et al. 2017](https://arxiv.org/abs/1707.01083)).
    ChannelShuffle ChannelShuffleConfig channel_shuffle
    /// The number of groups.
    groups
    /// Shuffles the channels of `[batch, channels, ..]`; the output has the same shape.
    ///
    /// # Panics
    /// When the number of channels is not a multiple of `groups`.
    ;
}
