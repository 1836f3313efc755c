//! Which ops LibTorch's kernels run, and Kiln's semantics where LibTorch differs.

use crate::{LibTorch, LibTorchDevice, NATIVE, version};
use kiln_ir::{
    Axes, Binary, Comparison, ConvPass, ConvSpec, DType, Engine, Expand, Extremum, IndexUser, NormKind, Op,
    OpKind, Operand, OperandType, Operands, PadAxis, PoolKind, PoolSpec, Real, Reduction, Scalar, SliceAxis,
    TensorData, TensorType, Unary, UpdateMode, Value, block_on, infer,
};

/// The engine of the processor. Prints why it is missing: tests are skipped then.
fn engine() -> Option<LibTorch> {
    LibTorch::open(LibTorchDevice::Cpu).map_err(|error| println!("skipped: {error}")).ok()
}

fn executed(engine: &dyn Engine, op: &Op, operands: &[Operand]) -> Vec<Value> {
    let operands: Operands = operands.iter().cloned().collect();
    let types = infer(op, &OperandType::list(&operands)).expect("the op takes the operands");
    engine.execute(op, operands, &types).into_vec()
}

/// An op of each native kind, on operands that LibTorch's kernels take.
fn sample(engine: &LibTorch, kind: OpKind) -> Option<(Op, Vec<Operand>)> {
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
        OpKind::Bitcast => (Op::Bitcast(DType::I32), vec![x()]),
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
        OpKind::Scan => {
            (Op::Scan { reduction: Reduction::Max, axis: 0, reverse: true, exclusive: true }, vec![x()])
        }
        OpKind::NonZero => (Op::NonZero { index: DType::I64 }, vec![x()]),
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
    let Some(engine) = engine() else { return };
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
        "`NATIVE` lists the kinds that LibTorch's kernels run"
    );
    assert!(native.len() * 100 >= OpKind::ALL.len() * 60);
}

/// The elements of an op's result, with expansions.
fn one<T: kiln_ir::Element>(op: Op, operands: &[Operand]) -> Vec<T> {
    let engine = Expand::new(engine().expect("the caller has opened one"));
    let value = executed(&engine, &op, operands).remove(0);
    block_on(engine.read(value)).expect("the op runs").to_vec()
}

fn line<T: kiln_ir::Element>(engine: &LibTorch, elements: &[T]) -> Operand {
    engine.write(TensorData::new(elements.to_vec(), [elements.len()]).expect("the lengths fit")).into()
}

#[test]
fn a_nan_wins_and_halves_round_to_even() {
    let Some(engine) = engine() else { return };
    let x = || line(&engine, &[0.5f32, f32::NAN, 2.5, -1.5]);
    let max = one::<f32>(Op::Binary(Binary::Max), &[line(&engine, &[1.0f32; 4]), x()]);
    assert!(max[1].is_nan() && max[0] == 1.0);
    let round = one::<f32>(Op::Unary(Unary::Round), &[x()]);
    assert_eq!((round[0], round[2], round[3]), (0.0, 2.0, -2.0));
    let place = Op::ArgReduce { extremum: Extremum::Min, axis: 0, index: DType::I64 };
    assert_eq!(one::<i64>(place, &[x()]), [1]);
    let order = Op::Sort { axis: 0, descending: false, index: DType::I64 };
    assert_eq!(one::<f32>(order, &[x()])[..3], [-1.5, 0.5, 2.5]);
    let sign = one::<f32>(Op::Unary(Unary::Sign), &[x()]);
    assert!(sign[1].is_nan() && sign[3] == -1.0);
}

#[test]
fn integers_wrap_shift_and_divide_by_zero() {
    let Some(engine) = engine() else { return };
    let x = || line(&engine, &[i32::MAX, i32::MIN, 7]);
    let by = |n: i64| Operand::Scalar(Scalar::Int(n));
    assert_eq!(one::<i32>(Op::Binary(Binary::Add), &[x(), by(1)]), [i32::MIN, i32::MIN + 1, 8]);
    assert_eq!(one::<i32>(Op::Binary(Binary::Div), &[x(), by(0)]), [0; 3]);
    assert_eq!(one::<i32>(Op::Binary(Binary::Div), &[x(), by(-1)]), [-i32::MAX, i32::MIN, -7]);
    assert_eq!(one::<i32>(Op::Binary(Binary::Rem), &[x(), by(-1)]), [0; 3]);
    assert_eq!(one::<i32>(Op::Binary(Binary::Shl), &[x(), by(32)]), [0; 3]);
    assert_eq!(one::<i32>(Op::Binary(Binary::Shr), &[x(), by(-1)]), [0, -1, 0]);
    let x = || line(&engine, &[i64::MIN, i64::MAX]);
    assert_eq!(one::<i64>(Op::Binary(Binary::Div), &[x(), by(-1)]), [i64::MIN, -i64::MAX]);
    assert_eq!(one::<i64>(Op::Binary(Binary::Mul), &[x(), x()]), [0, 1]);
    let x = line(&engine, &[-3.0f32, 300.0, f32::NAN, 2.9]);
    assert_eq!(one::<u8>(Op::Cast(DType::U8), &[x]), [0, 255, 0, 2]);
}

