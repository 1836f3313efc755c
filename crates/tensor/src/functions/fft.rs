//! Discrete Fourier transforms.
//!
//! Complex tensors are pairs of real ones, [`Complex`]; the semantics are those of
//! [`torch.fft`](https://docs.pytorch.org/docs/stable/fft.html). A transform may have any number of points; axes are
//! cropped or zero-padded at the end to that number. All transforms are linear and have gradients.
//!
//! | of | to | forward | inverse |
//! |---|---|---|---|
//! | complex | complex | [`fft`], [`fft2`], [`fftn`] | [`ifft`], [`ifft2`], [`ifftn`] |
//! | real | half of a Hermitian spectrum | [`rfft`], [`rfft2`], [`rfftn`] | [`irfft`], [`irfft2`], [`irfftn`] |
//! | half of a Hermitian signal | real spectrum | [`hfft`] | [`ihfft`] |
//! | real | real | [`dct`] | |
//!
//! The complex transform is called `cfft` in Burn.

pub use crate::any::{Dct, FftNorm};

use crate::functions::table::{functions, typed};
use crate::tensor::ok;
use crate::{AnyTensor, Axis, AxisList, Backend, Complex, Kind, Tensor};

functions! {
    typed;

    /// Computes the discrete Fourier transform along an axis, `y[k] = Σ x[i] e^(-2πi k i / n)`. `points` is the length `n`
    /// of the transform; `None` means the length of the axis.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Complex, Tensor, fft::{self, FftNorm}};
    ///
    /// let x = Tensor::<Flex, 1>::from_floats([1.0f32, 0.0, 0.0, 0.0], &Default::default());
    /// let y = fft::fft(Complex::from_real(x), None, -1, FftNorm::Backward);
    /// assert_eq!(y.re().into_data().to_vec::<f32>(), [1.0; 4]);
    /// ```
    ///
    /// # Panics
    /// When the number of points is 0.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.fft.fft.html>
    pub fn fft[B: Backend, const D: usize](
        x: Complex<B, D>,
        points: impl Into<Option<usize>>,
        axis: impl Into<Axis>,
        norm: FftNorm,
    ) -> Complex<B, D>;

    /// Computes the inverse of [`fft`], `y[i] = Σ x[k] e^(2πi k i / n) / n`.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.fft.ifft.html>
    ///
    /// # Panics
    /// When the number of points is 0.
    pub fn ifft[B: Backend, const D: usize](
        x: Complex<B, D>,
        points: impl Into<Option<usize>>,
        axis: impl Into<Axis>,
        norm: FftNorm,
    ) -> Complex<B, D>;

    /// Computes the first `n / 2 + 1` elements of the Fourier transform of a real tensor. The others are their conjugates,
    /// in reverse order.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, fft::{self, FftNorm}};
    ///
    /// let x = Tensor::<Flex, 1>::from_floats([1.0f32, 2.0, 3.0, 4.0], &Default::default());
    /// let y = fft::rfft(x, None, -1, FftNorm::Backward);
    /// assert_eq!(y.re().into_data().to_vec::<f32>(), [10.0, -2.0, -2.0]);
    /// assert_eq!(y.im().into_data().to_vec::<f32>(), [0.0, 2.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// When the number of points is 0.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.fft.rfft.html>
    pub fn rfft[B: Backend, const D: usize](
        x: Tensor<B, D>,
        points: impl Into<Option<usize>>,
        axis: impl Into<Axis>,
        norm: FftNorm,
    ) -> Complex<B, D>;

    /// Computes the inverse of [`rfft`]. `points` is the length of the result, by default `2 (m - 1)`: pass it if it is
    /// odd. The imaginary parts of the first element and, for an even length, of the middle element are ignored.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, fft::{self, FftNorm}};
    ///
    /// let x = Tensor::<Flex, 1>::from_floats([1.0f32, 2.0, 3.0], &Default::default());
    /// let y = fft::rfft(x.clone(), None, -1, FftNorm::Backward);
    /// assert!(fft::irfft(y, 3, -1, FftNorm::Backward).all_close(x, None, Some(1e-6)));
    /// ```
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.fft.irfft.html>
    ///
    /// # Panics
    /// When the number of points is 0.
    pub fn irfft[B: Backend, const D: usize](
        x: Complex<B, D>,
        points: impl Into<Option<usize>>,
        axis: impl Into<Axis>,
        norm: FftNorm,
    ) -> Tensor<B, D>;

    /// Computes the real spectrum of a Hermitian-symmetric signal, of which `x` is the first half. It is [`irfft`] with the
    /// sign of the exponent and the norm of the other direction.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.fft.hfft.html>
    ///
    /// # Panics
    /// When the number of points is 0.
    pub fn hfft[B: Backend, const D: usize](
        x: Complex<B, D>,
        points: impl Into<Option<usize>>,
        axis: impl Into<Axis>,
        norm: FftNorm,
    ) -> Tensor<B, D>;

    /// Computes the inverse of [`hfft`].
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.fft.ihfft.html>
    ///
    /// # Panics
    /// When the number of points is 0.
    pub fn ihfft[B: Backend, const D: usize](
        x: Tensor<B, D>,
        points: impl Into<Option<usize>>,
        axis: impl Into<Axis>,
        norm: FftNorm,
    ) -> Complex<B, D>;
}

