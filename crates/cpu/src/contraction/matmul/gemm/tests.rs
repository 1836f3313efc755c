//! Tests of prologues, epilogues, splits and operand layouts.

use super::*;
use alloc::vec;
use alloc::vec::Vec;

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 1009) as f32 / 1009.0 - 0.5).collect()
}

fn naive([m, k, n]: [usize; 3], a: &[f32], b: &[f32]) -> Vec<f32> {
    let dot =
        |i: usize, j: usize| (0..k).map(|p| f64::from(a[i * k + p]) * f64::from(b[p * n + j])).sum::<f64>();
    (0..m * n).map(|i| dot(i / n, i % n) as f32).collect()
}

fn matrix(elements: &[f32], columns: usize) -> Operand<'_, f32> {
    Operand::Matrix(Matrix::new(elements.as_ptr(), columns as isize, 1))
}

fn result(elements: &mut [f32], columns: usize) -> Option<Matrix<f32>> {
    Some(Matrix::new(elements.as_mut_ptr(), columns as isize, 1))
}

fn assert_near(got: &[f32], wanted: &[f32]) {
    for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert!((got - wanted).abs() <= 1e-4 * wanted.abs().max(1.0), "element {i}: {got}, not {wanted}");
    }
}

/// All levels that this processor supports.
fn levels() -> Vec<Level> {
    ["scalar", "avx2", "avx512"]
        .into_iter()
        .filter_map(Level::from_name)
        .filter(|level| *level <= Level::of_processor())
        .collect()
}

const SIZES: [[usize; 3]; 8] = [
    [3, 5, 7],
    [100, 30, 65],
    [41, 600, 300],
    [200, 1100, 33],
    [97, 513, 257],
    [64, 0, 40],
    [17, 600, 300],
    [39, 30, 65],
];

#[test]
fn epilogues_run_once_on_each_complete_element() {
    for level in levels() {
        for sizes in SIZES {
            let [m, k, n] = sizes;
            let (a, b, bias) = (numbers(m * k, 1), numbers(k * n, 2), numbers(n, 3));
            let wanted: Vec<f32> =
                naive(sizes, &a, &b).iter().enumerate().map(|(i, x)| x + bias[i % n]).collect();
            let add_bias = |rows: Range<usize>, columns: Range<usize>, start: *mut f32, stride: usize| {
                assert!(rows.len() <= 96 && columns.len() <= 256 && rows.end <= m && columns.end <= n);
                for i in 0..rows.len() {
                    // SAFETY: a row of the block.
                    let y = unsafe { core::slice::from_raw_parts_mut(start.add(i * stride), columns.len()) };
                    y.iter_mut().zip(&bias[columns.clone()]).for_each(|(y, b)| *y += b);
                }
            };
            for threads in [1, 3] {
                let mut c = vec![f32::NAN; m * n];
                let plain = Gemm::new(sizes, matrix(&a, k), matrix(&b, n), result(&mut c, n));
                let gemm = Gemm { epilogue: Some(&add_bias), ..plain };
                // SAFETY: sizes as said.
                unsafe { gemm.split(level, &Pool::new(threads), threads) };
                assert_near(&c, &wanted);
            }
            let mut seen = vec![f32::NAN; m * n];
            let to = Shared::new(seen.as_mut_ptr());
            let take = |rows: Range<usize>, columns: Range<usize>, start: *mut f32, stride: usize| {
                for (r, i) in rows.enumerate() {
                    for (s, j) in columns.clone().enumerate() {
                        // SAFETY: elements of the block and of the vector.
                        unsafe { *to.get().add(i * n + j) = *start.add(r * stride + s) + bias[j] };
                    }
                }
            };
            let plain = Gemm::new(sizes, matrix(&a, k), matrix(&b, n), None);
            // SAFETY: sizes as said.
            unsafe { Gemm { epilogue: Some(&take), ..plain }.split(level, &Pool::new(2), 2) };
            assert_near(&seen, &wanted);
        }
    }
}

