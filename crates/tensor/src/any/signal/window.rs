//! Window functions.

use super::super::data::check_table;
use crate::{AnyTensor, Error, Result, Stack, TensorData};
use alloc::format;
use alloc::vec::Vec;
use core::f64::consts::PI;

/// A window function: weights that taper a frame of a signal at its ends. With `N` weights and `t = i / (N - 1)`:
#[derive(Clone, Debug, PartialEq)]
pub enum Window {
    /// `sin²(πt)`.
    Hann,
    /// `0.54 - 0.46 cos(2πt)`.
    Hamming,
    /// `0.42 - 0.5 cos(2πt) + 0.08 cos(4πt)`.
    Blackman,
    /// A triangle, `1 - |2t - 1|`.
    Bartlett,
    /// `I₀(β √(1 - (2t - 1)²)) / I₀(β)`, with the modified Bessel function of order 0.
    Kaiser {
        /// The shape parameter β; a greater value has a narrower window.
        beta: f64,
    },
    /// `sin(π (i + 1/2) / N)`.
    Cosine,
    /// `exp(-(i - (N - 1) / 2)² / 2σ²)`.
    Gaussian {
        /// The standard deviation σ, in elements.
        deviation: f64,
    },
    /// `Σ (-1)^j a[j] cos(2πjt)`.
    GeneralCosine(Vec<f64>),
    /// `α - (1 - α) cos(2πt)`.
    GeneralHamming {
        /// The constant term α.
        alpha: f64,
    },
    /// A flat window, with the halves of a Hann window of `α (N - 1)` elements at both ends.
    Tukey {
        /// The fraction that is tapered: with 0 the weights are 1, with 1 it is a Hann window.
        alpha: f64,
    },
}

impl AnyTensor {
    /// Returns the weights of a window, `[size]`, in the default float dtype. See
    /// [`signal::window`](crate::signal::window).
    ///
    /// # Errors
    /// When a parameter is not finite, or a standard deviation is not positive.
    pub fn window(
        window: &Window,
        size: usize,
        periodic: bool,
        device: &impl AsRef<Stack>,
    ) -> Result<AnyTensor> {
        window.check()?;
        check_table("window", &[size])?;
        let stack = device.as_ref();
        let weights = TensorData::new(window.weights(size, periodic), [size])?;
        Ok(AnyTensor::from_data(weights.convert(stack.float_dtype()), stack))
    }
}

impl Window {
    fn check(&self) -> Result<()> {
        let (name, parameter) = match self {
            Window::Hann | Window::Hamming | Window::Blackman | Window::Bartlett | Window::Cosine => {
                return Ok(());
            }
            Window::Kaiser { beta } => ("beta", *beta),
            Window::Gaussian { deviation } if *deviation <= 0.0 => ("deviation", f64::NAN),
            Window::Gaussian { deviation } => ("deviation", *deviation),
            Window::GeneralCosine(terms) => ("a", terms.iter().sum()),
            Window::GeneralHamming { alpha } | Window::Tukey { alpha } => ("alpha", *alpha),
        };
        if parameter.is_finite() {
            return Ok(());
        }
        Err(Error::value(
            "window",
            format!("{self:?}: {name} must be a finite number, a deviation a positive one"),
        ))
    }

    /// Returns the weights. A periodic window is the first `size` weights of the symmetric window of length `size + 1`.
    fn weights(&self, size: usize, periodic: bool) -> Vec<f64> {
        let whole = if periodic { size + 1 } else { size };
        (0..size).map(|i| if size == 1 { 1.0 } else { self.weight(i as f64, whole as f64) }).collect()
    }

    fn weight(&self, i: f64, count: f64) -> f64 {
        let t = i / (count - 1.0);
        let cosine = |j: f64| libm::cos(2.0 * PI * j * t);
        match self {
            Window::Hann => 0.5 - 0.5 * cosine(1.0),
            Window::Hamming => 0.54 - 0.46 * cosine(1.0),
            Window::Blackman => 0.42 - 0.5 * cosine(1.0) + 0.08 * cosine(2.0),
            Window::Bartlett => 1.0 - libm::fabs(2.0 * t - 1.0),
            Window::Kaiser { beta } => {
                let x = 2.0 * t - 1.0;
                let (inner, outer) =
                    (libm::fabs(*beta) * libm::sqrt((1.0 - x * x).max(0.0)), libm::fabs(*beta));
                scaled_bessel_i0(inner) / scaled_bessel_i0(outer) * libm::exp(inner - outer)
            }
            Window::Cosine => libm::sin(PI * (i + 0.5) / count),
            Window::Gaussian { deviation } => {
                let distance = (i - (count - 1.0) / 2.0) / deviation;
                libm::exp(-0.5 * distance * distance)
            }
            Window::GeneralCosine(terms) => {
                let term = |(j, a): (usize, &f64)| {
                    if j % 2 == 0 { a * cosine(j as f64) } else { -a * cosine(j as f64) }
                };
                terms.iter().enumerate().map(term).sum()
            }
            Window::GeneralHamming { alpha } => alpha - (1.0 - alpha) * cosine(1.0),
            Window::Tukey { alpha } => tukey(t, *alpha),
        }
    }
}

fn tukey(t: f64, alpha: f64) -> f64 {
    let from_end = t.min(1.0 - t);
    if alpha <= 0.0 || from_end >= alpha.min(1.0) / 2.0 {
        return 1.0;
    }
    0.5 - 0.5 * libm::cos(2.0 * PI * from_end / alpha.min(1.0))
}

/// Computes `e^(-x) I₀(x)` for the modified Bessel function of order 0 and `x >= 0`, without overflow. For small `x` it
/// is the power series `Σ ((x/2)^k / k!)²` (<https://dlmf.nist.gov/10.25.E2>), whose terms are all positive. For large
/// `x` it is the asymptotic expansion (<https://dlmf.nist.gov/10.40.E1>), whose terms fall below the rounding error
/// before they grow again.
fn scaled_bessel_i0(x: f64) -> f64 {
    let large = x > 30.0;
    let (mut term, mut sum, mut k) = (1.0f64, 1.0f64, 1.0f64);
    while term > sum * 1e-17 {
        let odd = 2.0 * k - 1.0;
        term *= if large { odd * odd / (k * 8.0 * x) } else { x * x / (4.0 * k * k) };
        sum += term;
        k += 1.0;
    }
    if large { sum / libm::sqrt(2.0 * PI * x) } else { sum * libm::exp(-x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bessel_functions_agree_with_tables() {
        // scipy.special.i0e.
        for (x, expected) in [
            (0.0, 1.0),
            (1.0, 0.46575960759364043),
            (12.0, 0.11642622121344044),
            (29.9, 0.07326921904600191),
            (30.1, 0.07302329413106094),
            (1000.0, 0.012617240455891257),
        ] {
            let found = scaled_bessel_i0(x);
            assert!((found / expected - 1.0).abs() < 1e-14, "{x}: {found}");
        }
    }

    #[test]
    fn narrow_kaiser_windows_do_not_overflow() {
        let weights = Window::Kaiser { beta: 5000.0 }.weights(5, false);
        assert_eq!((weights[0], weights[2]), (0.0, 1.0));
    }
}
