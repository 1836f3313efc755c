//! Products of square matrices.

use super::{Gpu, GpuDevice, normal, repeated};
use bench_protocol::{Prepared, Result, gpu, unknown};
use kiln::DType;

pub(crate) fn prepare(workload: &str, dtype: DType, device: &GpuDevice, rounds: usize) -> Result<Prepared> {
    let size = gpu::matmul(workload).ok_or_else(|| unknown(workload))?;
    let [a, b] = [(); 2].map(|()| normal::<Gpu, 2>([size, size], dtype, device));
    Ok(repeated(rounds, move || a.clone().matmul(b.clone())))
}
