//! Function families under layers: `vmap` matches single examples, and forward mode matches reverse mode.

use kiln_backends::{Device, Flex};
use kiln_tensor::fft::{self, Dct, FftNorm};
use kiln_tensor::grid::{GridPadding, GridSampleMode, GridSampleOptions};
use kiln_tensor::linalg::{self, Norm};
use kiln_tensor::signal::{self, ConvolveMode, StftOptions};
use kiln_tensor::transform::{jacobian, jacobian_forward, vmap};
use kiln_tensor::{AnyTensor, Autodiff, Backend, Complex, Forward, Tensor, TensorData, Vmap, einsum, s};

const LENGTH: usize = 12;

fn products<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
    let a: Tensor<B, 2> = x.clone().reshape([3, 4]);
    let chain: Tensor<B, 2> = einsum("ij,kj,kl->il", (&a, &a, &a));
    let kron = linalg::kron(a.clone().slice([0..1, 0..2]), a.clone().slice([1..2, 0..3]));
    let trace: Tensor<B, 1> = einsum("iij->j", [chain.clone().reshape([2, 2, 3])]);
    let cross = a.clone().transpose().cross(a.transpose().flip([0]), 1);
    Tensor::cat(vec![chain.reshape([12]), kron.reshape([6]), trace, cross.reshape([12])], 0)
}

fn norms<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
    let a: Tensor<B, 2> = x.reshape([3, 4]);
    let norm = |norm: Norm| linalg::vector_norm(a.clone(), norm, -1).reshape([3]);
    let cosine = linalg::cosine_similarity(a.clone(), a.clone().flip([0]), 1, None).reshape([3]);
    Tensor::cat(vec![norm(Norm::L1), norm(Norm::L2), norm(Norm::Lp(3.0)), norm(Norm::MaxAbs), cosine], 0)
}

fn sampled<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
    let picture: Tensor<B, 4> = x.clone().reshape([1, 1, 3, 4]);
    let points: Tensor<B, 4> = x.sin().reshape([1, 2, 3, 2]);
    let by = |mode, padding| {
        let options = GridSampleOptions { mode, padding, align_corners: false };
        picture.clone().grid_sample_2d(points.clone() * 1.7, options).reshape([6])
    };
    let linear = by(GridSampleMode::Bilinear, GridPadding::Zeros);
    Tensor::cat(vec![linear, by(GridSampleMode::Bicubic, GridPadding::Reflection)], 0)
}

fn spectra<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
    let spectrum = fft::rfft(x.clone(), 14, 0, FftNorm::Ortho);
    let square = spectrum.clone() * spectrum.clone().conj() + spectrum.clone().exp() / spectrum;
    let back = fft::irfft(square.clone(), None, 0, FftNorm::Backward);
    Tensor::cat(vec![square.abs(), back, fft::dct(x, Dct::Three, 0, true)], 0)
}

fn frames<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
    let options = StftOptions { hop: 2, ..StftOptions::new(4) };
    let spectra: Complex<B, 2> = signal::stft(x.clone(), None, &options);
    let back: Tensor<B, 1> = signal::istft(spectra.clone() * spectra, None, None, &options);
    let smooth = signal::convolve(x.clone(), x.clone().slice(s![0..3]), ConvolveMode::Same);
    Tensor::cat(vec![back, smooth, signal::fftconvolve(x.clone(), x, ConvolveMode::Full)], 0)
}

fn batch() -> Tensor<Flex, 2> {
    let numbers: Vec<f64> = (0..3 * LENGTH).map(|i| ((i * 7919 + 13) % 101) as f64 / 50.0 - 0.97).collect();
    Tensor::from_any(AnyTensor::from_data(TensorData::new(numbers, [3, LENGTH]).unwrap(), &Device::cpu()))
}

#[track_caller]
fn close(name: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        let near = (found - expected).abs() <= 1e-9 * (1.0 + expected.abs());
        assert!(near, "{name}, element {place}: {found} instead of {expected}");
    }
}

macro_rules! functions {
    ($($name:ident)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn vmap_matches_a_loop() {
                let found: Tensor<Flex, 2> = vmap(super::$name::<Vmap<Flex>>)(batch());
                let rows: Vec<f64> = (0..3)
                    .flat_map(|row| {
                        let x: Tensor<Flex, 1> = batch().slice([row..row + 1, 0..LENGTH]).reshape([LENGTH]);
                        super::$name(x).into_data().to_vec::<f64>()
                    })
                    .collect();
                close(stringify!($name), &found.into_data().to_vec::<f64>(), &rows);
            }

            #[test]
            fn forward_mode_matches_reverse_mode() {
                let x: Tensor<Flex, 1> = batch().slice([0..1, 0..LENGTH]).reshape([LENGTH]);
                let forward: Tensor<Flex, 2> = jacobian_forward(super::$name::<Forward<Flex>>)(x.clone());
                let reverse: Tensor<Flex, 2> = jacobian(super::$name::<Autodiff<Flex>>)(x);
                close(
                    stringify!($name),
                    &forward.into_data().to_vec::<f64>(),
                    &reverse.into_data().to_vec::<f64>(),
                );
            }
        }
    )*};
}

functions!(products norms sampled spectra frames);
