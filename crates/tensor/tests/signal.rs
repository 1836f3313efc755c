//! Edge cases of complex tensors, FFTs and signals.

use kiln_backends::{Device, Flex};
use kiln_tensor::fft::{self, Dct, FftNorm};
use kiln_tensor::signal::{self, ConvolveMode, StftOptions, Window};
use kiln_tensor::{AnyComplex, AnyTensor, Autodiff, Complex, DType, PadMode, Tensor, TensorType};

type B = Autodiff<Flex>;

fn vector(x: &[f32]) -> Tensor<Flex, 1> {
    Tensor::from_floats(x.to_vec(), &Default::default())
}

fn numbers<const D: usize>(x: Tensor<Flex, D>) -> Vec<f32> {
    x.into_data().to_vec()
}

#[test]
fn complex_abs_does_not_overflow() {
    let z = Complex::new(
        vector(&[3e30, 0.0, f32::INFINITY, f32::NAN, 3e-30]),
        vector(&[4e30, 0.0, 1.0, 1.0, 4e-30]),
    );
    let abs = numbers(z.abs());
    assert!((abs[0] / 5e30 - 1.0).abs() < 1e-6 && (abs[4] / 5e-30 - 1.0).abs() < 1e-6, "{abs:?}");
    assert_eq!((abs[1], abs[2]), (0.0, f32::INFINITY));
    assert!(abs[3].is_nan());
}

#[test]
fn complex_division_does_not_overflow() {
    let big = Complex::new(vector(&[3e30]), vector(&[4e30]));
    let one = big.clone() / big;
    assert!((numbers(one.re())[0] - 1.0).abs() < 1e-6);
    assert!(numbers(one.im())[0].abs() < 1e-6);
}

#[test]
fn the_gradient_of_abs_at_zero_is_zero() {
    let part = || Tensor::<B, 1>::zeros([2], &Default::default()).require_grad();
    let (re, im) = (part(), part());
    let gradients = Complex::new(re.clone(), im.clone()).abs().sum().backward();
    for part in [re, im] {
        assert_eq!(part.grad(&gradients).unwrap().into_data().to_vec::<f32>(), [0.0, 0.0]);
    }
}

#[test]
fn polar_coordinates_round_trip() {
    let z = Complex::from_polar(vector(&[2.0, 1.0]), vector(&[0.5, -3.0]));
    assert!(z.clone().abs().all_close(vector(&[2.0, 1.0]), None, None));
    assert!(z.angle().all_close(vector(&[0.5, -3.0]), None, Some(1e-6)));
}

#[test]
fn ffts_and_their_inverses_round_trip() {
    let x = vector(&[1.0, -2.0, 0.5, 3.0, 4.0]);
    for norm in [FftNorm::Backward, FftNorm::Ortho, FftNorm::Forward] {
        let spectrum = fft::fft(Complex::from_real(x.clone()), None, 0, norm);
        assert!(fft::ifft(spectrum, None, 0, norm).re().all_close(x.clone(), None, Some(1e-6)), "{norm:?}");
        let half = fft::rfft(x.clone(), None, 0, norm);
        assert!(fft::irfft(half, 5, 0, norm).all_close(x.clone(), None, Some(1e-6)), "{norm:?}");
        let half = fft::ihfft(x.clone(), None, 0, norm);
        assert!(fft::hfft(half, 5, 0, norm).all_close(x.clone(), None, Some(1e-6)), "{norm:?}");
    }
    for shape in [[3, 4], [4, 5], [1, 2]] {
        let x = Tensor::<Flex, 2>::random(
            shape,
            kiln_tensor::Distribution::Normal(0.0, 1.0),
            &Default::default(),
        );
        let back = fft::irfft2(fft::rfft2(x.clone(), None, FftNorm::Ortho), Some(shape), FftNorm::Ortho);
        assert!(back.all_close(x.clone(), None, Some(1e-6)), "{shape:?}");
        let whole = fft::fft2(Complex::from_real(x.clone()), None, FftNorm::Forward);
        assert!(fft::ifft2(whole, None, FftNorm::Forward).re().all_close(x, None, Some(1e-6)), "{shape:?}");
    }
    let odd = vector(&[0.0, 1.0, 2.0, 3.0, 4.0]);
    let shifted = fft::fftshift(odd.clone(), [0]);
    assert_eq!(numbers(shifted.clone()), [3.0, 4.0, 0.0, 1.0, 2.0]);
    assert_eq!(numbers(fft::ifftshift(shifted, [0])), numbers(odd));
}

#[test]
fn orthonormal_dct_preserves_norms() {
    let x = vector(&[1.0, -2.0, 0.5, 3.0]);
    let y = fft::dct(x.clone(), Dct::Two, 0, true);
    assert!(y.clone().dot(y.clone()).all_close(x.clone().dot(x.clone()), None, None));
    assert!(fft::dct(y, Dct::Three, 0, true).all_close(x.clone(), None, Some(1e-6)));
    let scaled = fft::dct(fft::dct(x.clone(), Dct::Two, 0, false), Dct::Three, 0, false);
    assert!(scaled.all_close(x * 8.0, None, Some(1e-5)));
}

