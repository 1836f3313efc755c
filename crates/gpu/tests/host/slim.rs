//! GEMV-like matmuls (few rows).

use crate::host::{FLOATS, data, host};
use kiln_ir::{DType, Engine, TensorData, Var, block_on};
use kiln_reference::Reference;
use kiln_suite::case::{Fill, Tolerance};
use kiln_suite::compare::difference;

/// Multiplies the same rows by several matrices, and then adds to the first result.
fn products(
    engine: &dyn Engine,
    x: &TensorData,
    matrices: &[TensorData],
    transposed: bool,
) -> Vec<TensorData> {
    let write = |data: &TensorData| Var::new(engine, engine.write(data.clone()));
    let x = write(x);
    let matrices: Vec<Var<'_>> =
        matrices.iter().map(|w| if transposed { write(w).permute(&[1, 0]) } else { write(w) }).collect();
    let results: Vec<Var<'_>> = matrices.iter().map(|w| x.matmul(w)).collect();
    let twice = &results[0] + &results[0];
    let read = |y: Var<'_>| block_on(engine.read(y.into_value())).unwrap();
    results.into_iter().chain([twice]).map(read).collect()
}

fn check(rows: usize, inner: usize, columns: &[usize], transposed: bool, dtype: DType) {
    let Some(host) = host() else { return };
    let x = data(&[rows, inner], dtype, Fill::Normal);
    let shape = |columns: usize| if transposed { [columns, inner] } else { [inner, columns] };
    let matrices: Vec<TensorData> =
        columns.iter().map(|&columns| data(&shape(columns), dtype, Fill::Normal)).collect();
    let expected = products(&Reference::new(), &x, &matrices, transposed);
    let found = products(&*host, &x, &matrices, transposed);
    for (place, (expected, found)) in expected.iter().zip(&found).enumerate() {
        let tolerance = Tolerance::Near { relative: 32.0, absolute: 4.0 * inner.max(64) as f64 };
        let problem = difference(expected, found, tolerance);
        assert!(
            problem.is_none(),
            "{rows} × {inner} × {columns:?} {transposed} {dtype}, result {place}: {}",
            problem.unwrap_or_default()
        );
    }
}

#[test]
fn gemvs_split_the_inner_dim_between_blocks() {
    for dtype in FLOATS {
        for rows in 1..=4 {
            for inner in [8, 100, 513] {
                check(rows, inner, &[64], false, dtype);
                check(rows, inner, &[200], false, dtype);
            }
        }
    }
    check(1, 2000, &[16], false, DType::BF16);
    check(2, 40, &[1024], false, DType::F16);
}

#[test]
fn gemvs_use_one_warp_per_column() {
    for dtype in FLOATS {
        for rows in 1..=4 {
            for inner in [8, 520, 4096] {
                check(rows, inner, &[3], true, dtype);
            }
        }
    }
    check(1, 64, &[100], true, DType::BF16);
}

#[test]
fn unsupported_gemv_shapes_use_another_kernel() {
    for (rows, inner, columns) in [(5, 16, 16), (1, 7, 9), (2, 9, 8), (1, 1, 1), (3, 20_000, 2)] {
        check(rows, inner, &[columns], false, DType::F32);
        check(rows, inner, &[columns], true, DType::F32);
    }
}

#[test]
fn gemvs_with_the_same_left_factor_are_fused_horizontally() {
    for transposed in [false, true] {
        for rows in [1, 3] {
            check(rows, 512, &[64, 16], transposed, DType::BF16);
            check(rows, 512, &[72, 8, 24], transposed, DType::BF16);
            check(rows, 96, &[8, 136, 64, 16, 8], transposed, DType::F32);
        }
    }
}

#[test]
fn repeated_gemvs_reset_their_counters() {
    let Some(host) = host() else { return };
    let x = data(&[1, 1024], DType::F32, Fill::Normal);
    let w = [data(&[1024, 32], DType::F32, Fill::Normal)];
    let first = products(&*host, &x, &w, false);
    for _ in 0..5 {
        assert_eq!(products(&*host, &x, &w, false), first);
    }
}
