//! Which ops candle's kernels run, and Kiln's semantics where candle differs.

use crate::{Candle, CandleDevice, NATIVE};
use kiln_ir::{
    Axes, Binary, Comparison, ConvPass, ConvSpec, DType, Engine, Expand, Extremum, IndexUser, NormKind, Op,
    OpKind, Operand, OperandType, Operands, PadAxis, PoolKind, PoolSpec, Real, Reduction, Scalar, SliceAxis,
    TensorData, TensorType, Unary, UpdateMode, Value, block_on, infer,
};

fn engine() -> Candle {
    Candle::open(CandleDevice::Cpu).expect("the processor is there")
}

fn executed(engine: &dyn Engine, op: &Op, operands: &[Operand]) -> Vec<Value> {
    let operands: Operands = operands.iter().cloned().collect();
    let types = infer(op, &OperandType::list(&operands)).expect("the op takes the operands");
    engine.execute(op, operands, &types).into_vec()
}

/// An op of each native kind, on operands that candle's kernels take.
fn sample(engine: &Candle, kind: OpKind) -> Option<(Op, Vec<Operand>)> {
    let ramp = |dims: &[usize]| -> Operand {
        let count: usize = dims.iter().product();
        let elements: Vec<f32> = (0..count).map(|i| (i as f32 * 0.7).sin()).collect();
        engine.write(TensorData::new(elements, dims).expect("the lengths fit")).into()
    };
    let x = || ramp(&[3, 4]);
    let index: Operand = engine.write(TensorData::from([2i64, 0])).into();
    let zeros: Operand = engine.write(TensorData::zeros(TensorType::new([2, 4], DType::I64))).into();
    let holds: Operand = engine.write(TensorData::zeros(TensorType::new([3, 4], DType::Bool))).into();
    let ty = TensorType::new([3, 4], DType::F32);
    let one = || Operand::Scalar(Scalar::Float(1.0));
    let rows = |start, len| vec![SliceAxis { start, len, step: 1 }, SliceAxis::all(4)];
    Some(match kind {
        OpKind::Full => (Op::Full(ty), vec![one()]),
        OpKind::Iota => (Op::Iota { ty, axis: 1 }, vec![]),
        OpKind::Unary => (Op::Unary(Unary::Exp), vec![x()]),
        OpKind::Binary => (Op::Binary(Binary::Add), vec![x(), one()]),
        OpKind::Compare => (Op::Compare(Comparison::Lt), vec![x(), x()]),
        OpKind::Select => (Op::Select, vec![holds, x(), one()]),
        OpKind::Cast => (Op::Cast(DType::I32), vec![x()]),
        OpKind::Reshape => (Op::Reshape([12].into()), vec![x()]),
        OpKind::Permute => (Op::Permute(Axes::new(&[1, 0])), vec![x()]),
        OpKind::Broadcast => (Op::Broadcast([2, 3, 4].into()), vec![x()]),
        OpKind::Slice => (Op::Slice(rows(1, 2)), vec![x()]),
        OpKind::Pad => (Op::Pad(vec![PadAxis { low: 1, high: 2, interior: 1 }; 2]), vec![x(), one()]),
        OpKind::Concat => (Op::Concat { axis: 0 }, vec![x(), x()]),
        OpKind::Windows => (Op::Windows { axis: 1, size: 2, step: 1, dilation: 2 }, vec![x()]),
        OpKind::Copy => (Op::Copy, vec![x()]),
        OpKind::Reduce => (Op::Reduce { reduction: Reduction::Prod, axes: Axes::all(2) }, vec![x()]),
        OpKind::ArgReduce => {
            (Op::ArgReduce { extremum: Extremum::Max, axis: 1, index: DType::I64 }, vec![x()])
        }
        OpKind::Sort => (Op::Sort { axis: 0, descending: true, index: DType::I64 }, vec![x()]),
        OpKind::TopK => (Op::TopK { axis: 1, k: 2, largest: true, index: DType::I64 }, vec![x()]),
        OpKind::Take => (Op::Take { axis: 0 }, vec![x(), index]),
        OpKind::Gather => (Op::Gather { axis: 0 }, vec![x(), zeros]),
        OpKind::Put => (Op::Put { axis: 0, mode: UpdateMode::Add }, vec![x(), index, ramp(&[2, 4])]),
        OpKind::Scatter => (Op::Scatter { axis: 0, mode: UpdateMode::Set }, vec![x(), zeros, ramp(&[2, 4])]),
        OpKind::SliceUpdate => {
            (Op::SliceUpdate { slices: rows(1, 2), mode: UpdateMode::Set }, vec![x(), ramp(&[2, 4])])
        }
        OpKind::CheckIndex => (Op::CheckIndex { length: 3, user: IndexUser::Embedding }, vec![index]),
        OpKind::MatMul => (Op::MatMul, vec![x(), ramp(&[4, 2])]),
        OpKind::Conv => {
            let (spec, pass) = (ConvSpec::new(2), ConvPass::Forward);
            (Op::Conv { spec, pass }, vec![ramp(&[1, 2, 5, 5]), ramp(&[3, 2, 3, 3])])
        }
        OpKind::Pool => (Op::Pool(PoolSpec::new(PoolKind::Max, &[2, 2])), vec![ramp(&[1, 2, 4, 4])]),
        OpKind::Softmax => (Op::Softmax { axis: 1, log: false }, vec![x()]),
        OpKind::LogSumExp => (Op::LogSumExp { axis: 1 }, vec![x()]),
        OpKind::Norm => (
            Op::Norm { kind: NormKind::Layer, axes: 1, epsilon: Real(1e-5) },
            vec![x(), ramp(&[4]), ramp(&[4])],
        ),
        OpKind::Random
        | OpKind::Bitcast
        | OpKind::Scan
        | OpKind::NonZero
        | OpKind::Recover
        | OpKind::MatMulFloat8
        | OpKind::MatMulBlocks
        | OpKind::PoolGrad
        | OpKind::Attention
        | OpKind::AttentionGrad
        | OpKind::Resize
        | OpKind::Fft
        | OpKind::Quantize
        | OpKind::Dequantize
        | OpKind::DequantizeBlocks
        | OpKind::Collective
        | OpKind::Custom
        | OpKind::Fused
        | OpKind::Loop => return None,
    })
}

