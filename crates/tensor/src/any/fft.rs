//! Discrete Fourier transforms of any rank.

use super::AnyComplex;
use super::data::check_table;
use crate::{AnyTensor, Axis, AxisList, Error, Result, Stack, TensorData};
use alloc::vec::Vec;
use kiln_ir::{Binary, FftKind, Op, PadAxis, SliceAxis, TensorType};

/// The normalisation of a Fourier transform of `n` points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FftNorm {
    /// The inverse transform divides by `n`.
    #[default]
    Backward,
    /// Both divide by `√n` (unitary transforms).
    Ortho,
    /// The forward transform divides by `n`; the inverse does not scale.
    Forward,
}

/// The type of a discrete cosine transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dct {
    /// DCT-II: `y[k] = 2 Σ x[i] cos(π k (2i + 1) / 2n)`.
    Two,
    /// DCT-III: `y[i] = x[0] + 2 Σ x[k] cos(π k (2i + 1) / 2n)`, from `k` = 1. Without `orthogonal` it is `2n` times
    /// the inverse of DCT-II.
    Three,
}

impl FftNorm {
    fn scale(self, points: usize, inverse: bool) -> f64 {
        match (self, inverse) {
            (FftNorm::Backward, true) | (FftNorm::Forward, false) => 1.0 / points as f64,
            (FftNorm::Backward, false) | (FftNorm::Forward, true) => 1.0,
            (FftNorm::Ortho, _) => 1.0 / libm::sqrt(points as f64),
        }
    }
}

impl AnyComplex {
    /// Computes the discrete Fourier transform along an axis. See [`fft::fft`](crate::fft::fft).
    ///
    /// # Errors
    /// When the axis is out of range, or the transform has no points.
    pub fn fft(
        self,
        points: impl Into<Option<usize>>,
        axis: impl Into<Axis>,
        norm: FftNorm,
    ) -> Result<AnyComplex> {
        let axis = axis.into().of("fft", self.re().ty())?;
        let points = points.into().unwrap_or(self.shape()[axis]);
        transform("fft", self, (axis, points), false, norm.scale(points, false))
    }

    /// Computes the inverse of [`fft`](AnyComplex::fft). See [`fft::ifft`](crate::fft::ifft).
    ///
    /// # Errors
    /// As [`fft`](AnyComplex::fft).
    pub fn ifft(
        self,
        points: impl Into<Option<usize>>,
        axis: impl Into<Axis>,
        norm: FftNorm,
    ) -> Result<AnyComplex> {
        let axis = axis.into().of("ifft", self.re().ty())?;
        let points = points.into().unwrap_or(self.shape()[axis]);
        transform("ifft", self, (axis, points), true, norm.scale(points, true))
    }

    /// Computes the Fourier transform along several axes. See [`fft::fftn`](crate::fft::fftn).
    ///
    /// # Errors
    /// When an axis is out of range or repeated, there is not one size for each axis, or a transform has no points.
    pub fn fftn(
        self,
        sizes: Option<&[usize]>,
        axes: impl Into<AxisList>,
        norm: FftNorm,
    ) -> Result<AnyComplex> {
        let axes = sized_axes("fftn", self.re(), sizes, &axes.into(), false)?;
        let scale = norm.scale(points_of(&axes), false);
        scaled(axes.iter().try_fold(self, |x, &axis| transform("fftn", x, axis, false, 1.0))?, scale)
    }

    /// Computes the inverse of [`fftn`](AnyComplex::fftn). See [`fft::ifftn`](crate::fft::ifftn).
    ///
    /// # Errors
    /// As [`fftn`](AnyComplex::fftn).
    pub fn ifftn(
        self,
        sizes: Option<&[usize]>,
        axes: impl Into<AxisList>,
        norm: FftNorm,
    ) -> Result<AnyComplex> {
        let axes = sized_axes("ifftn", self.re(), sizes, &axes.into(), false)?;
        let scale = norm.scale(points_of(&axes), true);
        scaled(axes.iter().try_fold(self, |x, &axis| transform("ifftn", x, axis, true, 1.0))?, scale)
    }

