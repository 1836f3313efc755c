//! Matmuls.

use super::{input, repeated};
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use kiln::Backend;

pub(crate) fn prepare<B: Backend, const D: usize>(row: &'static Row, device: &B::Device) -> Result<Prepared> {
    let (a, b) = (input::<B, D>(row, "a", device)?, input::<B, D>(row, "b", device)?);
    repeated(row, move || a.clone().matmul(b.clone()))
}
