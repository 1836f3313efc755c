//! Matmuls by cooperative matrices against the reference engine. On a machine without an adapter that has them, the tests
//! print the reason and pass.

use kiln_gpu::driver::Driver;
use kiln_ir::{DType, Engine, TensorData, Var, block_on};
use kiln_suite::engines::REFERENCE;
use kiln_wgpu::{Api, Wgpu, WgpuDevice, WgpuOptions};
use std::sync::Arc;

/// The extents of matrices: below, at and beyond the edges of tiles.
const EXTENTS: [usize; 7] = [1, 15, 16, 17, 64, 100, 257];

/// Opens the default device, unless it has no cooperative matrices for factors of that dtype.
fn opened(factors: DType) -> Option<Arc<Wgpu>> {
    let options = WgpuOptions::default().with_cooperative_matrices(true);
    let engine = match kiln_wgpu::shared_with(WgpuDevice::Default, Api::Auto, &options) {
        Ok(engine) => engine,
        Err(reason) => {
            println!("skipped: no adapter: {reason}");
            return None;
        }
    };
    let info = engine.driver().info();
    println!("{}: {:?}", info.model, info.cooperative_matrices);
    let has_matrices = info.cooperative_matrices.iter().any(|matrix| matrix.factors == factors);
    if !has_matrices {
        println!("skipped: {} has no cooperative matrices of {}", info.model, factors.name());
        return None;
    }
    Some(engine)
}

/// Numbers from -1 to 1 without a pattern, in a shape and a dtype.
fn numbers(seed: usize, shape: &[usize], dtype: DType) -> TensorData {
    let len: usize = shape.iter().product();
    let number = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0;
    TensorData::new((0..len).map(number).collect(), shape).unwrap().convert(dtype)
}

/// A tensor on an engine; with `transposed`, one whose last two axes are swapped.
fn tensor<'e>(engine: &'e dyn Engine, data: &TensorData, transposed: bool) -> Var<'e> {
    let x = Var::new(engine, engine.write(data.clone()));
    if transposed { x.transpose() } else { x }
}

/// The elements of the matmul of two tensors.
fn product(engine: &dyn Engine, factors: [(&TensorData, bool); 2]) -> Vec<f32> {
    let [a, b] = factors.map(|(data, transposed)| tensor(engine, data, transposed));
    let value = a.matmul(&b).into_value();
    block_on(engine.read(value)).unwrap().convert(DType::F32).to_vec()
}

/// Compares the engines on matmuls of that size.
fn assert_close(gpu: &Wgpu, batch: usize, [rows, columns, inner]: [usize; 3], dtype: DType) {
    let reference = (REFERENCE.open)();
    for transposed in [[false, false], [true, false], [false, true], [true, true]] {
        let shape = |[down, across]: [usize; 2], transposed: bool| {
            if transposed { [batch, across, down] } else { [batch, down, across] }
        };
        let a = numbers(1, &shape([rows, inner], transposed[0]), dtype);
        let b = numbers(2, &shape([inner, columns], transposed[1]), dtype);
        let factors = [(&a, transposed[0]), (&b, transposed[1])];
        let found = product(gpu, factors);
        let expected = product(&*reference, factors);
        // The error of sums in f32, and of rounding the result.
        let rounding = if dtype == DType::F16 { 2e-3 } else { 1e-5 };
        for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let tolerance = rounding * expected.abs() + 1e-6 * inner as f32 + rounding * 1e-2;
            assert!(
                (found - expected).abs() <= tolerance,
                "{batch} x {rows} x {columns} x {inner}, {transposed:?}, element {place}: {found}, not {expected}"
            );
        }
        assert_eq!(found.len(), batch * rows * columns);
    }
}

/// All pairs of rows and columns with one inner extent, and all inner extents with one pair.
fn assert_all_close(dtype: DType) {
    let Some(gpu) = opened(dtype) else { return };
    for rows in EXTENTS {
        for columns in EXTENTS {
            assert_close(&gpu, 1, [rows, columns, 40], dtype);
        }
    }
    for inner in EXTENTS {
        assert_close(&gpu, 1, [100, 64, inner], dtype);
    }
}

#[test]
fn matmuls_of_f16_agree_with_the_reference() {
    assert_all_close(DType::F16);
}

#[test]
fn matmuls_of_f32_agree_with_the_reference() {
    assert_all_close(DType::F32);
}

#[test]
fn batches_and_large_tiles_agree_with_the_reference() {
    let Some(gpu) = opened(DType::F16) else { return };
    assert_close(&gpu, 3, [64, 64, 64], DType::F16);
    assert_close(&gpu, 5, [33, 100, 17], DType::F16);
    // More blocks of large tiles than multiprocessors.
    assert_close(&gpu, 80, [130, 129, 32], DType::F16);
}

#[test]
fn devices_without_cooperative_matrices_multiply_too() {
    let options = WgpuOptions::default().with_cooperative_matrices(false);
    let Ok(gpu) = kiln_wgpu::shared_with(WgpuDevice::Default, Api::Auto, &options) else {
        return println!("skipped: no adapter");
    };
    assert!(gpu.driver().info().cooperative_matrices.is_empty());
    assert_close(&gpu, 1, [33, 40, 17], DType::F16);
}
