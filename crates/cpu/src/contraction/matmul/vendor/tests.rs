//! Products of the library against those of Kiln's kernels. Without a library the tests print that and end.

use super::*;
use crate::isa::Level;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The sizes are above [`MIN_MULTIPLICATIONS`].
const SIZES: [[usize; 3]; 4] = [[64, 64, 65], [97, 513, 257], [200, 1100, 33], [300, 7, 301]];

fn numbers<T: Float>(count: usize, seed: usize) -> Vec<T> {
    (0..count).map(|i| T::from_f64(((i * 7919 + seed * 104_729) % 1009) as f64 / 1009.0 - 0.5)).collect()
}

fn has_library() -> bool {
    let found = blas::library().is_ok_and(|library| library.is_some());
    if !found {
        std::eprintln!("skipped: no BLAS");
    }
    found
}

/// A matrix in memory, plain or transposed, with some elements between rows.
fn operand<T: Float>(elements: &[T], [rows, columns]: [usize; 2], is_transposed: bool) -> Operand<'_, T> {
    let start = elements.as_ptr();
    Operand::Matrix(match is_transposed {
        false => Matrix::new(start, columns as isize + 3, 1),
        true => Matrix::new(start, 1, rows as isize + 3),
    })
}

fn same<T: Float>(sizes: [usize; 3], transposed: [bool; 2], tolerance: f64) {
    let [m, k, n] = sizes;
    let (a, b) = (numbers::<T>((m + 3) * (k + 3), 1), numbers::<T>((k + 3) * (n + 3), 2));
    let (a, b) = (operand(&a, [m, k], transposed[0]), operand(&b, [k, n], transposed[1]));
    let pool = Pool::new(2);
    let product = |is_own: bool| {
        let mut c = vec![T::from_f64(0.25); m * n];
        let calls = AtomicUsize::new(0);
        let add = |rows: Range<usize>, columns: Range<usize>, start: *mut T, stride: usize| {
            assert!(rows.len() <= 96 && columns.len() <= 256 && rows.end <= m && columns.end <= n);
            for i in 0..rows.len() * columns.len() {
                // SAFETY: an element of the block.
                unsafe { *start.add(i / columns.len() * stride + i % columns.len()) += T::ONE };
            }
            calls.fetch_add(rows.len() * columns.len(), Ordering::Relaxed);
        };
        let to = Some(Matrix::new(c.as_mut_ptr(), n as isize, 1));
        let plain = Gemm::new(sizes, a, b, to);
        let gemm = Gemm { accumulate: true, scale: T::from_f64(0.5), epilogue: Some(&add), ..plain };
        // SAFETY: sizes and strides as above.
        unsafe {
            if is_own {
                gemm.split_alone(Level::of_processor(), &pool);
            } else {
                assert!(run(&gemm, &pool), "the library did not take {sizes:?} {transposed:?}");
            }
        }
        assert_eq!(calls.into_inner(), m * n);
        c
    };
    for (i, (own, vendor)) in product(true).iter().zip(&product(false)).enumerate() {
        let error = (own.to_f64() - vendor.to_f64()).abs();
        assert!(
            error <= tolerance * own.to_f64().abs().max(1.0),
            "{sizes:?} {transposed:?} element {i}: {error}"
        );
    }
}

#[test]
fn products_agree_in_every_layout() {
    if !has_library() {
        return;
    }
    for sizes in SIZES {
        for transposed in [[false, false], [true, false], [false, true], [true, true]] {
            same::<f32>(sizes, transposed, 1e-4);
            same::<f64>(sizes, transposed, 1e-12);
        }
    }
}

#[test]
fn other_operands_stay_with_kiln() {
    if !has_library() {
        return;
    }
    let (a, mut c) = (numbers::<f32>(128 * 128 * 2, 1), vec![0.0f32; 128 * 128]);
    let to = Some(Matrix::new(c.as_mut_ptr(), 128, 1));
    let pool = Pool::new(1);
    let takes = |a: Operand<'_, f32>, b: Operand<'_, f32>, sizes: [usize; 3]| {
        // SAFETY: the matrices are inside of `a`, which is larger.
        unsafe { run(&Gemm::new(sizes, a, b, to), &pool) }
    };
    let matrix = |row: isize, column: isize| Operand::Matrix(Matrix::new(a.as_ptr(), row, column));
    assert!(takes(matrix(128, 1), matrix(128, 1), [128; 3]));
    // Gaps between elements, one row for all, too small.
    assert!(!takes(matrix(256, 2), matrix(128, 1), [128; 3]));
    assert!(!takes(matrix(0, 1), matrix(128, 1), [128; 3]));
    assert!(!takes(matrix(8, 1), matrix(8, 1), [8; 3]));
}
