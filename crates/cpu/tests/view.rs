//! Views, padding and concatenation against the reference engine.

use crate::memory_layouts;

use kiln_cpu::Cpu;
use kiln_ir::*;
use memory_layouts::{HostOperand, check, check_large, outcome, specials};

const SHAPES: [&[usize]; 6] = [&[], &[1], &[0, 3], &[4, 0, 2], &[5, 6], &[2, 3, 4]];

fn of(dtype: DType, shape: &[usize]) -> [HostOperand; 1] {
    [HostOperand::Tensor(specials(dtype, shape))]
}

#[test]
fn reshape() {
    for dtype in DType::ALL {
        for (from, to) in [
            (&[][..], &[1, 1][..]),
            (&[1, 1, 1], &[]),
            (&[0, 3], &[3, 5, 0]),
            (&[4, 6], &[24]),
            (&[4, 6], &[2, 2, 3, 2]),
            (&[2, 3, 4], &[6, 4]),
            (&[2, 3, 4], &[2, 12]),
            (&[2, 3, 4], &[3, 8]),
            (&[2, 3, 4], &[1, 2, 1, 3, 2, 2, 1]),
        ] {
            check(&Op::Reshape(to.into()), &of(dtype, from));
        }
    }
    check_large(&Op::Reshape([300, 700].into()), &of(DType::F32, &[700, 300]));
}

#[test]
fn permute_broadcast_copy_and_bitcast() {
    for dtype in DType::ALL {
        for shape in SHAPES {
            let x = of(dtype, shape);
            check(&Op::Copy, &x);
            let mut axes: Vec<usize> = (0..shape.len()).collect();
            check(&Op::Permute(Axes::new(&axes)), &x);
            if !axes.is_empty() {
                axes.rotate_left(1);
            }
            check(&Op::Permute(Axes::new(&axes)), &x);
            check(&Op::Broadcast(Shape::new([&[3, 2], shape].concat())), &x);
        }
        check(&Op::Broadcast([2, 5, 3, 4].into()), &of(dtype, &[5, 1, 4]));
    }
    for pair in [
        [DType::F64, DType::I64],
        [DType::U32, DType::F32],
        [DType::BF16, DType::F16],
        [DType::I8, DType::U8],
    ] {
        for shape in SHAPES {
            check(&Op::Bitcast(pair[1]), &of(pair[0], shape));
        }
    }
    check_large(&Op::Copy, &of(DType::BF16, &[511, 300]));
    check_large(&Op::Permute(Axes::new(&[1, 0])), &of(DType::U8, &[511, 300]));
}

/// Whole tiles and remainders at their edges, of every size of elements; and results with non-temporal stores, whose
/// rows start on cache lines or do not.
#[test]
fn transposes() {
    for dtype in [DType::F64, DType::F32, DType::BF16, DType::U8, DType::Bool] {
        for shape in [&[64, 64][..], &[70, 150], &[3, 65, 130], &[130, 3, 65], &[2, 64, 2, 70], &[9, 700]] {
            check_large(&Op::Copy, &of(dtype, shape));
            let mut axes: Vec<usize> = (0..shape.len()).collect();
            axes.swap(shape.len() - 2, shape.len() - 1);
            let swapped = Op::Permute(Axes::new(&axes));
            check_large(&swapped, &of(dtype, shape));
        }
    }
    for (dtype, shape) in [
        (DType::F32, &[2112, 1040][..]),
        (DType::F32, &[2111, 1041]),
        (DType::F64, &[1040, 1032]),
        (DType::U16, &[2, 1100, 2080]),
        (DType::U8, &[2900, 2944]),
    ] {
        let cpu = Cpu::with_threads(3);
        let data = memory_layouts::numbers(dtype, shape);
        let mut axes: Vec<usize> = (0..shape.len()).collect();
        axes.swap(shape.len() - 2, shape.len() - 1);
        let op = Op::Permute(Axes::new(&axes));
        let view = |engine: &dyn Engine, data: &TensorData| {
            outcome(engine, &op, [engine.write(data.clone()).into()].into_iter().collect()).unwrap().remove(0)
        };
        let there = view(&cpu, &data);
        let (rows, columns) = (shape[shape.len() - 2], shape[shape.len() - 1]);
        let size = dtype.size();
        let plane = rows * columns * size;
        for (from, to) in data.bytes().chunks(plane).zip(there.bytes().chunks(plane)) {
            for row in (0..rows).step_by(7) {
                for column in 0..columns {
                    let (a, b) = ((row * columns + column) * size, (column * rows + row) * size);
                    assert_eq!(from[a..a + size], to[b..b + size], "{dtype} {shape:?} at {row}, {column}");
                }
            }
        }
        assert!(view(&cpu, &there) == data, "{dtype} {shape:?}");
    }
}

