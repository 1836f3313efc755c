//! Layers that are random in training: dropout of elements, channels and paths, and noise.

mod alpha;
mod channels;
mod elements;
mod noise;
mod path;

pub use alpha::{AlphaDropout, AlphaDropoutConfig, FeatureAlphaDropout, FeatureAlphaDropoutConfig};
pub use channels::{Dropout1d, Dropout1dConfig, Dropout2d, Dropout2dConfig, Dropout3d, Dropout3dConfig};
pub use elements::{Dropout, DropoutConfig};
pub use noise::{GaussianNoise, GaussianNoiseConfig};
pub use path::{DropPath, DropPathConfig};

use kiln_tensor::{AnyTensor, Backend, Distribution, Tensor, TensorType};

#[track_caller]
fn check_probability(op: &str, prob: f64) {
    assert!((0.0..=1.0).contains(&prob), "[{op}] the probability {prob} is not between 0 and 1");
}

/// Returns a random mask that broadcasts over all but the first `axes` dimensions of `x`: 1 with probability `keep`, 0
/// otherwise. It is at least `f32`, in which factors of `x` are not rounded to 16 bits.
#[track_caller]
fn mask<B: Backend, const D: usize>(x: &Tensor<B, D>, axes: usize, keep: f64) -> Tensor<B, D> {
    let mut shape = x.dims();
    shape[axes.min(D)..].fill(1);
    let ty = TensorType::new(shape, x.dtype().accumulator());
    match AnyTensor::random(ty, Distribution::Bernoulli(keep), x.as_any().stack()) {
        Ok(mask) => Tensor::from_any(mask),
        Err(error) => panic!("{error}"),
    }
}

/// Computes `x * factor`, in the dtype of `x`, from a factor that is at least `f32`.
#[track_caller]
fn scaled<B: Backend, const D: usize>(x: Tensor<B, D>, factor: Tensor<B, D>) -> Tensor<B, D> {
    let dtype = x.dtype();
    (x.cast(factor.dtype()) * factor).cast(dtype)
}