/// Defines transforms along the last two axes by those along any axes.
macro_rules! transforms {
    ($($(#[$doc:meta])* $name:ident $any:ident $from:ident $to:ident;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<B: Backend, const D: usize>(
            x: $from<B, D>,
            sizes: Option<[usize; 2]>,
            norm: FftNorm,
        ) -> $to<B, D> {
            $any(x, sizes.as_ref().map(<[usize; 2]>::as_slice), [-2, -1], norm)
        }
    )*};
}

transforms! {
    /// Computes the Fourier transform along the last two axes. See [`fftn`].
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.fft.fft2.html>
    ///
    /// # Panics
    /// With fewer than two axes, or when a number of points is 0.
    fft2 fftn Complex Complex;

    /// Computes the inverse of [`fft2`].
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.fft.ifft2.html>
    ///
    /// # Panics
    /// With fewer than two axes, or when a number of points is 0.
    ifft2 ifftn Complex Complex;

    /// Computes the Fourier transform of a real tensor along the last two axes; the last axis has `n / 2 + 1` elements. See
    /// [`rfftn`].
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.fft.rfft2.html>
    ///
    /// # Panics
    /// With fewer than two axes, or when a number of points is 0.
    rfft2 rfftn Tensor Complex;

    /// Computes the inverse of [`rfft2`].
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.fft.irfft2.html>
    ///
    /// # Panics
    /// With fewer than two axes, or when a number of points is 0.
    irfft2 irfftn Complex Tensor;
}

functions! {
    typed;

    /// Computes the Fourier transform along several axes. `sizes` has the number of points of each axis; `None` keeps the
    /// lengths.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Complex, Tensor, fft::{self, FftNorm}};
    ///
    /// let x = Tensor::<Flex, 2>::ones([2, 2], &Default::default());
    /// let y = fft::fftn(Complex::from_real(x), None, [0, 1], FftNorm::Ortho);
    /// assert_eq!(y.re().into_data().to_vec::<f32>(), [2.0, 0.0, 0.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// When the number of sizes is not the number of axes.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.fft.fftn.html>
    pub fn fftn[B: Backend, const D: usize](
        x: Complex<B, D>,
        sizes: Option<&[usize]>,
        axes: impl Into<AxisList>,
        norm: FftNorm,
    ) -> Complex<B, D>;

    /// Computes the inverse of [`fftn`].
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.fft.ifftn.html>
    ///
    /// # Panics
    /// When the number of sizes is not the number of axes.
    pub fn ifftn[B: Backend, const D: usize](
        x: Complex<B, D>,
        sizes: Option<&[usize]>,
        axes: impl Into<AxisList>,
        norm: FftNorm,
    ) -> Complex<B, D>;

    /// Computes the Fourier transform of a real tensor along several axes; the last of them has `n / 2 + 1` elements, as in
    /// [`rfft`].
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.fft.rfftn.html>
    ///
    /// # Panics
    /// Without axes, or when the number of sizes is not the number of axes.
    pub fn rfftn[B: Backend, const D: usize](
        x: Tensor<B, D>,
        sizes: Option<&[usize]>,
        axes: impl Into<AxisList>,
        norm: FftNorm,
    ) -> Complex<B, D>;

    /// Computes the inverse of [`rfftn`]; `sizes` are those of the result.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.fft.irfftn.html>
    ///
    /// # Panics
    /// Without axes, or when the number of sizes is not the number of axes.
    pub fn irfftn[B: Backend, const D: usize](
        x: Complex<B, D>,
        sizes: Option<&[usize]>,
        axes: impl Into<AxisList>,
        norm: FftNorm,
    ) -> Tensor<B, D>;
}

