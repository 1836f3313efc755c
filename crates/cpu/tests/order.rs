//! Argmin, argmax, scans and sorting against the reference engine.

use crate::memory_layouts;

use kiln_ir::*;
use memory_layouts::{HostOperand, INTEGERS, check, check_large, numbers, specials};

const CASES: [(usize, &[usize]); 9] = [
    (0, &[1]),
    (0, &[9]),
    (0, &[5, 6]),
    (1, &[5, 6]),
    (1, &[2, 7, 3]),
    (1, &[3, 37]),
    (0, &[3, 2, 4]),
    (1, &[0, 4]),
    (2, &[1, 3, 2, 1]),
];

const LARGE: [(usize, &[usize]); 5] =
    [(0, &[90_000]), (1, &[300, 200]), (0, &[200, 300]), (1, &[4, 5000, 5]), (0, &[20_000, 2])];

fn only(data: TensorData) -> [HostOperand; 1] {
    [HostOperand::Tensor(data)]
}

#[test]
fn arg_reduce() {
    for extremum in [Extremum::Min, Extremum::Max] {
        for dtype in DType::ALL {
            for (axis, shape) in CASES {
                let op = Op::ArgReduce { extremum, axis, index: DType::I64 };
                check(&op, &only(numbers(dtype, shape)));
                check(&op, &only(specials(dtype, shape)));
            }
        }
        // More rows than the smallest keys can count.
        for dtype in [DType::I8, DType::U8, DType::Bool, DType::F16, DType::F64] {
            for shape in [&[700, 130][..], &[600, 64]] {
                let op = Op::ArgReduce { extremum, axis: 0, index: DType::I32 };
                check_large(&op, &only(specials(dtype, shape)));
            }
        }
        for index in INTEGERS {
            let length = if index.size() == 1 { 100 } else { 300 };
            check(&Op::ArgReduce { extremum, axis: 0, index }, &only(numbers(DType::F32, &[length, 2])));
        }
        for (axis, shape) in LARGE {
            for dtype in [DType::F32, DType::I64, DType::F16, DType::Bool] {
                let op = Op::ArgReduce { extremum, axis, index: DType::I32 };
                check_large(&op, &only(numbers(dtype, shape)));
                check_large(&op, &only(specials(dtype, shape)));
            }
        }
    }
}

#[test]
fn zeros_are_equal_and_the_first_nan_wins() {
    let argument = |extremum, x: &[f32]| {
        let op = Op::ArgReduce { extremum, axis: 0, index: DType::U8 };
        check(&op, &only(x.to_vec().into()));
    };
    for extremum in [Extremum::Min, Extremum::Max] {
        argument(extremum, &[0.0, -0.0, 0.0]);
        argument(extremum, &[-0.0, 0.0]);
        argument(extremum, &[1.0, f32::NAN, 5.0, -f32::NAN]);
        argument(extremum, &[f32::NEG_INFINITY, f32::INFINITY, f32::INFINITY]);
    }
}

#[test]
fn scan() {
    for dtype in DType::ALL {
        for &reduction in Reduction::ALL {
            if dtype.is_bool() && matches!(reduction, Reduction::Sum | Reduction::Prod) {
                continue;
            }
            for (reverse, exclusive) in [(false, false), (true, false), (false, true), (true, true)] {
                for (axis, shape) in CASES {
                    let op = Op::Scan { reduction, axis, reverse, exclusive };
                    check(&op, &only(numbers(dtype, shape)));
                    check(&op, &only(specials(dtype, shape)));
                }
            }
        }
    }
    for (axis, shape) in LARGE {
        for &reduction in Reduction::ALL {
            for dtype in [DType::F32, DType::F64, DType::I32, DType::I8] {
                for (reverse, exclusive) in [(false, false), (true, true)] {
                    let op = Op::Scan { reduction, axis, reverse, exclusive };
                    check_large(&op, &only(numbers(dtype, shape)));
                    if matches!(reduction, Reduction::Min | Reduction::Max) {
                        check_large(&op, &only(specials(dtype, shape)));
                    }
                }
            }
        }
    }
}