    /// Computes the inverse of [`AnyTensor::rfft`]. See [`fft::irfft`](crate::fft::irfft).
    ///
    /// # Errors
    /// When the axis is out of range, or the transform has no points: the default for an axis of length 1.
    pub fn irfft(
        self,
        points: impl Into<Option<usize>>,
        axis: impl Into<Axis>,
        norm: FftNorm,
    ) -> Result<AnyTensor> {
        let axis = axis.into().of("irfft", self.re().ty())?;
        let points = points.into().unwrap_or(mirrored_points(self.shape()[axis]));
        to_real("irfft", self, (axis, points), norm.scale(points, true))
    }

    /// Computes the inverse of [`AnyTensor::rfftn`]. See [`fft::irfftn`](crate::fft::irfftn).
    ///
    /// # Errors
    /// As [`fftn`](AnyComplex::fftn), and when there are no axes.
    pub fn irfftn(
        self,
        sizes: Option<&[usize]>,
        axes: impl Into<AxisList>,
        norm: FftNorm,
    ) -> Result<AnyTensor> {
        let axes = sized_axes("irfftn", self.re(), sizes, &axes.into(), true)?;
        let (last, others) = last_of("irfftn", &axes)?;
        let x = others.iter().try_fold(self, |x, &axis| transform("irfftn", x, axis, true, 1.0))?;
        to_real("irfftn", x, last, norm.scale(points_of(&axes), true))
    }

    /// Computes the real Fourier transform of a Hermitian-symmetric signal. See [`fft::hfft`](crate::fft::hfft).
    ///
    /// # Errors
    /// As [`irfft`](AnyComplex::irfft).
    pub fn hfft(
        self,
        points: impl Into<Option<usize>>,
        axis: impl Into<Axis>,
        norm: FftNorm,
    ) -> Result<AnyTensor> {
        let axis = axis.into().of("hfft", self.re().ty())?;
        let points = points.into().unwrap_or(mirrored_points(self.shape()[axis]));
        to_real("hfft", self.conj()?, (axis, points), norm.scale(points, false))
    }
}

impl AnyTensor {
    /// Computes the first half of the Fourier transform of a real tensor. See [`fft::rfft`](crate::fft::rfft).
    ///
    /// # Errors
    /// When the axis is out of range, the dtype is not a float, or the transform has no points.
    pub fn rfft(
        self,
        points: impl Into<Option<usize>>,
        axis: impl Into<Axis>,
        norm: FftNorm,
    ) -> Result<AnyComplex> {
        let axis = axis.into().of("rfft", self.ty())?;
        let points = points.into().unwrap_or(self.shape()[axis]);
        from_real("rfft", self, (axis, points), norm.scale(points, false))
    }

    /// Computes the Fourier transform of a real tensor along several axes, the last of which is halved. See
    /// [`fft::rfftn`](crate::fft::rfftn).
    ///
    /// # Errors
    /// When the dtype is not a float, there are no axes, an axis is out of range or repeated, there is not one size for
    /// each axis, or a transform has no points.
    pub fn rfftn(
        self,
        sizes: Option<&[usize]>,
        axes: impl Into<AxisList>,
        norm: FftNorm,
    ) -> Result<AnyComplex> {
        let axes = sized_axes("rfftn", &self, sizes, &axes.into(), false)?;
        let (last, others) = last_of("rfftn", &axes)?;
        let x = from_real("rfftn", self, last, norm.scale(points_of(&axes), false))?;
        others.iter().rev().try_fold(x, |x, &axis| transform("rfftn", x, axis, false, 1.0))
    }

