//! Complex tensors, Fourier transforms, signals. A complex operand is a pair of real and imaginary parts.

use super::{Method, away, normal, one, positive, uniform};
use kiln_tensor::fft::{Dct, FftNorm};
use kiln_tensor::signal::{ConvolveMode, StftOptions, Window};
use kiln_tensor::{AnyComplex, AnyTensor, PadMode, Result};

const FROM_NOTHING: &str = "made from nothing";
const LONG_SUMS: &str = "sums of many terms keep few bits in 16";

pub(super) fn rows() -> Vec<Method> {
    [complex(), transforms(), real_transforms(), frequencies(), windows(), short_time()].concat()
}

/// The complex operand at an index.
fn pair(x: &[AnyTensor], place: usize) -> Result<AnyComplex> {
    AnyComplex::new(x[2 * place].clone(), x[2 * place + 1].clone())
}

fn parts(x: Result<AnyComplex>) -> Result<Vec<AnyTensor>> {
    x.map(|x| {
        let (re, im) = x.into_parts();
        vec![re, im]
    })
}

fn complex() -> Vec<Method> {
    let pairs = [normal(&[2, 3]), normal(&[2, 3]), away(&[3]), away(&[3])];
    vec![
        Method::new("complex_add", |x| parts(pair(x, 0)?.add(pair(x, 1)?))).on(&pairs),
        Method::new("complex_sub", |x| parts(pair(x, 0)?.sub(pair(x, 1)?))).on(&pairs),
        Method::new("complex_mul", |x| parts(pair(x, 0)?.mul(pair(x, 1)?))).on(&pairs),
        Method::new("complex_div", |x| parts(pair(x, 0)?.div(pair(x, 1)?))).on(&pairs).within(64.0),
        Method::new("complex_matmul", |x| parts(pair(x, 0)?.matmul(pair(x, 1)?))).on(&[
            normal(&[2, 3]),
            normal(&[2, 3]),
            normal(&[3, 2]),
            normal(&[3, 2]),
        ]),
        Method::new("complex_mul_scalar", |x| parts(pair(x, 0)?.mul_scalar(-2.5))).on(&pairs[..2]),
        Method::new("complex_conj", |x| parts(pair(x, 0)?.conj())).on(&pairs[..2]),
        Method::new("complex_exp", |x| parts(pair(x, 0)?.exp())).on(&pairs[..2]).within(64.0),
        Method::new("complex_abs", |x| one(pair(x, 0)?.abs()))
            .on(&pairs[2..])
            .on(&[normal(&[0]), normal(&[0])]),
        Method::new("complex_angle", |x| one(pair(x, 0)?.angle())).on(&pairs[2..]),
        Method::new("complex_from_polar", |x| parts(AnyComplex::from_polar(x[0].clone(), x[1].clone())))
            .on(&[positive(&[2, 3]), normal(&[2, 3])]),
        Method::new("complex_from_real", |x| parts(AnyComplex::from_real(x[0].clone())))
            .on(&[normal(&[2, 3])]),
        Method::new("complex_from_interleaved", |x| parts(AnyComplex::from_interleaved(x[0].clone())))
            .on(&[normal(&[3, 2])]),
        Method::new("complex_into_interleaved", |x| one(pair(x, 0)?.into_interleaved())).on(&pairs[..2]),
    ]
}

