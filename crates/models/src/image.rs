//! Preprocessing of images for classifiers.

use kiln_tensor::module::{InterpolateMode, InterpolateOptions, interpolate};
use kiln_tensor::{Backend, Int, Tensor, TensorData};

use crate::error::{ModelError, Result};

/// The interpolation of [`ImagePreprocessor`]. Both average over all pixels that a new pixel covers (antialiasing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// Bilinear.
    Bilinear,
    /// Bicubic, with `a = -0.5`.
    Bicubic,
}

/// Preprocessing of images: resizes the shorter side, takes the central square, and normalises the channels.
///
/// The results are those of torchvision's `Resize`, `CenterCrop`, `ToTensor` and `Normalize` on images of Pillow:
/// values are rounded to integers after the horizontal and after the vertical pass of resizing, as Pillow does. Pillow
/// computes weights in fixed point, so a pixel may differ by 1 of 255.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_models::{EfficientNetLiteConfig, ResNetConfig};
///
/// let pixels = vec![127; 300 * 400 * 3];
/// let preprocessor = EfficientNetLiteConfig::lite0().preprocessor();
/// let image = preprocessor.forward_pixels::<Flex>(&pixels, [300, 400], &Default::default())?;
/// assert_eq!(image.dims(), [1, 3, 224, 224]);
/// assert_eq!(image.max().into_scalar::<f32>(), 0.0);
/// # Ok::<(), kiln_models::ModelError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImagePreprocessor {
    /// New length of the shorter side. The other side keeps the aspect ratio, rounded down.
    pub resize: usize,
    /// Side of the central square, at most `resize`.
    pub crop: usize,
    /// The interpolation.
    pub interpolation: Interpolation,
    /// The mean of each channel, subtracted from values from 0 to 255.
    pub mean: [f64; 3],
    /// The standard deviation of each channel, by which the difference is divided.
    pub std: [f64; 3],
}

impl ImagePreprocessor {
    /// Prepares an image of 8-bit RGB pixels, `[height, width, 3]` in row-major order. The result is
    /// `[1, 3, crop, crop]`.
    ///
    /// # Errors
    /// When the number of values is not `height * width * 3`, or a side is 0.
    pub fn forward_pixels<B: Backend>(
        &self,
        pixels: &[u8],
        [height, width]: [usize; 2],
        device: &B::Device,
    ) -> Result<Tensor<B, 4>> {
        let expected = height.checked_mul(width).and_then(|pixels| pixels.checked_mul(3));
        if expected != Some(pixels.len()) || pixels.is_empty() {
            return Err(ModelError::Field {
                field: "pixels".to_owned(),
                found: format!("{} values", pixels.len()),
                expected: format!("{height} * {width} * 3 values, at least 1"),
            });
        }
        let data = match TensorData::new(pixels.to_vec(), [1, height, width, 3]) {
            Ok(data) => data,
            Err(error) => panic!("{error}"),
        };
        let image = Tensor::<B, 4, Int>::from_data(data, device).float().permute([0, 3, 1, 2]);
        Ok(self.forward(image))
    }

    /// Prepares images `[batch, 3, height, width]` with values from 0 to 255. The result is `[batch, 3, crop, crop]`.
    ///
    /// # Panics
    /// When the number of channels is not 3, a side is 0, or `crop` is greater than `resize`.
    #[track_caller]
    pub fn forward<B: Backend>(&self, images: Tensor<B, 4>) -> Tensor<B, 4> {
        let (crop, resize) = (self.crop, self.resize);
        assert!(crop <= resize, "[ImagePreprocessor] crop {crop} is greater than resize {resize}");
        let [_, channels, height, width] = images.dims();
        assert!(channels == 3, "[ImagePreprocessor] images have {channels} channels, not 3");
        let shorter = height.min(width).max(1);
        let scaled = |side: usize| if side == shorter { resize } else { side * resize / shorter };
        let [new_height, new_width] = [scaled(height), scaled(width)];
        let images = self.resized(images, [height, new_width]);
        let images = self.resized(images, [new_height, new_width]);
        let images =
            images.narrow(2, margin(new_height, crop), crop).narrow(3, margin(new_width, crop), crop);
        self.normalized(images)
    }

    /// Resizes, and rounds to integers from 0 to 255.
    #[track_caller]
    fn resized<B: Backend>(&self, images: Tensor<B, 4>, size: [usize; 2]) -> Tensor<B, 4> {
        let [_, _, height, width] = images.dims();
        if [height, width] == size {
            return images;
        }
        let mode = match self.interpolation {
            Interpolation::Bilinear => InterpolateMode::Linear,
            Interpolation::Bicubic => InterpolateMode::Cubic,
        };
        let options = InterpolateOptions { antialias: true, ..InterpolateOptions::new(mode) };
        (interpolate(images, size, options) + 0.5).floor().clamp(0.0, 255.0)
    }

    fn normalized<B: Backend>(&self, images: Tensor<B, 4>) -> Tensor<B, 4> {
        let (device, dtype) = (images.device(), images.dtype());
        let channels =
            |values: [f64; 3]| Tensor::<B, 1>::from_floats(values, &device).cast(dtype).reshape([1, 3, 1, 1]);
        (images - channels(self.mean)) / channels(self.std)
    }
}

/// The rows before the central `crop` rows. Half a row is rounded to the even number, as in Python.
fn margin(length: usize, crop: usize) -> usize {
    let (half, rest) = ((length - crop) / 2, (length - crop) % 2);
    half + rest * (half % 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_row_is_rounded_to_even() {
        assert_eq!(
            [(224, 224), (227, 224), (229, 224), (256, 224)].map(|(a, b)| margin(a, b)),
            [0, 2, 2, 16]
        );
    }
}
