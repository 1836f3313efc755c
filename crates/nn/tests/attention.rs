//! Attention and transformers: caches, masks, positions, modes and errors. The suite compares them with PyTorch.

mod behaviour;
mod caches;
mod positions;

use kiln_backends::Flex;
use kiln_tensor::{Autodiff, Backend, Distribution, Tensor};

type B = Autodiff<Flex>;

/// Random values of an inference backend.
fn random<const D: usize>(shape: [usize; D]) -> Tensor<Flex, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &Default::default())
}

#[track_caller]
fn assert_near<B: Backend, const D: usize>(got: Tensor<B, D>, expected: Tensor<B, D>) {
    assert_eq!(got.dims(), expected.dims());
    let distance = (got - expected).abs().max().into_scalar::<f64>();
    assert!(distance < 2e-5, "the results differ by {distance}");
}

/// The message of the panic of `f`.
fn message(f: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).expect_err("no panic");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().expect("a message").to_string(),
    }
}
