//! A fused kernel `relu(x w + bias)` in CUDA C++, with gradients, and a kernel for the processor.
//!
//! Run with `cargo run --release --features cuda --example custom-cuda-kernel`.

use kiln::backend::gpu::{CustomKernel, Dialect, register_kernel};
use kiln::tensor::{Custom, Scalar, TensorType};
use kiln::{DType, Device, Result};
use kiln_examples::linear_relu::{NAME, compare, on_host};
use std::process::ExitCode;

/// Threads of a block along each side of a tile of results.
const SIDE: usize = 16;

/// One thread computes one result. The tile of `x` and that of `w` are in shared memory.
const SOURCE: &str = r#"
extern "C" __global__ void linear_relu(const float* x, const float* w, const float* bias, float* y,
                                       unsigned rows, unsigned inner, unsigned columns) {
  const unsigned SIDE = 16;
  __shared__ float x_tile[SIDE][SIDE], w_tile[SIDE][SIDE];
  kiln_begin();
  const unsigned across = (columns + SIDE - 1) / SIDE, down = threadIdx.x / SIDE, along = threadIdx.x % SIDE;
  const unsigned row = blockIdx.x / across * SIDE + down, column = blockIdx.x % across * SIDE + along;
  float sum = 0.0f;
  for (unsigned k = 0; k < inner; k += SIDE) {
    x_tile[down][along] = row < rows && k + along < inner ? x[row * inner + k + along] : 0.0f;
    w_tile[down][along] = k + down < inner && column < columns ? w[(k + down) * columns + column] : 0.0f;
    __syncthreads();
    for (unsigned i = 0; i < SIDE; ++i) sum += x_tile[down][i] * w_tile[i][along];
    __syncthreads();
  }
  if (row < rows && column < columns) {
    const float biased = sum + bias[column];
    y[row * columns + column] = biased > 0.0f ? biased : 0.0f;
  }
}
"#;

fn main() -> ExitCode {
    kiln_examples::run(|| {
        register_kernel(NAME, Dialect::Cuda, kernel);
        compare(&Device::open("cuda", 0)?)?;
        println!("\nOn the processor:");
        let processor = Device::cpu();
        processor.register_kernel(NAME, on_host);
        compare(&processor)
    })
}

fn kernel(_: &Custom, inputs: &[TensorType], _: &[TensorType]) -> Result<CustomKernel> {
    let (rows, inner, columns) = (inputs[0].shape[0], inputs[0].shape[1], inputs[1].shape[1]);
    Ok(CustomKernel {
        source: SOURCE.into(),
        entry: "linear_relu".into(),
        blocks: rows.div_ceil(SIDE) * columns.div_ceil(SIDE),
        threads: (SIDE * SIDE) as u32,
        numbers: [rows, inner, columns].map(|size| (Scalar::Int(size as i64), DType::U32)).into(),
    })
}
