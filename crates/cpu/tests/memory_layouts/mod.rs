//! Runs one op on operands in every memory layout and compares with the reference engine, bit by bit.

use kiln_cpu::Cpu;
use kiln_ir::*;
use kiln_reference::Reference;

/// The memory layout of an operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MemoryLayout {
    /// Row-major and unshared.
    Owned,
    /// Row-major and shared: it must not be overwritten.
    Shared,
    /// The last axis is outermost in memory.
    Permuted,
    /// Every second element, from an offset.
    Strided,
    /// Reversed along every axis.
    Flipped,
    /// Row-major, from the middle of a longer buffer.
    Inside,
    /// Element 0 of the first axis, repeated. Changes the elements.
    Repeated,
}

pub(crate) const MEMORY_LAYOUTS: [MemoryLayout; 7] = [
    MemoryLayout::Owned,
    MemoryLayout::Shared,
    MemoryLayout::Permuted,
    MemoryLayout::Strided,
    MemoryLayout::Flipped,
    MemoryLayout::Inside,
    MemoryLayout::Repeated,
];

/// An operand: a tensor in every layout, an index in every layout that keeps its elements, or a scalar.
#[derive(Clone, Debug)]
pub(crate) enum HostOperand {
    Tensor(TensorData),
    Index(TensorData),
    Number(Scalar),
}

pub(crate) fn outcome(engine: &dyn Engine, op: &Op, inputs: Operands) -> Result<Vec<TensorData>> {
    let types = infer(op, &OperandType::list(&inputs)).unwrap_or_else(|error| panic!("{error}"));
    let values = engine.execute(op, inputs, &types);
    assert_eq!(values.len(), types.len());
    values.into_iter().map(|value| block_on(engine.read(value))).collect()
}

fn on_reference(op: Op, inputs: Vec<Operand>) -> TensorData {
    outcome(&Reference::new(), &op, inputs.into_iter().collect()).unwrap().remove(0)
}

fn reference_value(data: &TensorData) -> Operand {
    Reference::new().write(data.clone()).into()
}

/// The elements with those of index 0 repeated along the first axis.
pub(crate) fn repeated(data: &TensorData) -> TensorData {
    if data.shape().rank() == 0 || data.shape()[0] == 0 {
        return data.clone();
    }
    let one = on_reference(Op::Slice(head(data)), vec![reference_value(data)]);
    on_reference(Op::Broadcast(*data.shape()), vec![reference_value(&one)])
}

fn head(data: &TensorData) -> Vec<SliceAxis> {
    let range = |(axis, &len): (usize, &usize)| SliceAxis::all(if axis == 0 { 1 } else { len });
    data.shape().iter().enumerate().map(range).collect()
}

pub(crate) fn value(cpu: &Cpu, layout: MemoryLayout, data: &TensorData) -> Value {
    let (shape, rank) = (*data.shape(), data.shape().rank());
    let view = |op: Op, base: &TensorData| {
        let value = cpu.write(base.clone());
        let types = infer(&op, &[value.ty().into()]).unwrap();
        cpu.execute(&op, [value.into()].into_iter().collect(), &types).remove(0)
    };
    let padded = |pad: PadAxis| {
        let filler = if data.dtype().is_bool() { Scalar::Bool(true) } else { Scalar::Int(77) };
        on_reference(Op::Pad(vec![pad; rank]), vec![reference_value(data), filler.into()])
    };
    match layout {
        MemoryLayout::Owned | MemoryLayout::Shared => cpu.write(data.clone()),
        MemoryLayout::Permuted => {
            let op = Op::Permute(Axes::new(&(0..rank).rev().collect::<Vec<_>>()));
            view(op.clone(), &on_reference(op, vec![reference_value(data)]))
        }
        MemoryLayout::Strided => {
            let sparse = padded(PadAxis { low: 1, high: 1, interior: 1 });
            let slice = |&len: &usize| SliceAxis { start: 1, len, step: 2 };
            view(Op::Slice(shape.iter().map(slice).collect()), &sparse)
        }
        MemoryLayout::Flipped => {
            let back = |&len: &usize| SliceAxis { start: len.saturating_sub(1), len, step: -1 };
            let op = Op::Slice(shape.iter().map(back).collect());
            view(op.clone(), &on_reference(op, vec![reference_value(data)]))
        }
        MemoryLayout::Inside if rank > 0 => {
            let mut pads = vec![PadAxis::default(); rank];
            pads[0] = PadAxis::new(1, 2);
            let filler = if data.dtype().is_bool() { Scalar::Bool(true) } else { Scalar::Int(77) };
            let longer = on_reference(Op::Pad(pads), vec![reference_value(data), filler.into()]);
            let mut slices: Vec<SliceAxis> = shape.iter().map(|&len| SliceAxis::all(len)).collect();
            slices[0].start = 1;
            view(Op::Slice(slices), &longer)
        }
        MemoryLayout::Repeated if rank > 0 && shape[0] > 0 => {
            let one = on_reference(Op::Slice(head(data)), vec![reference_value(data)]);
            view(Op::Broadcast(shape), &one)
        }
        MemoryLayout::Inside | MemoryLayout::Repeated => cpu.write(data.clone()),
    }
}

/// Checks an op in every layout, on one thread and on several.
#[track_caller]
pub(crate) fn check(op: &Op, operands: &[HostOperand]) {
    for threads in [1, 3] {
        let cpu = Cpu::with_threads(threads);
        for layout in MEMORY_LAYOUTS {
            check_in(&cpu, op, operands, layout);
        }
    }
}

