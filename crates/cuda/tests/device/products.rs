//! Matmuls in 16 bits: sums are rounded once.

use crate::alone;
use kiln::{Cuda, CudaDevice, DType, Tensor, TensorData};

/// Rows, inner length and columns, including sizes for which libraries use split-K.
const SIZES: [[usize; 3]; 6] =
    [[6, 36, 2], [16, 4096, 16], [64, 16_384, 64], [130, 1000, 66], [768, 4096, 256], [5, 100_000, 8]];

/// Numbers between -1 and 2 with at most 8 significant bits.
fn numbers(count: usize, salt: u64) -> Vec<f32> {
    let number = |i: usize| {
        let mixed = (i as u64 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        (mixed % 97) as f32 / 32.0 - 1.0
    };
    (0..count).map(number).collect()
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn split_k_partial_sums_are_not_rounded() {
    let _alone = alone();
    let device = CudaDevice::open(0).unwrap_or_else(|error| panic!("{error}"));
    for [rows, inner, columns] in SIZES {
        let (a, b) = (numbers(rows * inner, 1), numbers(inner * columns, 2));
        for (dtype, epsilon) in [(DType::BF16, 2f64.powi(-8)), (DType::F16, 2f64.powi(-11))] {
            let tensor = |data: &[f32], shape: [usize; 2]| {
                let data = TensorData::new(data.to_vec(), shape).expect("as many as the shape has");
                Tensor::<Cuda, 2>::from_data(data, &device).cast(dtype)
            };
            let y = tensor(&a, [rows, inner]).matmul(tensor(&b, [inner, columns]));
            let found = y.into_data().to_vec::<f64>();
            for (place, found) in found.into_iter().enumerate() {
                let (row, column) = (place / columns, place % columns);
                let terms =
                    (0..inner).map(|k| f64::from(a[row * inner + k]) * f64::from(b[k * columns + column]));
                let (sum, magnitude) = terms.fold((0.0, 0.0), |(s, m), term| (s + term, m + term.abs()));
                // Half a unit in the last place, plus the error of `f32` sums.
                let allowed = 1.01 * epsilon * sum.abs() + 1e-6 * magnitude;
                assert!(
                    (found - sum).abs() <= allowed || sum.abs() > 65_504.0 && dtype == DType::F16,
                    "{rows} × {inner} × {columns} {dtype}, element {place}: {found} instead of {sum}"
                );
            }
        }
    }
}
