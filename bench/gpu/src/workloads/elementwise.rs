//! Chains of operations on elements.

use super::{Gpu, GpuDevice, first, normal, repeated};
use bench_protocol::Prepared;
use bench_protocol::gpu::ADDITIONS;
use kiln::DType;
use std::f64::consts::FRAC_1_SQRT_2;

/// `x (erf(x / √2) + 1) / 2`.
pub(crate) fn gelu(elements: usize, dtype: DType, device: &GpuDevice, rounds: usize) -> Prepared {
    let x = normal::<Gpu, 1>([elements], dtype, device);
    repeated(rounds, move || &x * ((&x * FRAC_1_SQRT_2).erf() + 1.0) * 0.5)
}

/// The overhead of an operation: chained additions of one element.
pub(crate) fn additions(device: &GpuDevice) -> Prepared {
    let x = normal::<Gpu, 1>([1], DType::F32, device);
    let repeat = move || {
        let mut y = x.clone();
        for _ in 0..ADDITIONS {
            y = y + &x;
        }
        first(y.as_any())
    };
    Prepared::new(repeat).with_operations(ADDITIONS)
}
