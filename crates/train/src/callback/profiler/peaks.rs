//! The peaks of a device, by measurement.

use std::time::Instant;

use kiln_ir::block_on;
use kiln_tensor::{AnyTensor, DType, Stack, TensorType};

use crate::error::Result;

/// The greatest rates of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Arithmetic operations per second.
    pub flops_per_second: f64,
    /// Bytes per second, read and written.
    pub bytes_per_second: f64,
}

/// The size of a measurement: it grows until one run takes long enough.
struct Sizes {
    first: usize,
    factor: usize,
    last: usize,
    /// Seconds.
    enough: f64,
}

/// The side of the matrices.
const MATMUL: Sizes = Sizes { first: 512, factor: 2, last: 8192, enough: 0.01 };
/// The elements of the vectors: more than caches hold.
const VECTOR: Sizes = Sizes { first: 1 << 22, factor: 4, last: 1 << 26, enough: 0.005 };
/// Runs of which the median counts.
const RUNS: usize = 5;

/// Measures the peaks of a device by matmuls and additions of `f32`. Mixed precision applies to them as to the model.
/// `None` where the device has too little memory.
pub(super) fn measure(stack: &Stack) -> Result<Option<Peaks>> {
    let square = |n: usize| AnyTensor::iota(TensorType::new([n, n], DType::F32), 1, stack);
    let matmul = fastest(stack, &MATMUL, square, |a| a.clone().matmul(a.clone()))?;
    let line = |n: usize| AnyTensor::iota(TensorType::new([n], DType::F32), 0, stack);
    let add = fastest(stack, &VECTOR, line, |x| x.clone().add_scalar(1.0))?;
    Ok(matmul.zip(add).map(|((n, matmul), (len, add))| Peaks {
        flops_per_second: 2.0 * (n as f64).powi(3) / matmul,
        bytes_per_second: 8.0 * len as f64 / add,
    }))
}

/// The greatest size that the device has memory for, or that takes long enough, with the median of its times in
/// seconds.
fn fastest(
    stack: &Stack,
    sizes: &Sizes,
    input: impl Fn(usize) -> Result<AnyTensor, kiln_tensor::Error>,
    run: impl Fn(&AnyTensor) -> Result<AnyTensor, kiln_tensor::Error>,
) -> Result<Option<(usize, f64)>> {
    let mut found = None;
    let mut size = sizes.first;
    while size <= sizes.last {
        let input = input(size)?;
        // The first run compiles kernels and allocates.
        let Some(_) = seconds(stack, &input, &run)? else { break };
        let Some(once) = seconds(stack, &input, &run)? else { break };
        found = Some((size, once));
        if once >= sizes.enough || size.saturating_mul(sizes.factor) > sizes.last {
            let mut times = vec![once];
            for _ in 1..RUNS {
                times.extend(seconds(stack, &input, &run)?);
            }
            times.sort_by(f64::total_cmp);
            found = Some((size, times[times.len() / 2]));
            break;
        }
        size *= sizes.factor;
    }
    Ok(found)
}

/// The time of one run. `None` where it failed.
fn seconds(
    stack: &Stack,
    input: &AnyTensor,
    run: impl Fn(&AnyTensor) -> Result<AnyTensor, kiln_tensor::Error>,
) -> Result<Option<f64>> {
    block_on(stack.engine().sync())?;
    let started = Instant::now();
    let result = run(input)?;
    block_on(stack.engine().sync())?;
    let seconds = started.elapsed().as_secs_f64();
    let has_failed = matches!(result.outcome(), Some(Err(_)));
    Ok((!has_failed && seconds > 0.0).then_some(seconds))
}
