//! Indexing ops against the reference engine.

use crate::memory_layouts::{HostOperand, INTEGERS, check, check_large, indices, numbers, outcome, specials};
use kiln_cpu::Cpu;
use kiln_ir::*;

fn modes(dtype: DType) -> &'static [UpdateMode] {
    if dtype.is_bool() { &[UpdateMode::Set] } else { UpdateMode::ALL }
}

#[test]
fn take() {
    for dtype in DType::ALL {
        for (axis, shape) in [(0, &[5][..]), (0, &[5, 3]), (1, &[3, 5]), (1, &[2, 5, 3]), (1, &[0, 5, 2])] {
            for index in [&[][..], &[4], &[2, 3], &[0]] {
                let x = HostOperand::Tensor(specials(dtype, shape));
                check(&Op::Take { axis }, &[x, indices(DType::I32, 5, index)]);
            }
        }
        let long = HostOperand::Tensor(specials(dtype, &[6, 4, 33]));
        check(&Op::Take { axis: 0 }, &[long, indices(DType::U8, 6, &[7])]);
    }
    for index in INTEGERS {
        let x = HostOperand::Tensor(specials(DType::F32, &[7, 2]));
        check(&Op::Take { axis: 0 }, &[x, indices(index, 7, &[3, 2])]);
    }
    let table = HostOperand::Tensor(specials(DType::F32, &[300, 64]));
    check_large(&Op::Take { axis: 0 }, &[table.clone(), indices(DType::I64, 300, &[40, 50])]);
    check_large(&Op::Take { axis: 1 }, &[table, indices(DType::I64, 64, &[900])]);
    // Larger than the caches, with rows aligned and not aligned to cache lines.
    for (dtype, columns) in [(DType::F32, 1024), (DType::F32, 1027), (DType::BF16, 2101)] {
        let table = HostOperand::Tensor(specials(dtype, &[90, columns]));
        check_large(&Op::Take { axis: 0 }, &[table, indices(DType::I32, 90, &[2200])]);
    }
}

#[test]
fn gather() {
    for dtype in DType::ALL {
        for (axis, shape, index) in [
            (0, &[5][..], &[8][..]),
            (0, &[5, 3], &[2, 3]),
            (1, &[3, 5], &[3, 9]),
            (1, &[2, 5, 3], &[2, 4, 3]),
            (1, &[2, 5, 3], &[2, 0, 3]),
            (2, &[2, 3, 5], &[2, 3, 1]),
        ] {
            let x = HostOperand::Tensor(specials(dtype, shape));
            check(&Op::Gather { axis }, &[x, indices(DType::I64, 5, index)]);
        }
    }
    for index in INTEGERS {
        let x = HostOperand::Tensor(specials(DType::F16, &[7, 2]));
        check(&Op::Gather { axis: 0 }, &[x, indices(index, 7, &[3, 2])]);
    }
    let x = HostOperand::Tensor(specials(DType::F32, &[200, 300]));
    check_large(&Op::Gather { axis: 1 }, &[x.clone(), indices(DType::I32, 300, &[200, 150])]);
    check_large(&Op::Gather { axis: 0 }, &[x, indices(DType::I32, 200, &[150, 300])]);
}

#[test]
fn put() {
    for dtype in DType::ALL {
        for &mode in modes(dtype) {
            for (axis, shape, index, source) in [
                (0, &[5][..], &[][..], &[][..]),
                (0, &[5], &[12], &[12]),
                (0, &[5, 3], &[4], &[4, 3]),
                (1, &[3, 5], &[2, 3], &[3, 2, 3]),
                (1, &[2, 5, 3], &[7], &[2, 7, 3]),
                (1, &[2, 5, 0], &[7], &[2, 7, 0]),
                (0, &[5, 2], &[0], &[0, 2]),
            ] {
                let index = indices(DType::I32, 5, index);
                let operands = [numbers(dtype, shape), numbers(dtype, source)].map(HostOperand::Tensor);
                let [base, source] = operands;
                check(&Op::Put { axis, mode }, &[base, index, source]);
            }
        }
    }
    for index in INTEGERS {
        let [base, source] = [numbers(DType::I16, &[9]), numbers(DType::I16, &[6])].map(HostOperand::Tensor);
        check(&Op::Put { axis: 0, mode: UpdateMode::Set }, &[base, indices(index, 9, &[6]), source]);
    }
}