#[test]
fn most_kinds_are_native() {
    let engine = engine();
    let runs = |kind: &OpKind| {
        let Some((op, operands)) = sample(&engine, *kind) else { return false };
        let operands: Operands = operands.into_iter().collect();
        let types = infer(&op, &OperandType::list(&operands)).expect("the op takes the operands");
        assert!(engine.supports(&op, &OperandType::list(&operands)), "{kind:?} is not supported");
        engine.native(&op, &operands, &types).unwrap_or_else(|error| panic!("{kind:?}: {error}")).is_some()
    };
    let native: Vec<OpKind> = OpKind::ALL.into_iter().filter(runs).collect();
    println!(
        "native kinds: {} of {} ({}%)",
        native.len(),
        OpKind::ALL.len(),
        100 * native.len() / OpKind::ALL.len()
    );
    assert_eq!(
        native,
        NATIVE.iter().collect::<Vec<_>>(),
        "`NATIVE` lists the kinds that candle's kernels run"
    );
    assert!(native.len() * 100 >= OpKind::ALL.len() * 60);
}

fn one<T: kiln_ir::Element>(op: Op, operands: &[Operand]) -> Vec<T> {
    let engine = Expand::new(engine());
    let value = executed(&engine, &op, operands).remove(0);
    block_on(engine.read(value)).expect("the op runs").to_vec()
}

fn floats(elements: &[f32]) -> Operand {
    engine().write(TensorData::from(elements)).into()
}

#[test]
fn a_nan_wins_and_halves_round_to_even() {
    let x = || floats(&[0.5, f32::NAN, 2.5, -1.5]);
    let max = one::<f32>(Op::Binary(Binary::Max), &[floats(&[1.0; 4]), x()]);
    assert!(max[1].is_nan() && max[0] == 1.0);
    let round = one::<f32>(Op::Unary(Unary::Round), &[x()]);
    assert_eq!((round[0], round[2], round[3]), (0.0, 2.0, -2.0));
    let place = Op::ArgReduce { extremum: Extremum::Min, axis: 0, index: DType::I64 };
    assert_eq!(one::<i64>(place, &[x()]), [1]);
    let order = Op::Sort { axis: 0, descending: false, index: DType::I64 };
    assert_eq!(one::<f32>(order, &[x()])[..3], [-1.5, 0.5, 2.5]);
}

