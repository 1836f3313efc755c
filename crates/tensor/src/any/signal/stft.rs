//! Short-time Fourier transforms.

use crate::any::AnyComplex;
use crate::any::fft::{FftNorm, fitted};
use crate::{AnyTensor, Error, PadMode, Result, Shape, TensorData, TensorType};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use kiln_ir::{Axes, Binary, Op, PadAxis, SliceAxis, UpdateMode};

/// Options of [`stft`](crate::signal::stft) and [`istft`](crate::signal::istft): the frames of a signal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StftOptions {
    /// The number of points of each transform (PyTorch's `n_fft`).
    pub points: usize,
    /// The hop length: elements from the start of one frame to the next. Default: a quarter of the points.
    pub hop: usize,
    /// The length of the window, centred in the points. Default: all points.
    pub window_length: usize,
    /// Whether frame `i` is centred at `i * hop`, with the signal padded by half the points; otherwise it starts there.
    /// Default: yes.
    pub center: bool,
    /// The padding of the signal. Default: reflection.
    pub pad: PadMode,
    /// Whether spectra are divided by the square root of the points. Default: no.
    pub normalized: bool,
    /// Whether only the first half of the Hermitian spectra is returned. Default: yes.
    pub onesided: bool,
}

impl StftOptions {
    /// Returns the default options for transforms of `points` points.
    pub fn new(points: usize) -> StftOptions {
        StftOptions {
            points,
            hop: (points / 4).max(1),
            window_length: points,
            center: true,
            pad: PadMode::Reflect,
            normalized: false,
            onesided: true,
        }
    }

    fn check(&self, op: &str, x: &AnyTensor, window: Option<&AnyTensor>) -> Result<()> {
        let error = |problem: String| Error::type_error(op, problem, &[x.ty().into()]);
        if !x.dtype().is_float() {
            return Err(error("needs floats".into()));
        }
        if self.points == 0 || self.hop == 0 {
            return Err(error("points and hop must be at least 1".into()));
        }
        if self.window_length == 0 || self.window_length > self.points {
            let (length, points) = (self.window_length, self.points);
            return Err(error(format!("a window of {length} elements does not fit {points} points")));
        }
        match window {
            Some(window) if *window.shape() != Shape::from([self.window_length]) => {
                let problem = format!("the window must have shape [{}]", self.window_length);
                Err(Error::type_error(op, problem, &[x.ty().into(), window.ty().into()])
                    .hint("`window_length` sets its length"))
            }
            Some(window) if window.dtype() != x.dtype() => {
                Err(Error::type_error(op, "dtypes differ", &[x.ty().into(), window.ty().into()])
                    .hint("cast the window"))
            }
            Some(window) => x.in_same_domain(op, window),
            None => Ok(()),
        }
    }

    fn bins(&self) -> usize {
        if self.onesided { self.points / 2 + 1 } else { self.points }
    }

    fn scale(&self) -> f64 {
        if self.normalized { libm::sqrt(self.points as f64) } else { 1.0 }
    }

    /// Returns the window with zeros on both sides to fill the points, `[points]`.
    fn full_window(&self, window: Option<AnyTensor>, like: &AnyTensor) -> Result<AnyTensor> {
        let window = match window {
            Some(window) => window,
            None => AnyTensor::ones(TensorType::new([self.window_length], like.dtype()), like.stack())?,
        };
        let left = (self.points - self.window_length) / 2;
        let right = self.points - self.window_length - left;
        window.pad_axes(Vec::from([PadAxis::new(left, right)]), 0)
    }
}

impl AnyTensor {
    /// Computes short-time Fourier transforms of signals, `[.., length] -> [.., bins, frames]`. See
    /// [`signal::stft`](crate::signal::stft).
    ///
    /// # Errors
    /// When the dtype is not a float, points or hop are 0, the window is longer than the points, does not have
    /// `window_length` elements, or differs in dtype, the signals have no axes or are shorter than the points, or the
    /// padding mode does not allow half the points.
    pub fn stft(self, window: Option<AnyTensor>, options: &StftOptions) -> Result<AnyComplex> {
        options.check("stft", &self, window.as_ref())?;
        let Some((&length, outer)) = self.shape().split_last() else {
            return Err(Error::type_error("stft", "needs at least 1 axis", &[self.ty().into()]));
        };
        let outer: Shape = outer.into();
        let half = if options.center { options.points / 2 } else { 0 };
        if length + 2 * half < options.points {
            let problem =
                format!("the signal of {length} elements is shorter than {} points", options.points);
            return Err(
                Error::type_error("stft", problem, &[self.ty().into()]).hint("pad it, or use fewer points")
            );
        }
        let window = options.full_window(window, &self)?;
        let signals = self.reshape([outer.num_elements(), length])?.pad(&[(half, half)], options.pad)?;
        let frames = signals
            .apply(&Op::Windows { axis: 1, size: options.points, step: options.hop, dilation: 1 })?
            .binary(Binary::Mul, window)?;
        let spectra = match options.onesided {
            true => frames.rfft(None, 2, FftNorm::Backward)?,
            false => AnyComplex::from_real(frames)?.fft(None, 2, FftNorm::Backward)?,
        };
        let turned = |part: AnyTensor| {
            let shape = outer.iter().copied().chain([part.shape()[2], part.shape()[1]]).collect::<Shape>();
            part.apply(&Op::Permute(Axes::new(&[0, 2, 1])))?.reshape(shape)
        };
        let spectra = spectra.each(turned)?;
        if options.normalized { spectra.mul_scalar(1.0 / options.scale()) } else { Ok(spectra) }
    }
}

