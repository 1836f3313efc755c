//! Which ops the kernels of each library run, and Kiln's semantics where a library differs.

use kiln_candle::{Candle, CandleDevice};
use kiln_foreign::{Foreign, Kernels};
use kiln_ir::{
    Axes, Binary, Comparison, ConvPass, ConvSpec, DType, Element, Engine, Expand, Extremum, IndexUser,
    NormKind, Op, OpKind, Operand, OperandType, Operands, PadAxis, PoolKind, PoolSpec, Real, Reduction,
    Scalar, SliceAxis, TensorData, TensorType, Unary, UpdateMode, Value, block_on, infer,
};
use kiln_torch::{LibTorch, LibTorchDevice};
use std::sync::Arc;

/// Candle's engine of the processor.
fn candle() -> Option<Arc<Candle>> {
    Some(Candle::shared(CandleDevice::Cpu).expect("the processor is there"))
}

/// LibTorch's engine of the processor. Prints why it is missing: tests are skipped then.
fn libtorch() -> Option<Arc<LibTorch>> {
    LibTorch::shared(LibTorchDevice::Cpu).map_err(|error| println!("skipped: {error}")).ok()
}

/// Runs each test on each library.
macro_rules! on_each_library {
    ($($test:ident)*) => {
        on_each_library! { candle: $($test)* }
        on_each_library! { libtorch: $($test)* }
    };
    ($library:ident: $($test:ident)*) => {
        mod $library {
            $(
                #[test]
                fn $test() {
                    if let Some(engine) = super::$library() {
                        super::$test(engine);
                    }
                }
            )*
        }
    };
}

on_each_library! {
    most_kinds_are_native
    a_nan_wins_and_halves_round_to_even
    integers_wrap_shift_and_divide_by_zero
    unsigned_integers_keep_their_order
    an_index_out_of_range_poisons_with_its_position
    a_result_beyond_memory_is_an_error
}

fn executed(engine: &dyn Engine, op: &Op, operands: &[Operand]) -> Value {
    let operands: Operands = operands.iter().cloned().collect();
    let types = infer(op, &OperandType::list(&operands)).expect("the op takes the operands");
    engine.execute(op, operands, &types).remove(0)
}

/// The elements of an op's result, with expansions.
fn one<T: Element>(engine: &Arc<impl Engine>, op: Op, operands: &[Operand]) -> Vec<T> {
    let engine = Expand::around(engine.clone());
    block_on(engine.read(executed(&engine, &op, operands))).expect("the op runs").to_vec()
}

fn line<T: Element>(engine: &Arc<impl Engine>, elements: &[T]) -> Operand {
    engine.write(TensorData::new(elements.to_vec(), [elements.len()]).expect("the lengths fit")).into()
}