#[test]
fn integers_wrap_and_divide_by_zero() {
    let x: Operand = engine().write(TensorData::from([i32::MAX, i32::MIN, 7])).into();
    let by = |n: i64| Operand::Scalar(Scalar::Int(n));
    assert_eq!(one::<i32>(Op::Binary(Binary::Add), &[x.clone(), by(1)]), [i32::MIN, i32::MIN + 1, 8]);
    assert_eq!(one::<i32>(Op::Binary(Binary::Div), &[x.clone(), by(0)]), [0; 3]);
    assert_eq!(one::<i32>(Op::Binary(Binary::Div), &[x, by(-1)]), [-i32::MAX, i32::MIN, -7]);
    let x: Operand = engine().write(TensorData::from([i64::MAX])).into();
    assert_eq!(one::<i64>(Op::Binary(Binary::Mul), &[x.clone(), x]), [1]);
    let saturated = one::<u8>(Op::Cast(DType::U8), &[floats(&[-3.0, 300.0, f32::NAN, 2.9])]);
    assert_eq!(saturated, [0, 255, 0, 2]);
}

#[test]
fn an_index_out_of_range_poisons_with_its_position() {
    let engine = engine();
    let index: Operand = engine.write(TensorData::from([0i64, u32::MAX as i64])).into();
    let value = executed(&engine, &Op::Take { axis: 0 }, &[floats(&[1.0, 2.0]), index]).remove(0);
    let error = block_on(engine.read(value)).unwrap_err().to_string();
    assert!(error.contains("[take] index 4294967295 at position [1] is out of range"), "{error}");
}

#[test]
fn a_result_beyond_memory_is_an_error() {
    let engine = engine();
    let shape = [1usize << 30, 1 << 30];
    let huge = executed(&engine, &Op::Broadcast(shape.into()), &[floats(&[1.0])]).remove(0);
    assert!(huge.error().is_none(), "views take no memory");
    let copy = executed(&engine, &Op::Unary(Unary::Neg), &[huge.into()]).remove(0);
    let error = block_on(engine.read(copy)).unwrap_err().to_string();
    assert!(error.contains("[candle:cpu] `neg` needs 4611686018427387904 bytes"), "{error}");
}

#[test]
fn a_repeated_factor_beside_transposed_ones() {
    let engine = engine();
    let tensor = |elements: &[f32], dims: &[usize]| -> Operand {
        engine.write(TensorData::new(elements.to_vec(), dims).expect("the lengths fit")).into()
    };
    let x = tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &[2, 2, 2]);
    let transposed = executed(&engine, &Op::Permute(Axes::new(&[0, 2, 1])), &[x]).remove(0);
    let ones = tensor(&[1.0, 0.0, 0.0, 1.0], &[2, 2]);
    let repeated = executed(&engine, &Op::Broadcast([2, 2, 2].into()), &[ones]).remove(0);
    let y = one::<f32>(Op::MatMul, &[transposed.into(), repeated.into()]);
    assert_eq!(y, [1.0, 3.0, 2.0, 4.0, 5.0, 7.0, 6.0, 8.0]);
}

#[test]
fn an_axis_of_one_element_without_a_stride() {
    let engine = engine();
    let number: Operand = engine.write(TensorData::scalar(2.0f32)).into();
    let line: Operand = executed(&engine, &Op::Broadcast([1].into()), &[number]).remove(0).into();
    assert_eq!(one::<f32>(Op::Softmax { axis: 0, log: true }, std::slice::from_ref(&line)), [0.0]);
    let place = Op::ArgReduce { extremum: Extremum::Max, axis: 0, index: DType::I32 };
    assert_eq!(one::<i32>(place, std::slice::from_ref(&line)), [0]);
    let greatest = Op::Reduce { reduction: Reduction::Max, axes: Axes::one(0) };
    assert_eq!(one::<f32>(greatest, &[line]), [2.0]);
    let zero: Operand = engine.write(TensorData::scalar(0i64)).into();
    let index = executed(&engine, &Op::Broadcast([1].into()), &[zero]).remove(0);
    let check = Op::CheckIndex { length: 1, user: IndexUser::OneHot };
    assert_eq!(one::<i64>(check, &[index.into()]), [0]);
}

#[test]
fn a_missing_device_is_an_error() {
    for device in [CandleDevice::Cuda(100), CandleDevice::Metal(100)] {
        let error = Candle::open(device).err().expect("no such device").to_string();
        assert!(error.contains(&device.to_string()) && error.contains("feature"), "{error}");
    }
}