/// Returns the frequency of each element of [`fft`], in cycles per unit of the sample spacing:
/// `[0, 1, .., -2, -1] / (n spacing)`.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::fft;
///
/// let frequencies = fft::fftfreq::<Flex>(4, 0.5, &Default::default());
/// assert_eq!(frequencies.into_data().to_vec::<f32>(), [0.0, 0.5, -1.0, -0.5]);
/// ```
///
/// <https://docs.pytorch.org/docs/stable/generated/torch.fft.fftfreq.html>
#[track_caller]
pub fn fftfreq<B: Backend>(points: usize, spacing: f64, device: &B::Device) -> Tensor<B, 1> {
    Tensor::from_any(ok(AnyTensor::fftfreq(points, spacing, &B::stack(device))))
}

/// Returns the frequency of each element of [`rfft`]: `[0, 1, .., n / 2] / (n spacing)`.
///
/// <https://docs.pytorch.org/docs/stable/generated/torch.fft.rfftfreq.html>
#[track_caller]
pub fn rfftfreq<B: Backend>(points: usize, spacing: f64, device: &B::Device) -> Tensor<B, 1> {
    Tensor::from_any(ok(AnyTensor::rfftfreq(points, spacing, &B::stack(device))))
}

functions! {
    typed;

    /// Moves the zero frequency from the first to the middle index of axes.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::fft;
    ///
    /// let frequencies = fft::fftfreq::<Flex>(4, 1.0, &Default::default());
    /// assert_eq!(fft::fftshift(frequencies, [0]).into_data().to_vec::<f32>(), [-0.5, -0.25, 0.0, 0.25]);
    /// ```
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.fft.fftshift.html>
    pub fn fftshift[B: Backend, const D: usize, K: Kind](
        x: Tensor<B, D, K>,
        axes: impl Into<AxisList>,
    ) -> Tensor<B, D, K>;

    /// Computes the inverse of [`fftshift`], which differs from it for odd lengths.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.fft.ifftshift.html>
    pub fn ifftshift[B: Backend, const D: usize, K: Kind](
        x: Tensor<B, D, K>,
        axes: impl Into<AxisList>,
    ) -> Tensor<B, D, K>;

    /// Computes a discrete cosine transform along an axis; see [`Dct`] for the formulas. With `orthogonal` the matrix of
    /// the transform is orthogonal, and DCT-III is the inverse of DCT-II.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, fft::{self, Dct}};
    ///
    /// let x = Tensor::<Flex, 1>::from_floats([1.0f32, 2.0, 4.0], &Default::default());
    /// let y = fft::dct(x.clone(), Dct::Two, 0, true);
    /// assert!(fft::dct(y, Dct::Three, 0, true).all_close(x, None, Some(1e-6)));
    /// ```
    ///
    /// <https://docs.scipy.org/doc/scipy/reference/generated/scipy.fft.dct.html>
    ///
    /// # Panics
    /// When the axis is empty.
    pub fn dct[B: Backend, const D: usize](
        x: Tensor<B, D>,
        kind: Dct,
        axis: impl Into<Axis>,
        orthogonal: bool,
    ) -> Tensor<B, D>;
}
