//! Chains of elementwise operations.

use super::{input, repeated};
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use kiln::Backend;
use std::f64::consts::FRAC_1_SQRT_2;

/// `x (erf(x / √2) + 1) / 2`.
pub(crate) fn gelu<B: Backend>(row: &'static Row, device: &B::Device) -> Result<Prepared> {
    let x = input::<B, 1>(row, "x", device)?;
    repeated(row, move || &x * ((&x * FRAC_1_SQRT_2).erf() + 1.0) * 0.5)
}

pub(crate) fn fused_chain<B: Backend>(row: &'static Row, device: &B::Device) -> Result<Prepared> {
    let input = || input::<B, 1>(row, "x", device);
    let (a, b, c, d) = (input()?, input()?, input()?, input()?);
    repeated(row, move || ((&a * &b + &c).tanh() * &d - &a).exp())
}
