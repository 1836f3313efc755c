//! The suite on LibTorch: values alone and under automatic differentiation, gradients, expansions, poison, methods.
//!
//! `cargo test -p kiln-suite --features libtorch --test libtorch` runs it; `KILN_SUITE_PART=2/8` in the environment leaves an eighth.

use kiln_backends::{Device, Dyn, LibTorch, LibTorchDevice};
use kiln_suite::engines::LIBTORCH;
use kiln_tensor::Tensor;

/// Whether LibTorch is there. Prints why not.
fn has_libtorch() -> bool {
    match kiln_torch::version() {
        Ok(version) => println!("LibTorch {version}"),
        Err(ref error) => println!("skipped: {error}"),
    }
    kiln_torch::version().is_ok()
}

kiln_suite::foreign_tests!(LIBTORCH if has_libtorch);

#[test]
fn the_backend_opens_by_name() {
    if !has_libtorch() {
        return;
    }
    let device = Device::open("libtorch", 0).expect("the processor is there").autodiff();
    assert_eq!(device.inner(), Device::libtorch());
    let x = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], &device).require_grad();
    let gradients = (&x * &x).sum().backward();
    assert_eq!(x.grad(&gradients).expect("it requires one").into_data(), [2.0f32, 4.0].into());
    assert_eq!(x.argmax(0).into_data(), [1i64].into(), "PyTorch counts in i64");
    let error = Device::open("libtorch", 1).expect_err("there is one processor").to_string();
    assert!(error.contains("libtorch-cuda"), "{error}");
    let missing = Tensor::<LibTorch, 1>::from_floats([1.0], &LibTorchDevice::Cuda(99)).try_into_data();
    assert!(missing.expect_err("no such GPU").to_string().contains("libtorch:cuda:99"));
}
