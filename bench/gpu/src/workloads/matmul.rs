//! Products of square matrices.

use super::{Gpu, GpuDevice, normal, repeated};
use bench_protocol::{Prepared, Result};
use kiln::float8::{self, Float8};
use kiln::{DType, Tensor};

pub(crate) fn prepare(size: usize, dtype: DType, device: &GpuDevice, rounds: usize) -> Prepared {
    let [a, b] = [(); 2].map(|()| normal::<Gpu, 2>([size, size], dtype, device));
    repeated(rounds, move || a.clone().matmul(b.clone()))
}

/// Of 8-bit floats that are quantised before, the second a weight `[out, in]`; the result is 16 bits.
pub(crate) fn prepare_float8(size: usize, device: &GpuDevice, rounds: usize) -> Result<Prepared> {
    let [a, b] = [(); 2].map(|()| {
        let x = normal::<Gpu, 2>([size, size], DType::BF16, device);
        float8::quantize(x, Float8::E4M3)
    });
    let weight = b.transpose()?;
    let product = move || a.clone().matmul(weight.clone(), DType::BF16).map(Tensor::<Gpu, 2>::from_any);
    Ok(repeated(rounds, move || product().unwrap_or_else(|error| panic!("{error}"))))
}
