//! Operations bound by memory bandwidth.

use super::{input, normal, repeated};
use bench_protocol::random::Random;
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use kiln::{Backend, DType, Int, Tensor};

pub(crate) fn fused_chain<B: Backend>(row: &'static Row, device: &B::Device) -> Result<Prepared> {
    let input = || input::<B, 1>(row, "x", device);
    let (a, b, c, d) = (input()?, input()?, input()?, input()?);
    repeated(row, move || ((&a * &b + &c).tanh() * &d - &a).exp())
}

/// Rows of a table.
pub(crate) fn take<B: Backend>(row: &'static Row, device: &B::Device) -> Result<Prepared> {
    let table = input::<B, 2>(row, "table", device)?;
    let rows = indices::<B>(row.size("count")?, table.dims()[0], device);
    repeated(row, move || table.clone().select(0, rows.clone()))
}

pub(crate) fn scatter_add<B: Backend>(row: &'static Row, device: &B::Device) -> Result<Prepared> {
    let (count, places) = (row.size("count")?, row.size("places")?);
    let indices = indices::<B>(count, places, device);
    let values = normal::<B, 1>([count], DType::F32, device);
    repeated(row, move || {
        let sums = Tensor::<B, 1>::zeros([places], &values.device());
        sums.scatter(0, indices.clone(), values.clone())
    })
}

/// Random numbers from 0 up to `below`.
pub(super) fn indices<B: Backend>(count: usize, below: usize, device: &B::Device) -> Tensor<B, 1, Int> {
    Tensor::from_data(Random::new(7).integers(count, below), device)
}
