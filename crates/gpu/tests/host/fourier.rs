//! FFTs by Kiln's kernels and by a library.

use crate::host::driver::Host;
use crate::host::{FLOATS, check, data, host, run};
use kiln_gpu::Gpu;
use kiln_ir::{DType, Engine, FftKind, Op, TensorData};
use kiln_reference::Reference;
use kiln_suite::case::{Fill, Tolerance};

/// All FFT ops of an axis of a length, with axes before and after it.
fn transforms(points: usize, [before, after]: [usize; 2], dtype: DType) -> Vec<(Op, Vec<TensorData>)> {
    let mut all = Vec::new();
    for inverse in [false, true] {
        for kind in [FftKind::Complex, FftKind::FromReal, FftKind::ToReal { points }] {
            let length = if let FftKind::ToReal { .. } = kind { points / 2 + 1 } else { points };
            let count = if kind == FftKind::FromReal { 1 } else { 2 };
            let part = data(&[before, length, after], dtype, Fill::Normal);
            all.push((Op::Fft { kind, axis: 1, inverse }, vec![part; count]));
        }
    }
    all
}

/// Compares with errors relative to the maximum.
fn near(engine: &dyn Engine, op: &Op, inputs: &[TensorData]) {
    let expected = run(&Reference::new(), op, inputs, None);
    for (expected, found) in expected.iter().zip(run(engine, op, inputs, None)) {
        let step = if expected.dtype() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
        let (expected, found) = (expected.to_vec::<f64>(), found.to_vec::<f64>());
        let most = expected.iter().fold(1.0f64, |most, x| most.max(x.abs()));
        for (place, (expected, found)) in expected.iter().zip(&found).enumerate() {
            let error = (expected - found).abs() / most / step;
            assert!(error <= 32.0, "{op:?} of {}: {found} is not {expected}, at {place}", inputs[0].ty());
        }
    }
}

#[test]
fn ffts_of_every_length() {
    let Some(host) = host() else { return };
    for points in [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 16, 31, 37, 74, 100, 1018, 2048] {
        for (op, inputs) in transforms(points, [3, 1], DType::F32) {
            near(&*host, &op, &inputs);
        }
    }
    for points in [6, 49, 512] {
        for (op, inputs) in transforms(points, [2, 5], DType::F64) {
            near(&*host, &op, &inputs);
        }
    }
    for dtype in FLOATS {
        for (op, inputs) in transforms(12, [2, 3], dtype) {
            check(&op, &inputs, Tolerance::Near { relative: 16.0, absolute: 64.0 });
        }
    }
}

/// Lines that exceed a block are split into matrices, whose columns are transformed first.
#[test]
fn ffts_of_long_lines() {
    let Some(host) = host() else { return };
    for (points, dtype) in [(4096, DType::F32), (6000, DType::F32), (1500, DType::F64)] {
        for (op, inputs) in transforms(points, [1, 2], dtype) {
            near(&*host, &op, &inputs);
        }
    }
}

/// A library uses interleaved complex numbers.
#[test]
fn ffts_by_a_library() {
    let Some(driver) = Host::open() else { return };
    let host = Gpu::new(driver.transforming(), kiln_ir::MemoryConfig::new());
    for dtype in [DType::F32, DType::F64] {
        for points in [37, 2 * 509, 6000] {
            for (op, inputs) in transforms(points, [5, 1], dtype) {
                near(&host, &op, &inputs);
            }
            for (op, inputs) in transforms(points, [1, 3], dtype) {
                near(&host, &op, &inputs);
            }
        }
    }
}