#[test]
fn prologues_compute_operands() {
    for level in levels() {
        for sizes in SIZES {
            let [m, k, n] = sizes;
            let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
            let squares: [Vec<f32>; 2] = [&a, &b].map(|x| x.iter().map(|x| x * x).collect());
            let wanted = naive(sizes, &squares[0], &squares[1]);
            let square = |from: &Vec<f32>,
                          width: usize,
                          rows: Range<usize>,
                          columns: Range<usize>,
                          to: *mut f32,
                          stride: usize| {
                for (r, i) in rows.enumerate() {
                    for (s, j) in columns.clone().enumerate() {
                        // SAFETY: an element of the block.
                        unsafe { *to.add(r * stride + s) = from[i * width + j] * from[i * width + j] };
                    }
                }
            };
            let left = |rows: Range<usize>, columns: Range<usize>, to: *mut f32, stride: usize| {
                square(&a, k, rows, columns, to, stride);
            };
            let right = |rows: Range<usize>, columns: Range<usize>, to: *mut f32, stride: usize| {
                square(&b, n, rows, columns, to, stride);
            };
            let mut c = vec![f32::NAN; m * n];
            let gemm =
                Gemm::new(sizes, Operand::Computed(&left), Operand::Computed(&right), result(&mut c, n));
            // SAFETY: sizes as said.
            unsafe { gemm.split(level, &Pool::new(2), 2) };
            assert_near(&c, &wanted);
        }
    }
}

#[test]
fn results_are_independent_of_thread_count() {
    let sizes = [130, 1500, 700];
    let [m, k, n] = sizes;
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    for level in levels() {
        let on = |threads: usize| {
            let mut c = vec![f32::NAN; m * n];
            let gemm = Gemm::new(sizes, matrix(&a, k), matrix(&b, n), result(&mut c, n));
            // SAFETY: sizes as said.
            unsafe { gemm.split(level, &Pool::new(threads), threads) };
            c
        };
        let alone = on(1);
        for threads in [2, 3, 7] {
            assert!(on(threads) == alone, "{threads} threads");
        }
    }
}

#[test]
fn accumulation_with_a_scale() {
    let sizes = [50, 900, 70];
    let [m, k, n] = sizes;
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let wanted: Vec<f32> = naive(sizes, &a, &b).iter().map(|x| 2.0 + 0.5 * x).collect();
    for level in levels() {
        let mut c = vec![2.0; m * n];
        let plain = Gemm::new(sizes, matrix(&a, k), matrix(&b, n), result(&mut c, n));
        // SAFETY: sizes as said.
        unsafe { Gemm { accumulate: true, scale: 0.5, ..plain }.split(level, &Pool::new(1), 1) };
        assert_near(&c, &wanted);
    }
}

#[test]
fn a_panic_in_a_prologue_reaches_the_caller() {
    let sizes = [100, 100, 600];
    let a = numbers(100 * 100, 1);
    let fail = |_: Range<usize>, columns: Range<usize>, _: *mut f32, _: usize| {
        assert!(columns.start < 300, "too far");
    };
    let mut c = vec![0.0; 100 * 600];
    let gemm = Gemm::new(sizes, matrix(&a, 100), Operand::Computed(&fail), result(&mut c, 600));
    // SAFETY: sizes as said.
    let run = || unsafe { gemm.split(Level::of_processor(), &Pool::new(2), 2) };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
}

#[test]
fn the_grid_covers_every_element_once() {
    for [m, n, threads] in [[512, 512, 2], [13, 5000, 7], [1, 33, 2], [2048, 2048, 64], [5000, 64, 3]] {
        for narrow in [false, true] {
            let grid = Grid::new(m, n, 32, threads, narrow);
            let mut seen = vec![0u8; m * n];
            for i in 0..grid.len() {
                let (rows, columns) = grid.piece(i, m, n);
                assert!(rows.len() <= MAX_ROWS && (!narrow || columns.len() <= 256));
                for row in rows {
                    columns.clone().for_each(|column| seen[row * n + column] += 1);
                }
            }
            assert!(seen.iter().all(|&count| count == 1), "{m} {n} {threads}");
        }
    }
}