/// Every way to split the work: columns, groups of equal indices by counting and by comparison, and many outer slices.
#[test]
fn large_put() {
    for &mode in UpdateMode::ALL {
        if mode == UpdateMode::Mul {
            continue;
        }
        for dtype in [DType::F32, DType::I64, DType::BF16] {
            for (axis, shape, count) in [
                (0, &[50, 900][..], 60),
                (0, &[300, 8], 9000),
                (0, &[7], 60_000),
                (0, &[7], 150_000),
                (1, &[2, 9], 70_000),
                (0, &[200_000], 40_000),
                (1, &[90, 12], 700),
                (1, &[2, 40, 3], 9000),
            ] {
                let mut source = shape.to_vec();
                source[axis] = count;
                let index = indices(DType::I32, shape[axis], &[count]);
                let [base, source] =
                    [specials(dtype, shape), numbers(dtype, &source)].map(HostOperand::Tensor);
                check_large(&Op::Put { axis, mode }, &[base, index, source]);
            }
        }
    }
}

#[test]
fn scatter() {
    for dtype in DType::ALL {
        for &mode in modes(dtype) {
            for (axis, shape, index) in [
                (0, &[5][..], &[11][..]),
                (0, &[5, 3], &[4, 3]),
                (1, &[3, 5], &[3, 7]),
                (1, &[2, 5, 3], &[2, 6, 3]),
                (1, &[2, 5, 3], &[2, 0, 3]),
                (1, &[1, 5, 1], &[1, 6, 1]),
            ] {
                let [base, source] = [numbers(dtype, shape), numbers(dtype, index)].map(HostOperand::Tensor);
                check(&Op::Scatter { axis, mode }, &[base, indices(DType::U8, 5, index), source]);
            }
        }
    }
    for (axis, shape, index) in [
        (0, &[40, 300][..], &[90, 300][..]),
        (1, &[300, 40], &[300, 90]),
        (0, &[40], &[50_000]),
        (0, &[40], &[200_000]),
        (1, &[3, 40], &[3, 70_000]),
        (0, &[40, 64], &[3000, 64]),
        (0, &[40, 2], &[40_000, 2]),
        (1, &[1, 40, 3], &[1, 30_000, 3]),
    ] {
        for mode in [UpdateMode::Set, UpdateMode::Add, UpdateMode::Min] {
            let [base, source] =
                [numbers(DType::F32, shape), numbers(DType::F32, index)].map(HostOperand::Tensor);
            check_large(&Op::Scatter { axis, mode }, &[base, indices(DType::I64, 40, index), source]);
        }
    }
}

#[test]
fn slice_update() {
    let slice = |start, len, step| SliceAxis { start, len, step };
    for dtype in DType::ALL {
        for &mode in modes(dtype) {
            for slices in [
                [slice(1, 3, 1), slice(0, 3, 2)],
                [slice(4, 5, -1), slice(5, 3, -2)],
                [slice(5, 0, 1), slice(2, 2, 3)],
                [slice(0, 5, 1), slice(0, 6, 1)],
            ] {
                let shape = slices.map(|slice| slice.len);
                let operands = [numbers(dtype, &[5, 6]), numbers(dtype, &shape)].map(HostOperand::Tensor);
                check(&Op::SliceUpdate { slices: slices.to_vec(), mode }, &operands);
            }
            let operands = [numbers(dtype, &[]), numbers(dtype, &[])].map(HostOperand::Tensor);
            check(&Op::SliceUpdate { slices: vec![], mode }, &operands);
        }
    }
    let slices = vec![slice(0, 250, 1), slice(599, 300, -2)];
    for mode in [UpdateMode::Set, UpdateMode::Add, UpdateMode::Max] {
        let operands =
            [specials(DType::F32, &[250, 600]), numbers(DType::F32, &[250, 300])].map(HostOperand::Tensor);
        check_large(&Op::SliceUpdate { slices: slices.clone(), mode }, &operands);
    }
}

#[test]
fn nonzero() {
    for dtype in DType::ALL {
        for shape in [&[][..], &[1], &[0, 3], &[7], &[5, 6], &[2, 3, 4]] {
            let mut x = numbers(dtype, shape);
            for x in [core::mem::replace(&mut x, specials(dtype, shape)), x] {
                nonzero_of(x, DType::I64);
            }
        }
    }
    for index in INTEGERS {
        let length = if index.size() == 1 { 100 } else { 300 };
        nonzero_of(numbers(DType::F32, &[9, length]), index);
    }
    nonzero_of(numbers(DType::Bool, &[300, 700]), DType::I32);
    nonzero_of(numbers(DType::U8, &[70_000, 3]), DType::I32);
}

fn nonzero_of(x: TensorData, index: DType) {
    let op = Op::NonZero { index };
    let large = x.num_elements() > 10_000;
    if large {
        check_large(&op, &[HostOperand::Tensor(x)])
    } else {
        check(&op, &[HostOperand::Tensor(x)])
    };
}