fn transforms() -> Vec<Method> {
    use FftNorm::{Backward, Forward, Ortho};
    let lines = [normal(&[2, 6]), normal(&[2, 6])];
    let blocks = [normal(&[2, 3, 4]), normal(&[2, 3, 4])];
    let rows = vec![
        Method::new("fft", |x| parts(pair(x, 0)?.fft(None, -1, Backward)))
            .on(&lines)
            .on(&[normal(&[5]), normal(&[5])])
            .on(&[normal(&[0, 4]), normal(&[0, 4])]),
        Method::new("fft", |x| parts(pair(x, 0)?.fft(8, 0, Ortho))).variant("padded").on(&lines),
        Method::new("ifft", |x| parts(pair(x, 0)?.ifft(5, 1, Backward))).on(&lines),
        Method::new("fftn", |x| parts(pair(x, 0)?.fftn(None, [0, 2], Backward))).on(&blocks),
        Method::new("ifftn", |x| parts(pair(x, 0)?.ifftn(Some(&[4, 3]), [-2, -1], Forward))).on(&blocks),
        Method::new("irfft", |x| one(pair(x, 0)?.irfft(None, -1, Backward))).on(&lines),
        Method::new("irfft", |x| one(pair(x, 0)?.irfft(7, -1, Ortho))).variant("odd").on(&lines),
        Method::new("irfftn", |x| one(pair(x, 0)?.irfftn(None, [1, 2], Backward))).on(&blocks),
        Method::new("hfft", |x| one(pair(x, 0)?.hfft(None, -1, Backward))).on(&lines),
        Method::new("hfft", |x| one(pair(x, 0)?.hfft(7, -1, Forward))).variant("odd").on(&lines),
    ];
    rows.into_iter().map(|row| row.within(64.0).no_half(LONG_SUMS)).collect()
}

fn real_transforms() -> Vec<Method> {
    use FftNorm::{Backward, Ortho};
    let rows = vec![
        Method::new("rfft", |x| parts(x[0].clone().rfft(None, -1, Backward)))
            .on(&[normal(&[2, 6])])
            .on(&[normal(&[7])])
            .on(&[normal(&[1])]),
        Method::new("rfft", |x| parts(x[0].clone().rfft(8, 0, Ortho)))
            .variant("padded")
            .on(&[normal(&[5, 2])]),
        Method::new("rfftn", |x| parts(x[0].clone().rfftn(None, [0, 1], Backward))).on(&[normal(&[3, 4])]),
        Method::new("ihfft", |x| parts(x[0].clone().ihfft(None, -1, Backward))).on(&[normal(&[2, 6])]),
        Method::new("dct", |x| one(x[0].clone().dct(Dct::Two, -1, false)))
            .on(&[normal(&[2, 5])])
            .on(&[normal(&[1])]),
        Method::new("dct", |x| one(x[0].clone().dct(Dct::Two, 0, true)))
            .variant("two orthogonal")
            .on(&[normal(&[4, 2])]),
        Method::new("dct", |x| one(x[0].clone().dct(Dct::Three, -1, false)))
            .variant("three")
            .on(&[normal(&[2, 5])]),
        Method::new("dct", |x| one(x[0].clone().dct(Dct::Three, -1, true)))
            .variant("three orthogonal")
            .on(&[normal(&[2, 4])]),
    ];
    rows.into_iter().map(|row| row.within(64.0).no_half(LONG_SUMS)).collect()
}

fn frequencies() -> Vec<Method> {
    vec![
        Method::new("fftfreq", |x| one(AnyTensor::fftfreq(5, 0.5, x[0].stack())))
            .on(&[normal(&[1])])
            .no_gradient(FROM_NOTHING),
        Method::new("rfftfreq", |x| one(AnyTensor::rfftfreq(6, 0.5, x[0].stack())))
            .on(&[normal(&[1])])
            .no_gradient(FROM_NOTHING),
        Method::new("fftshift", |x| one(x[0].clone().fftshift([0, -1])))
            .on(&[normal(&[5, 4])])
            .on(&[normal(&[0, 1])]),
        Method::new("ifftshift", |x| one(x[0].clone().ifftshift([0, -1]))).on(&[normal(&[5, 4])]),
    ]
}