    /// Computes the inverse of [`AnyComplex::hfft`]. See [`fft::ihfft`](crate::fft::ihfft).
    ///
    /// # Errors
    /// As [`rfft`](AnyTensor::rfft).
    pub fn ihfft(
        self,
        points: impl Into<Option<usize>>,
        axis: impl Into<Axis>,
        norm: FftNorm,
    ) -> Result<AnyComplex> {
        let axis = axis.into().of("ihfft", self.ty())?;
        let points = points.into().unwrap_or(self.shape()[axis]);
        from_real("ihfft", self, (axis, points), norm.scale(points, true))?.conj()
    }

    /// Returns the frequency of each bin of [`fft`](AnyComplex::fft). See [`fft::fftfreq`](crate::fft::fftfreq).
    ///
    /// # Errors
    /// When there are more than 2²⁸ frequencies.
    pub fn fftfreq(points: usize, spacing: f64, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        check_table("fftfreq", &[points])?;
        let half = points.div_ceil(2);
        let bin = |i: usize| if i < half { i as f64 } else { i as f64 - points as f64 };
        frequencies((0..points).map(bin), points, spacing, device.as_ref())
    }

    /// Returns the frequency of each bin of [`rfft`](AnyTensor::rfft). See [`fft::rfftfreq`](crate::fft::rfftfreq).
    ///
    /// # Errors
    /// As [`fftfreq`](AnyTensor::fftfreq).
    pub fn rfftfreq(points: usize, spacing: f64, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        let bins = if points == 0 { 0 } else { points / 2 + 1 };
        check_table("rfftfreq", &[bins])?;
        frequencies((0..bins).map(|i| i as f64), points, spacing, device.as_ref())
    }

    /// Moves the zero frequency to the middle of axes. See [`fft::fftshift`](crate::fft::fftshift).
    ///
    /// # Errors
    /// When an axis is out of range or repeated.
    pub fn fftshift(self, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        let axes = axes.into().of("fftshift", self.ty())?;
        axes.iter().try_fold(self, |x, &axis| {
            let length = x.shape()[axis];
            x.roll_dim((length / 2) as i64, axis)
        })
    }

    /// Computes the inverse of [`fftshift`](AnyTensor::fftshift). See [`fft::ifftshift`](crate::fft::ifftshift).
    ///
    /// # Errors
    /// As [`fftshift`](AnyTensor::fftshift).
    pub fn ifftshift(self, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        let axes = axes.into().of("ifftshift", self.ty())?;
        axes.iter().try_fold(self, |x, &axis| {
            let length = x.shape()[axis];
            x.roll_dim(-((length / 2) as i64), axis)
        })
    }

    /// Computes a discrete cosine transform along an axis. See [`fft::dct`](crate::fft::dct).
    ///
    /// # Errors
    /// When the axis is out of range or empty, or the dtype is not a float.
    pub fn dct(self, kind: Dct, axis: impl Into<Axis>, orthogonal: bool) -> Result<AnyTensor> {
        let axis = axis.into().of("dct", self.ty())?;
        check("dct", &self, self.shape()[axis])?;
        match kind {
            Dct::Two => dct_two(self, axis, orthogonal),
            Dct::Three => dct_three(self, axis, orthogonal),
        }
    }
}

fn check(op: &str, x: &AnyTensor, points: usize) -> Result<()> {
    if !x.dtype().is_float() {
        return Err(Error::type_error(op, "needs floats", &[x.ty().into()])
            .hint("convert it first: `float()`, or `cast` to a float dtype"));
    }
    if points == 0 {
        return Err(Error::type_error(op, "needs at least one point along the axis", &[x.ty().into()])
            .hint("`None` uses the length of the axis"));
    }
    Ok(())
}