/// Checks an op in only two layouts, for large operands.
#[track_caller]
pub(crate) fn check_large(op: &Op, operands: &[HostOperand]) {
    for threads in [1, 3] {
        let cpu = Cpu::with_threads(threads);
        for layout in [MemoryLayout::Owned, MemoryLayout::Permuted] {
            check_in(&cpu, op, operands, layout);
        }
    }
}

#[track_caller]
fn check_in(cpu: &Cpu, op: &Op, operands: &[HostOperand], layout: MemoryLayout) {
    let seen = |operand: &HostOperand| match (operand, layout) {
        (HostOperand::Tensor(data), MemoryLayout::Repeated) => HostOperand::Tensor(repeated(data)),
        (_, _) => operand.clone(),
    };
    let seen: Vec<HostOperand> = operands.iter().map(seen).collect();
    let expected = seen.iter().map(|operand| match operand {
        HostOperand::Tensor(data) | HostOperand::Index(data) => reference_value(data),
        HostOperand::Number(number) => (*number).into(),
    });
    let expected = outcome(&Reference::new(), op, expected.collect());
    let mut kept = Vec::new();
    let inputs = seen.iter().map(|operand| match operand {
        HostOperand::Tensor(data) => {
            let value = value(cpu, layout, data);
            if layout != MemoryLayout::Owned {
                kept.push((value.clone(), data.clone()));
            }
            value.into()
        }
        HostOperand::Index(data) => {
            let layout = if layout == MemoryLayout::Repeated { MemoryLayout::Owned } else { layout };
            value(cpu, layout, data).into()
        }
        HostOperand::Number(number) => (*number).into(),
    });
    let inputs: Operands = inputs.collect();
    if layout != MemoryLayout::Shared && layout != MemoryLayout::Inside {
        kept.clear();
    }
    let found = outcome(cpu, op, inputs);
    match (&expected, &found) {
        (Ok(expected), Ok(found)) => {
            for (expected, found) in expected.iter().zip(found) {
                let context = format!("{op:?} of {operands:?} {layout:?}");
                let context = &context[..context.len().min(2000)];
                assert_eq!(expected.ty(), found.ty(), "{context}");
                if let Some(at) = difference(expected, found) {
                    let of = |data: &TensorData| data.to_vec::<f64>()[at];
                    panic!("element {at}: {} instead of {}: {context}", of(found), of(expected));
                }
            }
        }
        (_, _) => assert_eq!(expected, found, "{op:?} {layout:?}"),
    }
    for (value, data) in kept {
        assert!(
            difference(&data, &block_on(cpu.read(value)).unwrap()).is_none(),
            "{op:?} wrote over {layout:?}"
        );
    }
}

/// The first element that differs in its bits and is not NaN in both.
fn difference(a: &TensorData, b: &TensorData) -> Option<usize> {
    if a.bytes() == b.bytes() {
        return None;
    }
    let size = a.dtype().size();
    let nan = |data: &TensorData| match data.dtype().is_float() {
        true => data.to_vec::<f64>().into_iter().map(f64::is_nan).collect(),
        false => vec![false; data.num_elements()],
    };
    let (nan_a, nan_b) = (nan(a), nan(b));
    let mut pairs = a.bytes().chunks(size).zip(b.bytes().chunks(size)).enumerate();
    pairs.find(|(i, (a, b))| a != b && !(nan_a[*i] && nan_b[*i])).map(|(i, _)| i)
}

/// Pseudo-random numbers below a limit.
pub(crate) fn below(seed: u64, limit: usize, count: usize) -> Vec<usize> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % limit.max(1)
    };
    (0..count).map(|_| next()).collect()
}

/// Integers -4..=4 (wrapped in unsigned dtypes), so that sums are exact in every dtype.
pub(crate) fn numbers(dtype: DType, shape: &[usize]) -> TensorData {
    let shape = Shape::new(shape);
    let elements = below(shape.num_elements() as u64 + 3, 9, shape.num_elements());
    let elements: Vec<i64> = elements.into_iter().map(|x| x as i64 - 4).collect();
    TensorData::new(elements, shape).unwrap().convert(dtype)
}

/// The same with NaN, infinities and signed zeros for floats, and the minimum and maximum integers.
pub(crate) fn specials(dtype: DType, shape: &[usize]) -> TensorData {
    let shape = Shape::new(shape);
    let special = [f64::NAN, -0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300];
    let choices = below(shape.num_elements() as u64 + 5, 20, shape.num_elements());
    let number = |choice: usize| special.get(choice).copied().unwrap_or(choice as f64 - 13.5);
    TensorData::new(choices.into_iter().map(number).collect::<Vec<f64>>(), shape).unwrap().convert(dtype)
}

/// Random indices below a limit.
pub(crate) fn indices(dtype: DType, limit: usize, shape: &[usize]) -> HostOperand {
    let shape = Shape::new(shape);
    let elements = below(shape.num_elements() as u64 + 11, limit, shape.num_elements());
    let elements: Vec<u64> = elements.into_iter().map(|x| x as u64).collect();
    HostOperand::Index(TensorData::new(elements, shape).unwrap().convert(dtype))
}

pub(crate) const INTEGERS: [DType; 8] =
    [DType::I64, DType::I32, DType::I16, DType::I8, DType::U64, DType::U32, DType::U16, DType::U8];