/// An op of each kind that a library may run, on operands that its kernels take.
fn sample(engine: &dyn Engine, kind: OpKind) -> Option<(Op, Vec<Operand>)> {
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

fn most_kinds_are_native<L: Kernels>(engine: Arc<Foreign<L>>) {
    let runs = |kind: &OpKind| {
        let Some((op, operands)) = sample(&*engine, *kind) else { return false };
        let operands: Operands = operands.into_iter().collect();
        let types = infer(&op, &OperandType::list(&operands)).expect("the op takes the operands");
        let native = engine.native(&op, &operands, &types);
        let is_native = native.unwrap_or_else(|error| panic!("{kind:?}: {error}")).is_some();
        let is_supported = engine.supports(&op, &OperandType::list(&operands));
        assert!(is_supported || !is_native, "{kind:?} is not supported");
        is_native
    };
    let native: Vec<OpKind> = OpKind::ALL.into_iter().filter(runs).collect();
    let percent = 100 * native.len() / OpKind::ALL.len();
    println!("native kinds: {} of {} ({percent}%)", native.len(), OpKind::ALL.len());
    assert_eq!(native, L::NATIVE.iter().collect::<Vec<_>>(), "`NATIVE` lists the kinds that the kernels run");
    assert!(percent >= 60);
}

fn a_nan_wins_and_halves_round_to_even<L: Kernels>(engine: Arc<Foreign<L>>) {
    let x = || line(&engine, &[0.5f32, f32::NAN, 2.5, -1.5]);
    let max = one::<f32>(&engine, Op::Binary(Binary::Max), &[line(&engine, &[1.0f32; 4]), x()]);
    assert!(max[1].is_nan() && max[0] == 1.0);
    let round = one::<f32>(&engine, Op::Unary(Unary::Round), &[x()]);
    assert_eq!((round[0], round[2], round[3]), (0.0, 2.0, -2.0));
    let place = Op::ArgReduce { extremum: Extremum::Min, axis: 0, index: DType::I64 };
    assert_eq!(one::<i64>(&engine, place, &[x()]), [1]);
    let order = Op::Sort { axis: 0, descending: false, index: DType::I64 };
    assert_eq!(one::<f32>(&engine, order, &[x()])[..3], [-1.5, 0.5, 2.5]);
    let sign = one::<f32>(&engine, Op::Unary(Unary::Sign), &[x()]);
    assert!(sign[1].is_nan() && sign[3] == -1.0);
}

fn integers_wrap_shift_and_divide_by_zero<L: Kernels>(engine: Arc<Foreign<L>>) {
    let x = line(&engine, &[i32::MAX, i32::MIN, 7]);
    let by = |function: Binary, n: i64| {
        one::<i32>(&engine, Op::Binary(function), &[x.clone(), Operand::Scalar(Scalar::Int(n))])
    };
    assert_eq!(by(Binary::Add, 1), [i32::MIN, i32::MIN + 1, 8]);
    assert_eq!(by(Binary::Div, 0), [0; 3]);
    assert_eq!(by(Binary::Div, -1), [-i32::MAX, i32::MIN, -7]);
    assert_eq!(by(Binary::Rem, -1), [0; 3]);
    assert_eq!(by(Binary::Shl, 32), [0; 3]);
    assert_eq!(by(Binary::Shr, -1), [0, -1, 0]);
    let x = line(&engine, &[i64::MIN, i64::MAX]);
    let minus = Operand::Scalar(Scalar::Int(-1));
    assert_eq!(one::<i64>(&engine, Op::Binary(Binary::Div), &[x.clone(), minus]), [i64::MIN, -i64::MAX]);
    assert_eq!(one::<i64>(&engine, Op::Binary(Binary::Mul), &[x.clone(), x]), [0, 1]);
    let x = line(&engine, &[-3.0f32, 300.0, f32::NAN, 2.9]);
    assert_eq!(one::<u8>(&engine, Op::Cast(DType::U8), &[x]), [0, 255, 0, 2]);
}

fn unsigned_integers_keep_their_order<L: Kernels>(engine: Arc<Foreign<L>>) {
    let max = || Op::Reduce { reduction: Reduction::Max, axes: Axes::all(1) };
    assert_eq!(one::<u16>(&engine, max(), &[line(&engine, &[1u16, 65535, 3])]), [65535]);
    assert_eq!(one::<u32>(&engine, max(), &[line(&engine, &[1u32, u32::MAX, 3])]), [u32::MAX]);
    assert_eq!(one::<u64>(&engine, max(), &[line(&engine, &[1u64, u64::MAX, 3])]), [u64::MAX]);
    let order = Op::Sort { axis: 0, descending: true, index: DType::I32 };
    assert_eq!(one::<u64>(&engine, order, &[line(&engine, &[1u64, u64::MAX, 3])]), [u64::MAX, 3, 1]);
    let x = line(&engine, &[u32::MAX, 5]);
    let half = [x.clone(), Operand::Scalar(Scalar::Int(2))];
    assert_eq!(one::<u32>(&engine, Op::Binary(Binary::Div), &half), [2147483647, 2]);
    assert_eq!(one::<f32>(&engine, Op::Cast(DType::F32), &[x]), [4294967300.0, 5.0]);
}

fn an_index_out_of_range_poisons_with_its_position<L: Kernels>(engine: Arc<Foreign<L>>) {
    let operands = [line(&engine, &[1.0f32, 2.0]), line(&engine, &[0i64, u32::MAX as i64])];
    let value = executed(&*engine, &Op::Take { axis: 0 }, &operands);
    let error = block_on(engine.read(value)).unwrap_err().to_string();
    assert!(error.contains("[take] index 4294967295 at position [1] is out of range"), "{error}");
}

fn a_result_beyond_memory_is_an_error<L: Kernels>(engine: Arc<Foreign<L>>) {
    let shape = [1usize << 30, 1 << 30];
    let huge = executed(&*engine, &Op::Broadcast(shape.into()), &[line(&engine, &[1.0f32])]);
    assert!(huge.error().is_none(), "views take no memory");
    let copy = executed(&*engine, &Op::Unary(Unary::Neg), &[huge.into()]);
    let error = block_on(engine.read(copy)).unwrap_err().to_string();
    let said = match L::NAME {
        "candle" => ["[candle:cpu] `neg` needs 4611686018427387904 bytes", "memory"],
        _ => ["[libtorch:cpu] `neg` failed: ", "1073741824"],
    };
    assert!(said.iter().all(|part| error.contains(part)), "{error}");
}
