//! Extremes, running reductions and sorting against the reference engine.

mod placed;

use kiln_ir::*;
use placed::{Given, INTEGERS, check, check_large, numbers, specials};

const CASES: [(usize, &[usize]); 8] = [
    (0, &[1]),
    (0, &[9]),
    (0, &[5, 6]),
    (1, &[5, 6]),
    (1, &[2, 7, 3]),
    (0, &[3, 2, 4]),
    (1, &[0, 4]),
    (2, &[1, 3, 2, 1]),
];

const LARGE: [(usize, &[usize]); 5] =
    [(0, &[90_000]), (1, &[300, 200]), (0, &[200, 300]), (1, &[4, 5000, 5]), (0, &[20_000, 2])];

fn only(data: TensorData) -> [Given; 1] {
    [Given::Tensor(data)]
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
        for index in INTEGERS {
            check(&Op::ArgReduce { extremum, axis: 0, index }, &only(numbers(DType::F32, &[300, 2])));
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
        for reduction in [Reduction::Sum, Reduction::Max] {
            for dtype in [DType::F32, DType::F64, DType::I32] {
                for (reverse, exclusive) in [(false, false), (true, true)] {
                    let op = Op::Scan { reduction, axis, reverse, exclusive };
                    check_large(&op, &only(numbers(dtype, shape)));
                }
            }
        }
    }
}

/// 16-bit floats add up in `f32`: 4096 ones are 4096, not the 256 or 2048 at which adding 1 stops to count.
#[test]
fn narrow_floats_run_in_f32() {
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
        check(&op, &only(numbers(DType::F32, &[300, 2])));
    }
    check(&Op::Sort { axis: 0, descending: false, index: DType::I32 }, &only(numbers(DType::F32, &[0])));
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
    for dtype in [DType::F32, DType::I64, DType::F16] {
        for (axis, shape) in LARGE {
            for k in [1, 5, shape[axis] / 3] {
                let op = Op::TopK { axis, k, largest: true, index: DType::I32 };
                check_large(&op, &only(specials(dtype, shape)));
                check_large(&op, &only(numbers(dtype, shape)));
            }
        }
    }
}