/// A few long lines are split into chunks, independent of thread count.
#[test]
fn long_scans_are_independent_of_thread_count() {
    for (axis, shape) in [(0, &[100_000][..]), (0, &[40_000, 3]), (1, &[2, 50_000])] {
        let count = shape.iter().product::<usize>();
        let numbers: Vec<f32> =
            memory_layouts::below(7, 1 << 24, count).iter().map(|&x| x as f32 * 1e-3).collect();
        let data = TensorData::new(numbers.clone(), shape).unwrap();
        for (reverse, exclusive) in [(false, false), (true, true)] {
            let op = Op::Scan { reduction: Reduction::Sum, axis, reverse, exclusive };
            let on = |threads| {
                let cpu = kiln_cpu::Cpu::with_threads(threads);
                let x = cpu.write(data.clone());
                memory_layouts::outcome(&cpu, &op, [x.into()].into_iter().collect()).unwrap().remove(0)
            };
            let alone = on(1);
            assert!(alone == on(2) && alone == on(5), "{op:?} {shape:?}");
            if shape.len() == 1 && !reverse {
                let mut total = 0.0;
                for (found, x) in alone.to_vec::<f64>().into_iter().zip(&numbers) {
                    total += f64::from(*x);
                    assert!((found - total).abs() <= 1e-6 * total, "{found} instead of {total}");
                }
            }
        }
    }
}

/// The product of a chunk may be infinite while the carry is 0.
#[test]
fn cumprod_with_a_zero_carry_is_not_nan() {
    let mut x = vec![2.0f32; 60_000];
    x[0] = 0.0;
    let op = Op::Scan { reduction: Reduction::Prod, axis: 0, reverse: false, exclusive: false };
    check_large(&op, &only(x.into()));
}

/// 16-bit floats accumulate in `f32`: the sum of 4096 ones is 4096, not the 256 (bf16) or 2048 (f16) at which adding 1
/// has no effect.
#[test]
fn sixteen_bit_floats_are_computed_in_f32() {
    for dtype in [DType::F16, DType::BF16] {
        let ones = TensorData::from(vec![1.0f32; 4096]).convert(dtype);
        let op = Op::Scan { reduction: Reduction::Sum, axis: 0, reverse: false, exclusive: false };
        check_large(&op, &only(ones));
    }
}

#[test]
fn sort() {
    for dtype in DType::ALL {
        for descending in [false, true] {
            for (axis, shape) in CASES {
                let op = Op::Sort { axis, descending, index: DType::I64 };
                check(&op, &only(numbers(dtype, shape)));
                check(&op, &only(specials(dtype, shape)));
            }
        }
    }
    for index in INTEGERS {
        let op = Op::Sort { axis: 0, descending: true, index };
        let length = if index.size() == 1 { 100 } else { 300 };
        check(&op, &only(numbers(DType::F32, &[length, 2])));
    }
    check(&Op::Sort { axis: 0, descending: false, index: DType::I32 }, &only(numbers(DType::F32, &[0])));
    // Equal keys, and keys that differ only in the middle bits.
    for step in [0, 1 << 20] {
        let x: Vec<i64> = (0..100_000).map(|i| i * 7919 % 13 * step).collect();
        check_large(&Op::Sort { axis: 0, descending: true, index: DType::I64 }, &only(x.into()));
    }
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I8, DType::U64] {
        for (axis, shape) in LARGE {
            let op = Op::Sort { axis, descending: axis == 0, index: DType::I32 };
            check_large(&op, &only(specials(dtype, shape)));
        }
    }
}

#[test]
fn topk() {
    for dtype in DType::ALL {
        for largest in [false, true] {
            for (axis, shape) in CASES {
                for k in [0, 1, shape[axis] / 4, shape[axis] / 2, shape[axis]] {
                    if k <= shape[axis] {
                        let op = Op::TopK { axis, k, largest, index: DType::I64 };
                        check(&op, &only(specials(dtype, shape)));
                    }
                }
            }
        }
    }
    // Many candidates per chunk, and too many.
    for k in [8000, 20_000] {
        for largest in [false, true] {
            let op = Op::TopK { axis: 0, k, largest, index: DType::I32 };
            check_large(&op, &only(specials(DType::F32, &[150_000])));
            check_large(&op, &only(specials(DType::I64, &[150_000])));
        }
    }
    for dtype in [DType::F32, DType::I64, DType::F16] {
        for (axis, shape) in LARGE {
            for (k, largest) in [(1, true), (5, false), (shape[axis] / 3, true)] {
                let op = Op::TopK { axis, k, largest, index: DType::I32 };
                check_large(&op, &only(specials(dtype, shape)));
                check_large(&op, &only(numbers(dtype, shape)));
            }
        }
    }
}
