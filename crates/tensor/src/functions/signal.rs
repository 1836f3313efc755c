//! Signal processing: windows, short-time Fourier transforms and convolution. Plain Fourier transforms are in
//! [`fft`](crate::fft).

pub use crate::any::{ConvolveMode, StftOptions, Window};

use crate::functions::table::{functions, typed};
use crate::tensor::ok;
use crate::{AnyTensor, Backend, Complex, Tensor};

functions! {
    typed;

    /// Computes the short-time Fourier transform of a signal, `[.., length] -> [.., bins, frames]`; `D2` is `D + 1`.
    ///
    /// Without a window the weights are 1 (rectangular window). See [`StftOptions`] for the defaults.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Complex, Tensor, signal::{self, StftOptions}};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::ones([64], &device);
    /// let window = signal::hann_window::<Flex>(16, true, &device);
    /// let options = StftOptions::new(16);
    /// let spectra: Complex<Flex, 2> = signal::stft(x.clone(), Some(window.clone()), &options);
    /// assert_eq!(spectra.dims(), [9, 17]);
    /// let back: Tensor<Flex, 1> = signal::istft(spectra, Some(window), Some(64), &options);
    /// assert!(back.all_close(x, None, Some(1e-6)));
    /// ```
    ///
    /// # Panics
    /// When the signal is shorter than a frame, or too short for reflection padding at its ends; when the window's length
    /// is not the one in the options.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.stft.html>
    pub fn stft[B: Backend, const D: usize, const D2: usize](
        x: Tensor<B, D>,
        window: Option<Tensor<B, 1>> as anys,
        options: &StftOptions,
    ) -> Complex<B, D2>;

    /// Computes the inverse short-time Fourier transform, `[.., bins, frames] -> [.., length]`; `D2` is `D - 1`.
    /// Overlapping frames are combined by least squares. Waits for the device, to check the window.
    ///
    /// `length` crops the signal or pads it with zeros; `None` keeps the elements that frames cover, without the padding of
    /// `center`.
    ///
    /// # Panics
    /// When the number of bins is not that of the options, or where the windows that cover an element are all 0.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.istft.html>
    pub fn istft[B: Backend, const D: usize, const D2: usize](
        x: Complex<B, D>,
        window: Option<Tensor<B, 1>> as anys,
        length: Option<usize>,
        options: &StftOptions,
    ) -> Tensor<B, D2>;
}

/// Returns the weights of any [`Window`], `[size]`: symmetric, or periodic for use with Fourier transforms. A window of
/// size 1 is 1.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::signal::{self, Window};
///
/// let flat = signal::window::<Flex>(&Window::Tukey { alpha: 0.5 }, 5, false, &Default::default());
/// assert_eq!(flat.into_data().to_vec::<f32>(), [0.0, 1.0, 1.0, 1.0, 0.0]);
/// ```
///
/// # Panics
/// When a parameter is not finite, or a standard deviation is not positive.
///
/// <https://docs.pytorch.org/docs/stable/signal.html>
#[track_caller]
pub fn window<B: Backend>(window: &Window, size: usize, periodic: bool, device: &B::Device) -> Tensor<B, 1> {
    Tensor::from_any(ok(AnyTensor::window(window, size, periodic, &B::stack(device))))
}

/// Returns the weights of a Hann window, `[size]`. See [`Window::Hann`].
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::signal;
///
/// let weights = signal::hann_window::<Flex>(4, true, &Default::default());
/// assert_eq!(weights.into_data().to_vec::<f32>(), [0.0, 0.5, 1.0, 0.5]);
/// ```
///
/// <https://docs.pytorch.org/docs/stable/generated/torch.hann_window.html>
#[track_caller]
pub fn hann_window<B: Backend>(size: usize, periodic: bool, device: &B::Device) -> Tensor<B, 1> {
    window(&Window::Hann, size, periodic, device)
}

/// Returns the weights of a Hamming window, `[size]`. See [`Window::Hamming`].
///
/// <https://docs.pytorch.org/docs/stable/generated/torch.hamming_window.html>
#[track_caller]
pub fn hamming_window<B: Backend>(size: usize, periodic: bool, device: &B::Device) -> Tensor<B, 1> {
    window(&Window::Hamming, size, periodic, device)
}

/// Returns the weights of a Blackman window, `[size]`. See [`Window::Blackman`].
///
/// <https://docs.pytorch.org/docs/stable/generated/torch.blackman_window.html>
#[track_caller]
pub fn blackman_window<B: Backend>(size: usize, periodic: bool, device: &B::Device) -> Tensor<B, 1> {
    window(&Window::Blackman, size, periodic, device)
}

functions! {
    typed;

    /// Computes the convolution of signals along the last axis, `y[k] = Σ x[i] h[k - i]`; the batch axes broadcast.
    ///
    /// The time is proportional to the product of the lengths: [`fftconvolve`] is faster for long signals.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, signal::{self, ConvolveMode}};
    ///
    /// let x = Tensor::<Flex, 1>::from_floats([1.0f32, 2.0, 3.0], &Default::default());
    /// let h = Tensor::<Flex, 1>::from_floats([1.0f32, 10.0], &Default::default());
    /// assert_eq!(signal::convolve(x, h, ConvolveMode::Full).into_data().to_vec::<f32>(), [1.0, 12.0, 23.0, 30.0]);
    /// ```
    ///
    /// # Panics
    /// When a signal is empty.
    ///
    /// <https://docs.scipy.org/doc/scipy/reference/generated/scipy.signal.convolve.html>
    pub fn convolve[B: Backend, const D: usize](
        x: Tensor<B, D>,
        h: Tensor<B, D> as any,
        mode: ConvolveMode,
    ) -> Tensor<B, D>;

    /// Computes [`convolve`] by Fourier transforms: in time `O(n log n)`, with rounding errors proportional to the greatest
    /// elements.
    ///
    /// <https://docs.scipy.org/doc/scipy/reference/generated/scipy.signal.fftconvolve.html>
    pub fn fftconvolve[B: Backend, const D: usize](
        x: Tensor<B, D>,
        h: Tensor<B, D> as any,
        mode: ConvolveMode,
    ) -> Tensor<B, D>;
}
