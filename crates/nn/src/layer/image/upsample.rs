//! Resizing of one to three spatial dimensions.

use super::InterpolateMode;
use super::interpolate::check;
use crate::module::forward::forward_modules;
use crate::module::plain::plain_module;
use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::module::{self, InterpolateOptions};
use kiln_tensor::{Backend, Tensor};

plain_module! {
    /// Resizes one to three spatial dimensions by interpolation, as `torch.nn.Upsample`. The layers for a fixed number
    /// of dimensions, such as [`Interpolate2d`](crate::Interpolate2d), accept a factor for each.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::Upsample;
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Flex, 3>::from_data([[[1.0f32, 2.0]]], &Default::default());
    /// assert_eq!(Upsample::nearest(2.0).forward(x).into_data().to_vec::<f32>(), [1.0, 1.0, 2.0, 2.0]);
    /// ```
    Upsample
    /// Either `output_size` or `scale_factor` is set.
    UpsampleConfig {
        /// Output size: a length for each spatial dimension. Default: none.
        output_size: Option<Vec<usize>> = None,
        /// Output size divided by the input size, the same for each spatial dimension. Default: none.
        scale_factor: Option<f64> = None,
        /// The interpolation mode. Default: nearest.
        mode: InterpolateMode = InterpolateMode::Nearest,
        /// Whether first and last samples of input and output coincide, otherwise their outer edges do; `Linear` and
        /// `Cubic` only. Default: false.
        align_corners: bool = false,
    }
    init
    ///
    /// # Panics
    /// When both or none of `output_size` and `scale_factor` are set, or `align_corners` with a mode other than
    /// `Linear` and `Cubic`.
    #[track_caller]
    |config| {
        let (has_size, has_factor) = (config.output_size.is_some(), config.scale_factor.is_some());
        check("upsample", has_size, has_factor, config.mode, config.align_corners);
    }
}

impl Upsample {
    /// Returns a layer that repeats the nearest samples.
    #[doc(alias = "UpsamplingNearest2d")]
    pub fn nearest(factor: f64) -> Upsample {
        UpsampleConfig::new().with_scale_factor(factor).init()
    }

    /// Returns a layer that interpolates linearly, with corners that coincide (PyTorch's `UpsamplingBilinear2d`).
    #[doc(alias = "UpsamplingBilinear2d")]
    pub fn bilinear(factor: f64) -> Upsample {
        let config = UpsampleConfig::new().with_scale_factor(factor).with_mode(InterpolateMode::Linear);
        config.with_align_corners(true).init()
    }

    /// Resizes the spatial dimensions of `[batch, channels, space..]`. Lengths that follow from a factor are rounded
    /// down.
    ///
    /// # Panics
    /// When a length is 0, the factor is not positive, or `output_size` has another number of dimensions.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let options = InterpolateOptions {
            mode: self.mode.into(),
            align_corners: self.align_corners,
            antialias: false,
        };
        match (&self.output_size, self.scale_factor) {
            (Some(size), _) => module::interpolate(x, size.as_slice(), options),
            (None, Some(factor)) => {
                module::interpolate(x, vec![factor; D.saturating_sub(2)].as_slice(), options)
            }
            (None, None) => x,
        }
    }
}

forward_modules! {
    Upsample;
}
