//! Resizing.

use crate::module::forward::forward_modules;
use crate::module::plain::plain_module;
use crate::{Config, plain_data};
use kiln_tensor::module::{self, InterpolateOptions};
use kiln_tensor::{Backend, Tensor};

/// The interpolation mode of [`Interpolate2d`] and [`Upsample`](crate::Upsample).
#[derive(Config, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InterpolateMode {
    /// Nearest neighbour: the sample at `floor(i in / out)`, as PyTorch's `nearest`.
    #[default]
    Nearest,
    /// Nearest neighbour: the sample at `floor((i + 1/2) in / out)`, as PyTorch's `nearest-exact`.
    NearestExact,
    /// Linear along each dimension: PyTorch's `linear`, `bilinear` and `trilinear`.
    Linear,
    /// Cubic convolution along each dimension: PyTorch's `bicubic`
    /// ([Keys 1981](https://doi.org/10.1109/TASSP.1981.1163711)).
    Cubic,
    /// The mean of the part that an element covers: PyTorch's `area`.
    Area,
}

plain_data!(InterpolateMode);

impl From<InterpolateMode> for module::InterpolateMode {
    fn from(mode: InterpolateMode) -> module::InterpolateMode {
        match mode {
            InterpolateMode::Nearest => module::InterpolateMode::Nearest,
            InterpolateMode::NearestExact => module::InterpolateMode::NearestExact,
            InterpolateMode::Linear => module::InterpolateMode::Linear,
            InterpolateMode::Cubic => module::InterpolateMode::Cubic,
            InterpolateMode::Area => module::InterpolateMode::Area,
        }
    }
}

/// Panics unless one of size and factors is set, and the options suit the mode.
#[track_caller]
pub(super) fn check(op: &str, has_size: bool, has_factors: bool, mode: InterpolateMode, smooth_only: bool) {
    assert!(has_size != has_factors, "[{op}] expected either `output_size` or `scale_factor`");
    let is_smooth = match mode {
        InterpolateMode::Linear | InterpolateMode::Cubic => true,
        InterpolateMode::Nearest | InterpolateMode::NearestExact | InterpolateMode::Area => false,
    };
    assert!(
        is_smooth || !smooth_only,
        "[{op}] {mode:?} has neither `align_corners` nor `antialias`\n  hint: they belong to `Linear` and `Cubic`"
    );
}

macro_rules! interpolations {
    ($($name:ident $config:ident $op:literal $axes:literal $rank:literal $shape:literal;)*) => {$(
        plain_module! {
            #[doc = concat!("Resizes `", $shape, "` by interpolation.")]
            $name
            /// Either `output_size` or `scale_factor` is set.
            $config {
                /// Output size. Default: none.
                output_size: Option<[usize; $axes]> = None,
                /// Output size divided by the input size. Default: none.
                scale_factor: Option<[f64; $axes]> = None,
                /// The interpolation mode. Default: nearest.
                mode: InterpolateMode = InterpolateMode::Nearest,
                /// Whether first and last samples of input and output coincide, otherwise their outer edges do;
                /// `Linear` and `Cubic` only. Default: false, as in PyTorch; Burn's default is true.
                align_corners: bool = false,
                /// Whether downsampling averages over all samples that an element covers; `Linear` and `Cubic` only.
                /// Default: false.
                antialias: bool = false,
            }
            init
            ///
            /// # Panics
            /// When both or none of `output_size` and `scale_factor` are set, or `align_corners` or `antialias` with
            /// a mode other than `Linear` and `Cubic`.
            #[track_caller]
            |config| {
                let (has_size, has_factors) = (config.output_size.is_some(), config.scale_factor.is_some());
                check($op, has_size, has_factors, config.mode, config.align_corners || config.antialias);
            }
        }

        impl $name {
            #[doc = concat!("Resizes the spatial dimensions of `", $shape, "`. Lengths that follow from factors are")]
            /// rounded down.
            ///
            /// # Panics
            /// When a length is 0, or a factor is not positive.
            #[track_caller]
            pub fn forward<B: Backend>(&self, x: Tensor<B, $rank>) -> Tensor<B, $rank> {
                let options = InterpolateOptions {
                    mode: self.mode.into(),
                    align_corners: self.align_corners,
                    antialias: self.antialias,
                };
                match (self.output_size, self.scale_factor) {
                    (Some(size), _) => module::interpolate(x, size, options),
                    (None, Some(factors)) => module::interpolate(x, factors, options),
                    (None, None) => x,
                }
            }
        }

        forward_modules! { $name: $rank => $rank; }
    )*};
}

interpolations! {
    Interpolate1d Interpolate1dConfig "interpolate1d" 1 3 "[batch, channels, length]";
    Interpolate2d Interpolate2dConfig "interpolate2d" 2 4 "[batch, channels, height, width]";
    Interpolate3d Interpolate3dConfig "interpolate3d" 3 5 "[batch, channels, depth, height, width]";
}
