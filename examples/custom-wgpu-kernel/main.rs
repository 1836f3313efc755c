//! A fused kernel `relu(x w + bias)` in WGSL for every GPU that wgpu reaches, with gradients, and a kernel for the
//! processor.
//!
//! Run with `cargo run --release --features wgpu --example custom-wgpu-kernel`.

use kiln::backend::gpu::{CustomKernel, Dialect, register_kernel};
use kiln::tensor::{Custom, TensorType};
use kiln::{Device, Result};
use kiln_examples::linear_relu::{NAME, compare, on_host};
use std::process::ExitCode;

/// Threads of a workgroup along each side of a tile of results.
const SIDE: usize = 16;

fn main() -> ExitCode {
    kiln_examples::run(|| {
        register_kernel(NAME, Dialect::Wgsl, kernel);
        compare(&Device::open("wgpu", 0)?)?;
        println!("\nOn the processor:");
        let processor = Device::cpu();
        processor.register_kernel(NAME, on_host);
        compare(&processor)
    })
}

/// One thread computes one result. The tile of `x` and that of `w` are in workgroup memory.
fn kernel(_: &Custom, inputs: &[TensorType], _: &[TensorType]) -> Result<CustomKernel> {
    let (rows, inner, columns) = (inputs[0].shape[0], inputs[0].shape[1], inputs[1].shape[1]);
    let across = columns.div_ceil(SIDE);
    let source = format!(
        "const ROWS = {rows}u;
const INNER = {inner}u;
const COLUMNS = {columns}u;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
var<workgroup> x_tile: array<array<f32, {SIDE}>, {SIDE}>;
var<workgroup> w_tile: array<array<f32, {SIDE}>, {SIDE}>;

@compute @workgroup_size({threads})
fn linear_relu(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
               @builtin(local_invocation_index) thread: u32) {{
  let block = group.y * groups.x + group.x;
  let down = thread / {SIDE}u;
  let along = thread % {SIDE}u;
  let row = block / {across}u * {SIDE}u + down;
  let column = block % {across}u * {SIDE}u + along;
  var sum = 0.0;
  for (var k = 0u; k < INNER; k += {SIDE}u) {{
    x_tile[down][along] = select(0.0, x[row * INNER + k + along], row < ROWS && k + along < INNER);
    w_tile[down][along] = select(0.0, w[(k + down) * COLUMNS + column], k + down < INNER && column < COLUMNS);
    workgroupBarrier();
    for (var i = 0u; i < {SIDE}u; i++) {{
      sum += x_tile[down][i] * w_tile[i][along];
    }}
    workgroupBarrier();
  }}
  if (row < ROWS && column < COLUMNS) {{
    y[row * COLUMNS + column] = max(sum + bias[column], 0.0);
  }}
}}
",
        threads = SIDE * SIDE,
    );
    Ok(CustomKernel {
        source,
        entry: "linear_relu".into(),
        blocks: rows.div_ceil(SIDE) * across,
        threads: (SIDE * SIDE) as u32,
        numbers: Vec::new(),
    })
}
