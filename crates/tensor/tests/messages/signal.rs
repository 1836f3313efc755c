//! Fourier transforms, signals, complex numbers and grids.

use super::*;
use kiln_tensor::fft::{self, FftNorm};
use kiln_tensor::signal::{self, ConvolveMode, StftOptions};
use kiln_tensor::{Complex, grid};

pub(super) fn cases() -> Vec<Case> {
    let norm = FftNorm::default();
    vec![
        panics("rfft: an axis out of range", || fft::rfft(x(), None, 2, norm)),
        panics("rfft: no points", || fft::rfft(x(), 0, 1, norm)),
        panics("fftn: sizes for other axes", || fft::fftn(Complex::from_real(x()), Some(&[2]), [0, 1], norm)),
        panics("stft: a signal that is too short", || {
            signal::stft::<Flex, 1, 2>(v(), None, &StftOptions::new(16))
        }),
        panics("stft: a window of another length", || {
            let x = Tensor::<Flex, 1>::ones([64], &DEVICE);
            signal::stft::<Flex, 1, 2>(x, Some(v()), &StftOptions::new(16))
        }),
        panics("convolve: no elements", || {
            signal::convolve(v(), Tensor::ones([0], &DEVICE), ConvolveMode::Full)
        }),
        panics("complex: parts of two shapes", || Complex::new(x(), Tensor::ones([3, 2], &DEVICE))),
        panics("from_interleaved: not pairs", || Complex::<Flex, 1>::from_interleaved(x())),
        panics("affine_grid: maps of another shape", || {
            grid::affine_grid_2d(Tensor::<Flex, 3>::ones([1, 3, 3], &DEVICE), [4, 4], false)
        }),
    ]
}