#[test]
fn an_index_out_of_range_is_reported_and_writes_nothing() {
    let cpu = Cpu::new();
    let base = TensorData::from(vec![1.0f32; 10]);
    let expected = Error::index_out_of_range("put", 12, &[3, 0].into(), 0, 10);
    let index = TensorData::new(vec![0i32, 1, 2, 3, 4, 5, 12, -1], [4, 2]).unwrap();
    let source = TensorData::zeros(TensorType::new([4, 2], DType::F32));
    let value = cpu.write(base.clone());
    let operands = |base: Value| -> Operands {
        [base, cpu.write(index.clone()), cpu.write(source.clone())].into_iter().map(Operand::Value).collect()
    };
    let op = Op::Put { axis: 0, mode: UpdateMode::Add };
    assert_eq!(outcome(&cpu, &op, operands(value.clone())).unwrap_err(), expected);
    let mut two = operands(value.clone());
    two.truncate(2);
    assert_eq!(
        outcome(&cpu, &Op::Take { axis: 0 }, two).unwrap_err(),
        Error::index_out_of_range("take", 12, &[3, 0].into(), 0, 10)
    );
    assert_eq!(block_on(cpu.read(value)).unwrap(), base);
    for (dtype, wrong) in
        [(DType::I64, -1i64), (DType::U64, -1), (DType::I8, -128), (DType::U8, 200), (DType::I32, 5)]
    {
        for half in [DType::F32, DType::BF16] {
            let index = TensorData::new(vec![0, wrong, 1], [3, 1]).unwrap().convert(dtype);
            let [base, source] = [numbers(half, &[5, 1]), numbers(half, &[3, 1])].map(HostOperand::Tensor);
            for mode in [UpdateMode::Set, UpdateMode::Add] {
                let operands = [base.clone(), HostOperand::Index(index.clone()), source.clone()];
                check(&Op::Scatter { axis: 0, mode }, &operands);
            }
            check(&Op::Gather { axis: 0 }, &[base.clone(), HostOperand::Index(index.clone())]);
        }
    }
    let empty = HostOperand::Tensor(numbers(DType::F32, &[0, 2]));
    check(&Op::Take { axis: 0 }, &[empty.clone(), indices(DType::I32, 1, &[1])]);
    check(&Op::Take { axis: 0 }, &[empty, indices(DType::I32, 1, &[0])]);
}

/// Many source elements and few positions: chunks of the source have separate bins, in equal number for any thread
/// count.
#[test]
fn scatter_add_is_independent_of_thread_count() {
    let count = 300_001usize;
    let source: Vec<f32> = (0..count).map(|i| ((i * 7919) % 10_007) as f32 / 97.0 - 40.0).collect();
    for (dtype, length) in [(DType::I32, 1000), (DType::I64, 1000), (DType::U16, 60), (DType::I32, 250_000)] {
        let numbers: Vec<i64> = (0..count).map(|i| ((i * 104_729 + i / 3) % length) as i64).collect();
        let mut exact = vec![0.5f64; length];
        for (&at, &x) in numbers.iter().zip(&source) {
            exact[at as usize] += f64::from(x);
        }
        let sums = |threads: usize| {
            let cpu = Cpu::with_threads(threads);
            let base = cpu.write(TensorData::new(vec![0.5f32; length], [length]).unwrap());
            let index = if dtype == DType::I32 {
                TensorData::new(numbers.iter().map(|&at| at as i32).collect(), [count])
            } else if dtype == DType::U16 {
                TensorData::new(numbers.iter().map(|&at| at as u16).collect(), [count])
            } else {
                assert_eq!(dtype, DType::I64);
                TensorData::new(numbers.clone(), [count])
            };
            let index = cpu.write(index.unwrap());
            let source = cpu.write(TensorData::new(source.clone(), [count]).unwrap());
            let op = Op::Scatter { axis: 0, mode: UpdateMode::Add };
            let inputs = [base, index, source].map(Operand::Value).into_iter().collect();
            outcome(&cpu, &op, inputs).unwrap().remove(0).to_vec::<f32>()
        };
        let alone = sums(1);
        for (sum, exact) in alone.iter().zip(&exact) {
            assert!((f64::from(*sum) - exact).abs() <= 1e-4 * exact.abs().max(1000.0), "{sum} {exact}");
        }
        for threads in [2, 3, 9] {
            assert!(sums(threads).iter().zip(&alone).all(|(a, b)| a.to_bits() == b.to_bits()), "{threads}");
        }
    }
}