/// Axes, each with the number of its points.
fn sized_axes(
    op: &str,
    x: &AnyTensor,
    sizes: Option<&[usize]>,
    axes: &AxisList,
    last_is_half: bool,
) -> Result<Vec<SizedAxis>> {
    let axes = axes.of(op, x.ty())?;
    let own = |(place, &axis): (usize, &usize)| match last_is_half && place + 1 == axes.len() {
        true => (axis, mirrored_points(x.shape()[axis])),
        false => (axis, x.shape()[axis]),
    };
    match sizes {
        None => Ok(axes.iter().enumerate().map(own).collect()),
        Some(sizes) if sizes.len() == axes.len() => {
            Ok(axes.iter().copied().zip(sizes.iter().copied()).collect())
        }
        Some(sizes) => {
            let problem = alloc::format!("{} sizes for {} axes", sizes.len(), axes.len());
            Err(Error::type_error(op, problem, &[x.ty().into()])
                .hint("pass one size for each axis, or `None`"))
        }
    }
}

/// An axis and its number of points.
type SizedAxis = (usize, usize);

fn last_of<'a>(op: &str, axes: &'a [SizedAxis]) -> Result<(SizedAxis, &'a [SizedAxis])> {
    match axes.split_last() {
        Some((&last, others)) => Ok((last, others)),
        None => Err(Error::type_error(op, "needs at least one axis", &[])
            .hint("name the axes to transform, or use the function without `n`")),
    }
}

/// Returns the number of points of a transform along several axes.
fn points_of(axes: &[SizedAxis]) -> usize {
    axes.iter().map(|&(_, points)| points).product()
}

/// Returns the number of points of a Hermitian spectrum whose first half has this length.
fn mirrored_points(half: usize) -> usize {
    (2 * half).saturating_sub(2)
}

/// Transforms one axis, cropped or padded to a size, and scales.
fn transform(
    op: &str,
    x: AnyComplex,
    (axis, points): SizedAxis,
    inverse: bool,
    scale: f64,
) -> Result<AnyComplex> {
    check(op, x.re(), points)?;
    let (re, im) = x.each(|part| fitted(part, axis, points))?.into_parts();
    let mut results = re
        .apply_many(&Op::Fft { kind: FftKind::Complex, axis, inverse }, [im.into_value().into()])?
        .into_iter();
    match (results.next(), results.next()) {
        (Some(re), Some(im)) => scaled(AnyComplex::new(re, im)?, scale),
        _ => Err(Error::type_error(op, "returns no complex result", &[])),
    }
}

fn scaled(x: AnyComplex, scale: f64) -> Result<AnyComplex> {
    if scale == 1.0 { Ok(x) } else { x.mul_scalar(scale) }
}

fn from_real(op: &str, x: AnyTensor, (axis, points): SizedAxis, scale: f64) -> Result<AnyComplex> {
    check(op, &x, points)?;
    let x = fitted(x, axis, points)?;
    let mut results =
        x.apply_many(&Op::Fft { kind: FftKind::FromReal, axis, inverse: false }, [])?.into_iter();
    match (results.next(), results.next()) {
        (Some(re), Some(im)) => scaled(AnyComplex::new(re, im)?, scale),
        _ => Err(Error::type_error(op, "returns no complex result", &[])),
    }
}

/// Computes the real transform of a Hermitian spectrum: element `points - k` is the conjugate of element `k`.
fn to_real(op: &str, x: AnyComplex, (axis, points): SizedAxis, scale: f64) -> Result<AnyTensor> {
    check(op, x.re(), points)?;
    let (re, im) = x.each(|part| fitted(part, axis, points / 2 + 1))?.into_parts();
    let kind = FftKind::ToReal { points };
    let mut results = re.apply_many(&Op::Fft { kind, axis, inverse: true }, [im.into_value().into()])?;
    let x = results.pop().ok_or_else(|| Error::type_error(op, "returns no result", &[]))?;
    if scale == 1.0 { Ok(x) } else { x.binary_scalar(Binary::Mul, scale) }
}

/// Crops, or pads with zeros at the end, to a length.
pub(super) fn fitted(x: AnyTensor, axis: usize, length: usize) -> Result<AnyTensor> {
    let own = x.shape()[axis];
    if length == own {
        return Ok(x);
    }
    if length < own {
        return x.slice_axis(axis, SliceAxis { start: 0, len: length, step: 1 });
    }
    let mut pads = alloc::vec![PadAxis::default(); x.rank()];
    pads[axis] = PadAxis::new(0, length - own);
    x.pad_axes(pads, 0)
}