fn windows() -> Vec<Method> {
    macro_rules! row {
        ($variant:literal, $window:expr, $size:literal, $periodic:literal) => {
            Method::new("window", |x| one(AnyTensor::window(&$window, $size, $periodic, x[0].stack())))
                .variant($variant)
                .on(&[normal(&[1])])
                .no_gradient(FROM_NOTHING)
        };
    }
    vec![
        row!("hann", Window::Hann, 6, true),
        row!("hann symmetric", Window::Hann, 5, false),
        row!("one", Window::Hann, 1, true),
        row!("hamming", Window::Hamming, 6, true),
        row!("blackman", Window::Blackman, 6, false),
        row!("bartlett", Window::Bartlett, 6, true),
        row!("kaiser", Window::Kaiser { beta: 12.0 }, 6, true),
        row!("cosine", Window::Cosine, 6, true),
        row!("gaussian", Window::Gaussian { deviation: 1.5 }, 6, false),
        row!("general cosine", Window::GeneralCosine(vec![0.4, 0.3, 0.2, 0.1]), 6, false),
        row!("general hamming", Window::GeneralHamming { alpha: 0.6 }, 6, true),
        row!("tukey", Window::Tukey { alpha: 0.6 }, 9, false),
    ]
}

fn plain(points: usize) -> StftOptions {
    StftOptions { hop: 2, ..StftOptions::new(points) }
}

fn short_time() -> Vec<Method> {
    let rows = vec![
        Method::new("stft", |x| parts(x[0].clone().stft(Some(x[1].clone()), &plain(4))))
            .on(&[normal(&[2, 9]), positive(&[4])])
            .on(&[normal(&[8]), positive(&[4])]),
        Method::new("stft", |x| {
            let options =
                StftOptions { center: false, onesided: false, normalized: true, hop: 3, ..plain(4) };
            parts(x[0].clone().stft(None, &options))
        })
        .variant("whole")
        .on(&[normal(&[2, 9])]),
        Method::new("stft", |x| {
            let options = StftOptions { pad: PadMode::Circular, window_length: 3, ..plain(5) };
            parts(x[0].clone().stft(Some(x[1].clone()), &options))
        })
        .variant("circular")
        .on(&[normal(&[9]), positive(&[3])]),
        Method::new("stft", |x| {
            parts(x[0].clone().stft(None, &StftOptions { pad: PadMode::Edge, ..plain(4) }))
        })
        .variant("edge")
        .on(&[normal(&[6])]),
        Method::new("stft", |x| {
            parts(x[0].clone().stft(None, &StftOptions { pad: PadMode::from(0), ..plain(4) }))
        })
        .variant("constant")
        .on(&[normal(&[6])]),
        Method::new("istft", |x| one(pair(x, 0)?.istft(Some(x[2].clone()), None, &plain(4)))).on(&[
            normal(&[2, 3, 4]),
            normal(&[2, 3, 4]),
            positive(&[4]),
        ]),
        Method::new("istft", |x| {
            let options = StftOptions { center: false, onesided: false, normalized: true, ..plain(4) };
            one(pair(x, 0)?.istft(None, Some(8), &options))
        })
        .variant("whole")
        .on(&[normal(&[4, 4]), normal(&[4, 4])]),
        Method::new("convolve", |x| one(x[0].clone().convolve(x[1].clone(), ConvolveMode::Full)))
            .on(&[normal(&[5]), normal(&[3])])
            .on(&[normal(&[2, 5]), normal(&[1, 3])]),
        Method::new("convolve", |x| one(x[0].clone().convolve(x[1].clone(), ConvolveMode::Same)))
            .variant("same")
            .on(&[normal(&[5]), normal(&[4])]),
        Method::new("convolve", |x| one(x[0].clone().convolve(x[1].clone(), ConvolveMode::Valid)))
            .variant("valid")
            .on(&[normal(&[3]), normal(&[5])]),
        Method::new("fftconvolve", |x| one(x[0].clone().fftconvolve(x[1].clone(), ConvolveMode::Full)))
            .on(&[normal(&[5]), normal(&[3])])
            .on(&[uniform(-1.0, 1.0, &[2, 5]), uniform(-1.0, 1.0, &[1, 3])]),
    ];
    rows.into_iter().map(|row| row.within(64.0).no_half(LONG_SUMS)).collect()
}
