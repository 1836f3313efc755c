//! Matmuls.

use super::{first, normal};
use bench_protocol::{Prepared, Result, shapes, unknown};
use kiln::{Backend, Tensor};

pub(crate) fn prepare<B: Backend>(workload: &str, device: &B::Device) -> Result<Prepared> {
    let (a, b) = shapes::matmul(workload).ok_or_else(|| unknown(workload))?;
    let (a, b) = (normal::<B, 3>(a, device), normal::<B, 3>(b, device));
    if a.dims()[0] > 1 {
        return Ok(Prepared::new(move || first(&a.clone().matmul(b.clone()))));
    }
    let matrix = |x: Tensor<B, 3>| -> Tensor<B, 2> {
        let [_, rows, columns] = x.dims();
        x.reshape([rows, columns])
    };
    let (a, b) = (matrix(a), matrix(b));
    Ok(Prepared::new(move || first(&a.clone().matmul(b.clone()))))
}