#[test]
fn errors_of_invalid_transforms() {
    let zeros =
        |shape: &[usize], dtype| AnyTensor::zeros(TensorType::new(shape, dtype), &Device::cpu()).unwrap();
    let real = |shape: &[usize]| zeros(shape, DType::F32);
    let table = [
        (
            real(&[2, 0]).rfft(None, -1, FftNorm::Backward),
            "[rfft] needs at least one point along the axis: f32[2, 0]",
        ),
        (real(&[2, 3]).rfftn(Some(&[3]), [0, 1], FftNorm::Backward), "[rfftn] 1 sizes for 2 axes: f32[2, 3]"),
        (zeros(&[4], DType::I32).rfft(None, 0, FftNorm::Backward), "[rfft] needs floats: i32[4]"),
        (
            AnyComplex::new(real(&[2]), real(&[3])),
            "[complex] parts must be floats of one shape and dtype: f32[2] x f32[3]",
        ),
        (
            AnyComplex::from_interleaved(real(&[2, 3])),
            "[from_interleaved] the last axis must have length 2: real and imaginary part: f32[2, 3]",
        ),
        (
            real(&[3]).stft(None, &StftOptions::new(8)),
            "[pad] 4 before and 4 after are too many for axis 1 by reflect: f32[1, 3]\n  hint: at most 2 on either side of 3",
        ),
        (
            real(&[3]).stft(None, &StftOptions { center: false, ..StftOptions::new(8) }),
            "[stft] the signal of 3 elements is shorter than 8 points: f32[3]\n  hint: pad it, or use fewer points",
        ),
        (
            real(&[9]).stft(Some(real(&[3])), &StftOptions::new(4)),
            "[stft] the window must have shape [4]: f32[9] x f32[3]\n  hint: `window_length` sets its length",
        ),
    ];
    for (result, expected) in table {
        let message = result.unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn istft_inverts_stft() {
    let device = Default::default();
    let x = Tensor::<Flex, 2>::random([2, 50], kiln_tensor::Distribution::Normal(0.0, 1.0), &device);
    for (points, hop, onesided, normalized) in
        [(16, 4, true, false), (15, 5, false, true), (8, 8, true, true)]
    {
        let options =
            StftOptions { hop, onesided, normalized, pad: PadMode::from(0), ..StftOptions::new(points) };
        let window = signal::hamming_window::<Flex>(points, true, &device);
        let spectra: Complex<Flex, 3> = signal::stft(x.clone(), Some(window.clone()), &options);
        let back: Tensor<Flex, 2> = signal::istft(spectra, Some(window), None, &options);
        let length = back.dims()[1];
        assert!(length <= 50 && length + hop > 50 - points % 2, "{length}");
        assert!(back.all_close(x.clone().slice([0..2, 0..length]), None, Some(1e-5)), "{points}");
    }
}

#[test]
fn istft_refuses_uncovered_samples() {
    let device = Default::default();
    let options = StftOptions { center: false, ..StftOptions::new(4) };
    let window = signal::hann_window::<Flex>(4, true, &device);
    let spectra: Complex<Flex, 2> =
        signal::stft(Tensor::<Flex, 1>::ones([8], &device), Some(window.clone()), &options);
    let error = spectra.into_any().istft(Some(window.into_any()), None, &options).unwrap_err().to_string();
    assert!(error.starts_with("[istft] the windows are 0 at element 0 of the signal"), "{error}");
}

#[test]
fn windows_of_every_size() {
    let device = Default::default();
    let all = [
        Window::Hann,
        Window::Hamming,
        Window::Blackman,
        Window::Bartlett,
        Window::Kaiser { beta: 8.0 },
        Window::Cosine,
        Window::Gaussian { deviation: 2.0 },
        Window::GeneralCosine(vec![0.5, 0.5]),
        Window::GeneralHamming { alpha: 0.54 },
        Window::Tukey { alpha: 0.5 },
    ];
    for window in &all {
        for (size, periodic) in [(0, true), (0, false), (1, true), (1, false), (2, true), (7, false)] {
            let weights = numbers(signal::window::<Flex>(window, size, periodic, &device));
            assert_eq!(weights.len(), size, "{window:?}");
            assert!(weights.iter().all(|w| (-1e-6..=1.0 + 1e-6).contains(w)), "{window:?} {weights:?}");
            if size == 1 {
                assert_eq!(weights, [1.0], "{window:?}");
            }
        }
    }
    let bad = AnyTensor::window(&Window::Gaussian { deviation: 0.0 }, 4, true, &Device::cpu());
    assert!(bad.unwrap_err().to_string().contains("a deviation a positive one"));
}

#[test]
fn convolutions_agree() {
    let (x, h) = (vector(&[1.0, 2.0, 3.0, 4.0, 5.0]), vector(&[1.0, -1.0, 2.0]));
    for (mode, expected) in [
        (ConvolveMode::Full, vec![1.0, 1.0, 3.0, 5.0, 7.0, 3.0, 10.0]),
        (ConvolveMode::Same, vec![1.0, 3.0, 5.0, 7.0, 3.0]),
        (ConvolveMode::Valid, vec![3.0, 5.0, 7.0]),
    ] {
        assert_eq!(numbers(signal::convolve(x.clone(), h.clone(), mode)), expected, "{mode:?}");
        let fast = signal::fftconvolve(x.clone(), h.clone(), mode);
        assert!(fast.all_close(vector(&expected), None, Some(1e-5)), "{mode:?}");
    }
    let empty = signal_any(&[]).convolve(signal_any(&[1.0]), ConvolveMode::Full).unwrap_err().to_string();
    assert!(
        empty.starts_with(
            "[convolve] needs at least one element along the last axis of both: f32[0] x f32[1]"
        )
    );
}

fn signal_any(x: &[f32]) -> AnyTensor {
    vector(x).into_any()
}
