//! Resize and FFT.

use crate::call::Call;
use crate::numbers::{Numbers, reals};
use crate::places::lines;
use alloc::vec::Vec;
use core::f64::consts::PI;
use kiln_ir::{FftKind, ResizeMode, Result, TensorData, TensorType};

/// Resizes one axis after the other: each element is a weighted sum of elements along that axis.
pub(crate) fn resize(
    x: &TensorData,
    mode: ResizeMode,
    align_corners: bool,
    ty: TensorType,
) -> Result<TensorData> {
    let (mut shape, mut elements) = (*x.shape(), reals(x));
    for axis in 2..ty.rank() {
        let grid = Grid { mode, align_corners, from: shape[axis], to: ty.shape[axis] };
        let weights: Vec<_> = (0..grid.to).map(|index| grid.weights(index)).collect();
        let wider = shape.with(axis, grid.to);
        let mut resized = alloc::vec![0.0; wider.num_elements()];
        for (source, target) in lines(&shape, axis).zip(lines(&wider, axis)) {
            for (place, weights) in target.places().zip(&weights) {
                resized[place] =
                    weights.iter().map(|&(index, weight)| weight * elements[source.place(index)]).sum();
            }
        }
        (shape, elements) = (wider, resized);
    }
    Numbers::Real(elements).into_data(ty)
}

/// One axis before and after resizing.
struct Grid {
    mode: ResizeMode,
    align_corners: bool,
    from: usize,
    to: usize,
}

impl Grid {
    /// The source indices of a result element, with their interpolation weights.
    fn weights(&self, index: usize) -> Vec<(usize, f64)> {
        let last = self.from.saturating_sub(1);
        match self.mode {
            ResizeMode::Nearest => alloc::vec![(index * self.from / self.to, 1.0)],
            ResizeMode::Linear => {
                let source = self.source(index).max(0.0);
                let below = (libm::floor(source) as usize).min(last);
                let part = (source - below as f64).min(1.0);
                alloc::vec![(below, 1.0 - part), ((below + 1).min(last), part)]
            }
            ResizeMode::Cubic => {
                let source = self.source(index);
                let below = libm::floor(source);
                let near = |offset: i32| {
                    let sample = below + f64::from(offset);
                    (sample.clamp(0.0, last as f64) as usize, cubic(sample - source))
                };
                [-1, 0, 1, 2].map(near).to_vec()
            }
        }
    }

    /// The source coordinate of a result element.
    fn source(&self, index: usize) -> f64 {
        let (from, to, index) = (self.from as f64, self.to as f64, index as f64);
        if !self.align_corners {
            (index + 0.5) * from / to - 0.5
        } else if self.to > 1 {
            index * (from - 1.0) / (to - 1.0)
        } else {
            0.0
        }
    }
}

/// Keys' cubic convolution kernel with `a = -0.75`: the weight of a sample at a distance.
fn cubic(distance: f64) -> f64 {
    const A: f64 = -0.75;
    let d = distance.abs();
    if d <= 1.0 {
        ((A + 2.0) * d - (A + 3.0)) * d * d + 1.0
    } else if d < 2.0 {
        ((A * d - 5.0 * A) * d + 8.0 * A) * d - 4.0 * A
    } else {
        0.0
    }
}

/// The discrete Fourier transform by its definition, in O(n²).
pub(crate) fn fft(call: &Call<'_>, kind: FftKind, axis: usize, inverse: bool) -> Result<Vec<TensorData>> {
    let from = *call.data(0)?.shape();
    let points = kind.points(from[axis]);
    let x_re = reals(call.data(0)?);
    let x_im = match kind {
        FftKind::Complex | FftKind::ToReal { .. } => reals(call.data(1)?),
        FftKind::FromReal => alloc::vec![0.0; x_re.len()],
    };
    let roots: Vec<(f64, f64)> = (0..points).map(|turn| root(turn, points, inverse)).collect();
    let to = call.types[0].shape;
    let mut results = [alloc::vec![0.0; to.num_elements()], alloc::vec![0.0; to.num_elements()]];
    for (source, target) in lines(&from, axis).zip(lines(&to, axis)) {
        let mut line: Vec<(f64, f64)> = source.places().map(|place| (x_re[place], x_im[place])).collect();
        if let FftKind::ToReal { .. } = kind {
            line = mirrored(&line, points);
        }
        for (k, place) in target.places().enumerate() {
            let (mut sum_re, mut sum_im) = (0.0, 0.0);
            for (n, (re, im)) in line.iter().enumerate() {
                let (cos, sin) = roots[k * n % points];
                sum_re += re * cos - im * sin;
                sum_im += re * sin + im * cos;
            }
            (results[0][place], results[1][place]) = (sum_re, sum_im);
        }
    }
    let results = results.into_iter().zip(call.types);
    results.map(|(elements, ty)| Numbers::Real(elements).into_data(*ty)).collect()
}

/// The full spectrum of a half spectrum, by Hermitian symmetry. The imaginary parts at frequency 0 and at the Nyquist
/// frequency are ignored.
fn mirrored(half: &[(f64, f64)], points: usize) -> Vec<(f64, f64)> {
    let one = |k: usize| match 2 * k % points {
        0 => (half[k].0, 0.0),
        _ if 2 * k < points => half[k],
        _ => (half[points - k].0, -half[points - k].1),
    };
    (0..points).map(one).collect()
}

/// `exp(∓2πi turn / len)`.
fn root(turn: usize, len: usize, inverse: bool) -> (f64, f64) {
    let angle = 2.0 * PI * turn as f64 / len as f64;
    let angle = if inverse { angle } else { -angle };
    (libm::cos(angle), libm::sin(angle))
}
