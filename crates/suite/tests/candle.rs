//! The suite on candle-core: values alone and under automatic differentiation, gradients, expansions, poison, methods.
//!
//! `cargo test -p kiln-suite --features candle --test candle` runs it; `KILN_SUITE_PART=2/8` in the environment leaves an eighth.

use kiln_backends::{Candle, CandleDevice, Device, Dyn};
use kiln_suite::engines::CANDLE;
use kiln_tensor::Tensor;

fn always() -> bool {
    true
}

kiln_suite::foreign_tests!(CANDLE if always);

#[test]
fn the_backend_opens_by_name() {
    let device = Device::open("candle", 0).expect("the processor is there").autodiff();
    assert_eq!(device.inner(), Device::candle());
    let x = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], &device).require_grad();
    let gradients = (&x * &x).sum().backward();
    assert_eq!(x.grad(&gradients).expect("it requires one").into_data(), [2.0f32, 4.0].into());
    assert_eq!(x.argmax(0).into_data(), [1i64].into(), "candle counts in i64");
    let error = Device::open("candle", 1).expect_err("there is one processor").to_string();
    assert!(error.contains("candle-cuda"), "{error}");
    let missing = Tensor::<Candle, 1>::from_floats([1.0], &CandleDevice::Metal(99)).try_into_data();
    assert!(missing.expect_err("no such GPU").to_string().contains("candle:metal:99"));
}