impl AnyComplex {
    /// Computes the inverse short-time Fourier transform, `[.., bins, frames] -> [.., length]`. Waits for the device,
    /// to check the window. See [`signal::istft`](crate::signal::istft).
    ///
    /// # Errors
    /// When the spectra are not `[.., bins, frames]` of the options, options or window are invalid as in
    /// [`stft`](AnyTensor::stft), the windows are 0 at an element of the signal, or the computation of the window
    /// failed.
    pub fn istft(
        self,
        window: Option<AnyTensor>,
        length: Option<usize>,
        options: &StftOptions,
    ) -> Result<AnyTensor> {
        options.check("istft", self.re(), window.as_ref())?;
        let rank = self.shape().rank();
        let ty = *self.re().ty();
        if rank < 2 || ty.shape[rank - 2] != options.bins() || ty.shape[rank - 1] == 0 {
            let problem = format!("needs spectra of shape [.., {}, frames]", options.bins());
            return Err(Error::type_error("istft", problem, &[(&ty).into()]));
        }
        let outer: Shape = ty.shape[..rank - 2].into();
        let (batch, frames) = (outer.num_elements(), ty.shape[rank - 1]);
        let window = options.full_window(window, self.re())?;
        let turned = |part: AnyTensor| {
            part.reshape([batch, options.bins(), frames])?.apply(&Op::Permute(Axes::new(&[0, 2, 1])))
        };
        let spectra = self.each(turned)?.mul_scalar(options.scale())?;
        let pieces = match options.onesided {
            true => spectra.irfft(options.points, 2, FftNorm::Backward)?,
            false => spectra.ifft(None, 2, FftNorm::Backward)?.into_parts().0,
        };
        let whole = options.points + options.hop * (frames - 1);
        let start = if options.center { options.points / 2 } else { 0 };
        let end = match length {
            Some(length) => start + length,
            None => whole - start,
        };
        let kept = start..end.min(whole).max(start);
        check_cover(&window, frames, options, kept.clone())?;
        let pieces = pieces.binary_with(Binary::Mul, &window)?;
        let squares = window.clone().binary(Binary::Mul, window)?.expand([1, frames, options.points])?;
        let range = |x: AnyTensor| x.slice_axis(1, SliceAxis::range(kept.clone()));
        let signals = range(added(pieces, options.hop, whole)?)?;
        let weights = range(added(squares, options.hop, whole)?)?;
        let signals = fitted(signals.binary(Binary::Div, weights)?, 1, end - start)?;
        signals.reshape(outer.iter().copied().chain([end - start]).collect::<Shape>())
    }
}

/// Sums frames `[batch, frames, points]` at their positions, `[batch, whole]` (overlap-add).
fn added(pieces: AnyTensor, hop: usize, whole: usize) -> Result<AnyTensor> {
    let shape = *pieces.shape();
    let places = (0..shape[1]).flat_map(|frame| (0..shape[2]).map(move |point| (frame * hop + point) as i64));
    let index = TensorData::new(places.collect::<Vec<i64>>(), [shape[1], shape[2]])?;
    let index = AnyTensor::from_data(index.convert(pieces.stack().int_dtype()), pieces.stack());
    let base = AnyTensor::zeros(TensorType::new([shape[0], whole], pieces.dtype()), pieces.stack())?;
    base.put(1, index, pieces, UpdateMode::Add)
}

/// Checks that a nonzero part of a window covers every kept element, because other elements are lost.
fn check_cover(
    window: &AnyTensor,
    frames: usize,
    options: &StftOptions,
    kept: core::ops::Range<usize>,
) -> Result<()> {
    let weights = window.clone().detach().into_data()?.convert(crate::DType::F64).to_vec::<f64>();
    let mut cover = alloc::vec![0.0; options.points + options.hop * (frames - 1)];
    for frame in 0..frames {
        for (point, weight) in weights.iter().enumerate() {
            cover[frame * options.hop + point] += weight * weight;
        }
    }
    match kept.clone().find(|&place| cover[place] < 1e-11) {
        None => Ok(()),
        Some(place) => {
            let problem = format!("the windows are 0 at element {} of the signal", place - kept.start);
            Err(Error::value("istft", problem)
                .hint("the signal is undefined there: use a smaller hop, or `center: true`"))
        }
    }
}
