//! Chains of elementwise operations.

use super::{first, normal};
use bench_protocol::Prepared;
use bench_protocol::shapes::CHAIN;
use kiln::Backend;
use std::f64::consts::FRAC_1_SQRT_2;

pub(crate) fn gelu_chain<B: Backend>(device: &B::Device) -> Prepared {
    let x = normal::<B, 1>([CHAIN], device);
    Prepared::new(move || first(&(&x * ((&x * FRAC_1_SQRT_2).erf() + 1.0) * 0.5)))
}

pub(crate) fn fused_chain<B: Backend>(device: &B::Device) -> Prepared {
    let [a, b, c, d] = [(); 4].map(|()| normal::<B, 1>([CHAIN], device));
    Prepared::new(move || first(&((&a * &b + &c).tanh() * &d - &a).exp()))
}
