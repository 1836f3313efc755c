//! Matmuls by block kernels: all tiles, with and without vectors, in parts, and in all layouts.

use super::{blocks, data};
use crate::host::driver::Host;
use kiln_gpu::Gpu;
use kiln_ir::{DType, Engine, SliceAxis, TensorData, Var, block_on};
use kiln_reference::Reference;
use kiln_suite::case::{Fill, Tolerance};
use kiln_suite::compare::difference;
use std::time::Duration;

/// Sums of their products are exact, also in 16 bits, and do not depend on the order.
const SMALL: Fill = Fill::Among(&[0.0, 1.0, 2.0, 1.0, 3.0]);

/// The layout of the factors.
#[derive(Clone, Copy, Debug)]
struct Factors {
    /// Whether the left and the right factor are column-major.
    transposed: [bool; 2],
    /// The first column of the wider matrices in memory.
    start: usize,
    /// Whether there is one left factor for the whole batch.
    is_shared: bool,
}

const ALIGNED: Factors = Factors { transposed: [false, false], start: 0, is_shared: false };

fn product(
    engine: &dyn Engine,
    dtype: DType,
    [count, rows, inner, columns]: [usize; 4],
    factors: Factors,
) -> TensorData {
    let factor = |place: usize, [lines, length]: [usize; 2]| {
        let is_transposed = factors.transposed[place];
        let [lines, length] = if is_transposed { [length, lines] } else { [lines, length] };
        let seen = if factors.is_shared && place == 0 { 1 } else { count };
        let wide = engine.write(data(&[seen, lines, length + 4], dtype, SMALL));
        let slice = SliceAxis { start: factors.start, len: length, step: 1 };
        let x = Var::new(engine, wide).slice_axis(2, slice).broadcast([count, lines, length]);
        if is_transposed { x.permute(&[0, 2, 1]) } else { x }
    };
    let y = factor(0, [rows, inner]).matmul(&factor(1, [inner, columns]));
    block_on(engine.read(y.into_value())).unwrap_or_else(|error| panic!("{factors:?}: {error}"))
}

fn check(dtype: DType, sizes: [usize; 4], factors: Factors) {
    let Some(engine) = blocks() else { return };
    let expected = product(&Reference::new(), dtype, sizes, factors);
    let found = product(&*engine, dtype, sizes, factors);
    let problem = difference(&expected, &found, Tolerance::Exact);
    assert!(problem.is_none(), "{dtype} {sizes:?} {factors:?}: {}", problem.unwrap_or_default());
}

#[test]
fn matmuls_have_any_size_and_layout() {
    let sizes = [
        // Tiles for few rows, few columns, and of each size.
        [2, 5, 7, 70],
        [2, 70, 7, 5],
        [2, 40, 33, 35],
        [2, 66, 19, 130],
        [2, 125, 9, 127],
        [1, 250, 1, 121],
    ];
    for (number, sizes) in sizes.into_iter().enumerate() {
        for right in [false, true] {
            let transposed = [number % 2 == 1, right];
            check(DType::F32, sizes, Factors { transposed, start: number % 2, is_shared: right });
        }
    }
}

#[test]
fn matmuls_read_and_write_vectors() {
    let layouts: [(DType, &[[bool; 2]]); 4] = [
        (DType::F32, &[[false, false], [false, true], [true, false]]),
        (DType::F16, &[[false, true]]),
        (DType::BF16, &[[false, false]]),
        (DType::I32, &[[true, false]]),
    ];
    for sizes in [[2, 8, 12, 64], [2, 40, 36, 36], [2, 128, 20, 124]] {
        for (dtype, layouts) in layouts {
            for &transposed in layouts {
                let is_shared = transposed[0];
                check(dtype, sizes, Factors { transposed, is_shared, ..ALIGNED });
            }
        }
        // Only the result is aligned.
        check(DType::F32, sizes, Factors { start: 2, ..ALIGNED });
    }
}

#[test]
fn matmuls_of_wide_dtypes_have_one_stage_of_shared_memory() {
    for dtype in [DType::F64, DType::I64, DType::U8] {
        for sizes in [[1, 20, 37, 21], [1, 130, 37, 66]] {
            check(dtype, sizes, ALIGNED);
        }
    }
}

#[test]
fn long_inner_dimensions_are_summed_in_parts() {
    for dtype in [DType::F32, DType::F64, DType::F16] {
        check(dtype, [1, 24, 1100, 28], ALIGNED);
        check(dtype, [1, 23, 1027, 30], Factors { transposed: [true, true], start: 1, is_shared: false });
    }
}

#[test]
fn an_empty_sum_is_zero() {
    check(DType::F32, [2, 6, 0, 9], ALIGNED);
}

/// The plans may be on disk.
#[test]
fn measured_plans_compute_the_same() {
    let Some(host) = Host::open() else { return };
    let host = host.without_library().of_model("a processor with measured plans");
    let engine = Gpu::new(host, kiln_ir::MemoryConfig::new());
    let sizes = [1, 24, 1100, 28];
    let expected = product(&engine, DType::F32, sizes, ALIGNED);
    assert_eq!(engine.tune(Duration::ZERO).unwrap(), 0);
    assert!(engine.tune(Duration::from_secs(600)).unwrap() <= 1);
    assert_eq!(engine.tune(Duration::from_secs(600)).unwrap(), 0);
    let found = product(&engine, DType::F32, sizes, ALIGNED);
    assert_eq!(difference(&expected, &found, Tolerance::Exact), None);
}