#[test]
fn a_layer_norm_keeps_the_digits_that_the_mean_leaves() {
    let Some(engine) = engine() else { return };
    let norm = |elements: &[f64]| {
        let x =
            engine.write(TensorData::new(elements.to_vec(), [1, elements.len()]).expect("the lengths fit"));
        let op = Op::Norm { kind: NormKind::Layer, axes: 1, epsilon: Real(0.0) };
        one::<f64>(op, &[x.into()])
    };
    assert_eq!(norm(&[1e8 + 1.0, 1e8 - 1.0]), [1.0, -1.0]);
    let x = engine.write(TensorData::new(vec![1.767_470_222_266_878_8f64], [1, 1]).expect("the lengths fit"));
    let op = Op::Norm { kind: NormKind::Layer, axes: 1, epsilon: Real(1e-3) };
    assert_eq!(one::<f64>(op, &[x.into()]), [0.0]);
}

#[test]
fn unsigned_integers_keep_their_order() {
    let Some(engine) = engine() else { return };
    let max = Op::Reduce { reduction: Reduction::Max, axes: Axes::all(1) };
    assert_eq!(one::<u16>(max.clone(), &[line(&engine, &[1u16, 65535, 3])]), [65535]);
    assert_eq!(one::<u32>(max.clone(), &[line(&engine, &[1u32, u32::MAX, 3])]), [u32::MAX]);
    assert_eq!(one::<u64>(max, &[line(&engine, &[1u64, u64::MAX, 3])]), [u64::MAX]);
    let order = Op::Sort { axis: 0, descending: true, index: DType::I32 };
    assert_eq!(one::<u64>(order, &[line(&engine, &[1u64, u64::MAX, 3])]), [u64::MAX, 3, 1]);
    let x = line(&engine, &[u32::MAX, 5]);
    assert_eq!(
        one::<u32>(Op::Binary(Binary::Div), &[x.clone(), Operand::Scalar(Scalar::Int(2))]),
        [2147483647, 2]
    );
    assert_eq!(one::<f32>(Op::Cast(DType::F32), &[x]), [4294967300.0, 5.0]);
}

#[test]
fn an_index_out_of_range_poisons_with_its_position() {
    let Some(engine) = engine() else { return };
    let index = line(&engine, &[0i64, u32::MAX as i64]);
    let value = executed(&engine, &Op::Take { axis: 0 }, &[line(&engine, &[1.0f32, 2.0]), index]).remove(0);
    let error = block_on(engine.read(value)).unwrap_err().to_string();
    assert!(error.contains("[take] index 4294967295 at position [1] is out of range"), "{error}");
}

#[test]
fn a_result_beyond_memory_is_an_error() {
    let Some(engine) = engine() else { return };
    let shape = [1usize << 30, 1 << 30];
    let huge = executed(&engine, &Op::Broadcast(shape.into()), &[line(&engine, &[1.0f32])]).remove(0);
    assert!(huge.error().is_none(), "views take no memory");
    let copy = executed(&engine, &Op::Unary(Unary::Neg), &[huge.into()]).remove(0);
    let error = block_on(engine.read(copy)).unwrap_err().to_string();
    assert!(error.contains("[libtorch:cpu] `neg` failed: ") && error.contains("1073741824"), "{error}");
}

#[test]
fn a_missing_device_is_an_error() {
    if engine().is_none() {
        return;
    }
    for device in [LibTorchDevice::Cuda(100), LibTorchDevice::Mps] {
        let Err(error) = LibTorch::open(device) else { continue };
        let error = error.to_string();
        assert!(error.contains(&device.to_string()) && error.contains("hint"), "{error}");
    }
}

#[test]
fn a_missing_library_is_an_error_with_the_line_to_run() {
    let Err(error) = version() else { return };
    let error = error.to_string();
    assert!(error.contains("apt-get install libtorch-dev") && error.contains("LIBTORCH"), "{error}");
}