#[test]
fn slices_and_windows() {
    let slice = |start, len, step| SliceAxis { start, len, step };
    for dtype in DType::ALL {
        let x = of(dtype, &[5, 6]);
        for slices in [
            [slice(1, 3, 1), slice(0, 3, 2)],
            [slice(4, 5, -1), slice(5, 3, -2)],
            [slice(5, 0, 1), slice(2, 2, 3)],
            [slice(2, 1, -7), slice(0, 6, 1)],
        ] {
            check(&Op::Slice(slices.to_vec()), &x);
        }
        check(&Op::Slice(vec![]), &of(dtype, &[]));
        for (axis, size, step, dilation) in
            [(0, 2, 1, 1), (1, 3, 1, 1), (1, 2, 2, 3), (0, 5, 1, 1), (1, 1, 4, 1)]
        {
            check(&Op::Windows { axis, size, step, dilation }, &x);
        }
        check(&Op::Windows { axis: 1, size: 2, step: 1, dilation: 1 }, &of(dtype, &[0, 3]));
    }
}

#[test]
fn pad() {
    let pad = |low, high, interior| PadAxis { low, high, interior };
    for dtype in DType::ALL {
        let fill = if dtype.is_bool() { Scalar::Bool(true) } else { Scalar::Int(3) };
        let operands =
            |shape: &[usize]| [HostOperand::Tensor(specials(dtype, shape)), HostOperand::Number(fill)];
        check(&Op::Pad(vec![]), &operands(&[]));
        check(&Op::Pad(vec![pad(2, 1, 0)]), &operands(&[1]));
        check(&Op::Pad(vec![pad(0, 0, 0), pad(0, 0, 0)]), &operands(&[2, 3]));
        check(&Op::Pad(vec![pad(1, 2, 0), pad(0, 3, 0)]), &operands(&[0, 3]));
        check(&Op::Pad(vec![pad(1, 2, 3), pad(0, 3, 2)]), &operands(&[0, 1]));
        for pads in [[pad(1, 2, 0), pad(0, 1, 0)], [pad(0, 0, 2), pad(1, 0, 0)], [pad(2, 0, 0), pad(0, 4, 1)]]
        {
            check(&Op::Pad(pads.to_vec()), &operands(&[5, 6]));
        }
        check(&Op::Pad(vec![pad(0, 0, 0), pad(1, 1, 0), pad(2, 2, 0)]), &operands(&[2, 3, 4]));
    }
    let number = HostOperand::Number(Scalar::Float(-0.0));
    let large = HostOperand::Tensor(specials(DType::F32, &[3, 120, 220]));
    check_large(&Op::Pad(vec![pad(0, 1, 0), pad(1, 1, 0), pad(3, 2, 0)]), &[large, number]);
}

#[test]
fn concat() {
    for dtype in DType::ALL {
        let operands = |shapes: &[&[usize]]| {
            shapes.iter().map(|shape| HostOperand::Tensor(specials(dtype, shape))).collect::<Vec<_>>()
        };
        check(&Op::Concat { axis: 0 }, &operands(&[&[3, 2]]));
        check(&Op::Concat { axis: 0 }, &operands(&[&[3], &[0], &[1], &[5]]));
        check(&Op::Concat { axis: 1 }, &operands(&[&[0, 2], &[0, 3]]));
        check(&Op::Concat { axis: 0 }, &operands(&[&[2, 3, 2], &[1, 3, 2]]));
        check(&Op::Concat { axis: 1 }, &operands(&[&[2, 3, 2], &[2, 1, 2], &[2, 0, 2]]));
        check(&Op::Concat { axis: 2 }, &operands(&[&[2, 3, 2], &[2, 3, 5]]));
    }
    let large = [&[300, 100][..], &[300, 500]].map(|shape| HostOperand::Tensor(specials(DType::F64, shape)));
    check_large(&Op::Concat { axis: 1 }, &large);
}

/// A view has the address of its operand: nothing is copied, and an unshared value is reused.
#[test]
fn views_keep_address_and_unique_ownership() {
    let cpu = Cpu::new();
    let x = cpu.write(TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]));
    let address = x.address();
    let ty = *x.ty();
    let op = Op::Permute(Axes::new(&[1, 0]));
    let y = cpu.execute(&op, [Operand::Value(x)].into_iter().collect(), &[ty]).remove(0);
    assert_eq!(y.address(), address);
    assert_eq!(block_on(cpu.read(y)).unwrap().into_vec::<f32>().unwrap(), [1.0, 3.0, 2.0, 4.0]);
}

#[test]
fn poison_propagates() {
    let cpu = Cpu::new();
    let ty = TensorType::new([2], DType::F32);
    let x = Value::poisoned(ty, Error::value("test", "broken"));
    let error = outcome(&cpu, &Op::Concat { axis: 0 }, [x.clone().into(), x.into()].into_iter().collect());
    assert_eq!(error.unwrap_err(), Error::value("test", "broken"));
}