/// Creates a tensor of values along an axis, in the dtype and on the device of a tensor with which they broadcast.
fn along(like: &AnyTensor, axis: usize, numbers: Vec<f64>) -> Result<AnyTensor> {
    let mut shape = kiln_ir::Shape::new(alloc::vec![1; like.rank()]);
    shape[axis] = numbers.len();
    Ok(AnyTensor::from_data(TensorData::new(numbers, shape)?.convert(like.dtype()), like.stack()))
}

fn frequencies(
    bins: impl Iterator<Item = f64>,
    points: usize,
    spacing: f64,
    stack: &Stack,
) -> Result<AnyTensor> {
    let numbers: Vec<f64> = bins.map(|bin| bin / (points as f64 * spacing)).collect();
    let ty = TensorType::new([numbers.len()], stack.float_dtype());
    Ok(AnyTensor::from_data(TensorData::new(numbers, ty.shape)?.convert(ty.dtype), stack))
}

/// Computes twice the real part of `e^(-iπk/2n) Σ x[i] e^(-2πi k i / 2n)`, a transform of 2n points.
fn dct_two(x: AnyTensor, axis: usize, orthogonal: bool) -> Result<AnyTensor> {
    let n = x.shape()[axis];
    let whole = x.rfft(2 * n, axis, FftNorm::Backward)?;
    let (re, im) = whole.each(|part| fitted(part, axis, n))?.into_parts();
    let scale = |k: usize| if orthogonal { 2.0 * orthogonal_scale(k, n) } else { 2.0 };
    let (cosines, sines) = turns(&re, axis, n, scale)?;
    re.binary(Binary::Mul, cosines)?.binary(Binary::Add, im.binary(Binary::Mul, sines)?)
}

/// Computes the real part of `Σ c[k] e^(2πi k i / 2n)`, where `c[k]` is `2 x[k] e^(iπk/2n)`, and `x[0]` at 0. The sum
/// is half a spectrum; its mirror image is the other half of the real part.
fn dct_three(x: AnyTensor, axis: usize, orthogonal: bool) -> Result<AnyTensor> {
    let n = x.shape()[axis];
    let scale = |k: usize| match (orthogonal, k) {
        (true, 0) => 2.0 * orthogonal_scale(k, n),
        (true, _) => orthogonal_scale(k, n),
        (false, _) => 1.0,
    };
    let (cosines, sines) = turns(&x, axis, n, scale)?;
    let turned = AnyComplex::new(x.clone().binary(Binary::Mul, cosines)?, x.binary(Binary::Mul, sines)?)?;
    fitted(turned.irfft(2 * n, axis, FftNorm::Forward)?, axis, n)
}

/// Returns `√(1/4n)` at 0 and `√(1/2n)` elsewhere: DCT-II is orthogonal then, and DCT-III is its transpose.
fn orthogonal_scale(k: usize, n: usize) -> f64 {
    let n = n as f64;
    libm::sqrt(if k == 0 { 1.0 / (4.0 * n) } else { 1.0 / (2.0 * n) })
}

/// Cosines and sines of `πk/2n`, times a scale.
fn turns(
    like: &AnyTensor,
    axis: usize,
    n: usize,
    scale: impl Fn(usize) -> f64,
) -> Result<(AnyTensor, AnyTensor)> {
    let angle = |k: usize| core::f64::consts::PI * k as f64 / (2 * n) as f64;
    let cosines = (0..n).map(|k| libm::cos(angle(k)) * scale(k)).collect();
    let sines = (0..n).map(|k| libm::sin(angle(k)) * scale(k)).collect();
    Ok((along(like, axis, cosines)?, along(like, axis, sines)?))
}
