//! Tests against the matmul with dequantized weights.

use super::*;
use alloc::vec;
use alloc::vec::Vec;

/// Quantized weights of one layout, and the floats that they represent as `[k, n]`.
struct Case {
    bytes: Vec<u8>,
    scale: Vec<f32>,
    zero: Vec<f32>,
    floats: Vec<f32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    I8,
    U8,
    Signed4,
    Unsigned4,
}

impl Case {
    fn new(kind: Kind, [k, n]: [usize; 2], block: [usize; 2], turned: bool, with_zero: bool) -> Case {
        let integer = |i: usize| ((i * 7919 + 13) % 256) as u8;
        let value = |q: u8| match kind {
            Kind::I8 => f32::from(q as i8),
            Kind::U8 => f32::from(q),
            Kind::Signed4 => f32::from(((q & 15) << 4) as i8 >> 4),
            Kind::Unsigned4 => f32::from(q & 15),
        };
        let place = |p: usize, j: usize| if turned { j * k + p } else { p * n + j };
        let four = matches!(kind, Kind::Signed4 | Kind::Unsigned4);
        let mut bytes = vec![0u8; if four { (k * n).div_ceil(2) } else { k * n }];
        let across = n / block[1];
        let blocks = k / block[0] * across;
        let scale: Vec<f32> = (0..blocks).map(|i| 0.01 + (i % 7) as f32 * 0.003).collect();
        let zero: Vec<f32> = (0..blocks).map(|i| if with_zero { (i % 5) as f32 } else { 0.0 }).collect();
        let mut floats = vec![0.0; k * n];
        for p in 0..k {
            for j in 0..n {
                let (q, at) = (integer(p * n + j), place(p, j));
                if four {
                    bytes[at / 2] |= (q & 15) << (at % 2 * 4);
                } else {
                    bytes[at] = q;
                }
                let b = p / block[0] * across + j / block[1];
                floats[p * n + j] = (value(q) - zero[b]) * scale[b];
            }
        }
        Case { bytes, scale, zero, floats }
    }

    fn weights(
        &self,
        kind: Kind,
        [k, n]: [usize; 2],
        block: [usize; 2],
        turned: bool,
        with_zero: bool,
    ) -> Weights {
        let (row, column) = if turned { (1, k as isize) } else { (n as isize, 1) };
        let start = self.bytes.as_ptr();
        let nibbles = |signed| Values::I4(Nibbles { bytes: Matrix::new(start, row, column), signed });
        let values = match kind {
            Kind::I8 => Values::I8(Matrix::new(start.cast(), row, column)),
            Kind::U8 => Values::U8(Matrix::new(start, row, column)),
            Kind::Signed4 => nibbles(true),
            Kind::Unsigned4 => nibbles(false),
        };
        let across = (n / block[1]) as isize;
        let zero = with_zero.then(|| Matrix::new(self.zero.as_ptr(), across, 1));
        Weights { values, scale: Matrix::new(self.scale.as_ptr(), across, 1), zero, block }
    }
}

#[test]
fn dequantized_matmuls_match_float_matmuls() {
    let names = ["scalar", "avx2", "avx512"];
    let levels =
        names.into_iter().filter_map(Level::from_name).filter(|level| *level <= Level::of_processor());
    for level in levels {
        for ([k, n], block) in [
            ([64, 40], [32, 1]),
            ([96, 601], [96, 601]),
            ([1200, 70], [600, 7]),
            ([45, 33], [5, 3]),
            ([64, 34], [1, 34]),
        ] {
            for kind in [Kind::I8, Kind::U8, Kind::Signed4, Kind::Unsigned4] {
                for (turned, with_zero) in [(false, false), (true, false), (false, true), (true, true)] {
                    let case = Case::new(kind, [k, n], block, turned, with_zero);
                    let weights = case.weights(kind, [k, n], block, turned, with_zero);
                    for m in [1, 3, 8, 20] {
                        check(level, [m, k, n], &case.floats, &weights, (kind, turned));
                    }
                }
            }
        }
    }
}

fn check(level: Level, sizes: [usize; 3], floats: &[f32], weights: &Weights, what: impl core::fmt::Debug) {
    let [m, k, n] = sizes;
    let x: Vec<f32> = (0..m * k).map(|i| ((i * 31) % 101) as f32 / 101.0 - 0.5).collect();
    for threads in [1, 2] {
        let mut c = vec![f32::NAN; m * n];
        let (from, to) = (Matrix::new(x.as_ptr(), k as isize, 1), Matrix::new(c.as_mut_ptr(), n as isize, 1));
        // SAFETY: sizes as said.
        unsafe {
            matmul_dequantized(level, &Pool::new(threads), sizes, from, weights, to);
        }
        for i in 0..m {
            for j in 0..n {
                let exact: f64 = (0..k).map(|p| f64::from(x[i * k + p]) * f64::from(floats[p * n + j])).sum();
                let (got, wanted) = (c[i * n + j], exact as f32);
                let near = (got - wanted).abs() <= 3e-4 * wanted.abs().max(1.0);
                assert!(near, "{level:?} {sizes:?} {what:?}: {got}, not {wanted} at {i}, {j}");
            }
        }
    }
}
