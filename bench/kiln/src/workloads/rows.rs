//! Operations along the rows of a matrix.

use super::{first, normal};
use bench_protocol::Prepared;
use bench_protocol::shapes::{POINTS, ROWS, SQUARE};
use kiln::fft::{self, FftNorm};
use kiln::module::layer_norm;
use kiln::{Backend, Tensor, activation};

pub(crate) fn softmax<B: Backend>(device: &B::Device) -> Prepared {
    let x = normal::<B, 2>(ROWS, device);
    Prepared::new(move || first(&activation::softmax(x.clone(), 1)))
}

pub(crate) fn layernorm<B: Backend>(device: &B::Device) -> Prepared {
    let x = normal::<B, 2>(ROWS, device);
    let (weight, bias) = (Tensor::<B, 1>::ones([ROWS[1]], device), Tensor::<B, 1>::zeros([ROWS[1]], device));
    Prepared::new(move || first(&layer_norm(x.clone(), Some(weight.clone()), Some(bias.clone()), 1e-5)))
}

pub(crate) fn cumsum<B: Backend>(device: &B::Device) -> Prepared {
    let x = normal::<B, 2>(ROWS, device);
    Prepared::new(move || first(&x.clone().cumsum(1)))
}

/// Distances between all rows of two matrices.
pub(crate) fn cdist<B: Backend>(device: &B::Device) -> Prepared {
    let [x, y] = [(); 2].map(|()| normal::<B, 2>(POINTS, device));
    Prepared::new(move || first(&x.clone().cdist(y.clone(), 2.0)))
}

/// Real FFT: computes real and imaginary parts.
pub(crate) fn rfft<B: Backend>(device: &B::Device) -> Prepared {
    let x = normal::<B, 2>(SQUARE, device);
    Prepared::new(move || first(&fft::rfft(x.clone(), None, -1, FftNorm::Backward).into_parts().0))
}
