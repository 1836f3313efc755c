//! Alignment of library operands.

use kiln_gpu::{DeviceInfo, DryDriver, Gpu};
use kiln_ir::{
    AttentionSpec, ConvPass, ConvSpec, DType, Engine, Op, OperandType, SliceAxis, TensorData, TensorType,
    Value, block_on, infer,
};

fn engine() -> Gpu<DryDriver> {
    let info = DeviceInfo {
        name: "dry".to_owned(),
        model: "a GPU that is not there".to_owned(),
        target: "dry".to_owned(),
        memory: 1 << 30,
        multiprocessors: 1,
        ..DeviceInfo::absent("")
    };
    Gpu::new(DryDriver::new(info, |_| Ok(Vec::new())).with_libraries(), kiln_ir::MemoryConfig::new())
}

fn run(engine: &Gpu<DryDriver>, op: &Op, inputs: &[Value]) -> Vec<Value> {
    let types: Vec<OperandType<'_>> = inputs.iter().map(|input| OperandType::Tensor(input.ty())).collect();
    let results = infer(op, &types).unwrap_or_else(|error| panic!("{error}"));
    engine.execute(op, inputs.iter().cloned().map(Into::into).collect(), &results).into_iter().collect()
}

/// A contiguous tensor at an offset of one element.
fn later<const N: usize>(engine: &Gpu<DryDriver>, shape: [usize; N], dtype: DType) -> Value {
    let len = shape.iter().product();
    let whole = engine.write(TensorData::zeros(TensorType::new([len + 1], dtype)));
    let rest = run(engine, &Op::Slice(vec![SliceAxis { start: 1, len, step: 1 }]), &[whole]).swap_remove(0);
    run(engine, &Op::Reshape(shape.into()), &[rest]).swap_remove(0)
}

/// Libraries check addresses late or never, and then the context is lost. The engine refuses addresses that are not
/// multiples of 16 bytes, so they must not reach it.
#[test]
fn misaligned_operands_are_copied_for_libraries() {
    let engine = engine();
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        let (x, w) = (later(&engine, [3, 3, 7], dtype), later(&engine, [5, 3, 3], dtype));
        let op = Op::Conv { spec: ConvSpec::new(1), pass: ConvPass::Forward };
        let y = run(&engine, &op, &[x, w]).swap_remove(0);
        block_on(engine.read(y)).unwrap_or_else(|error| panic!("{dtype:?}: {error}"));
    }
    for dtype in [DType::F16, DType::BF16] {
        let [q, k, v] = [(); 3].map(|()| later(&engine, [2, 1, 3, 8], dtype));
        let spec = AttentionSpec { scale: 1.0.into(), causal: None };
        let mut results = run(&engine, &Op::Attention(spec), &[q.clone(), k.clone(), v.clone()]);
        let log_sum_exp = later(&engine, [2, 1, 3], DType::F32);
        let operands = [results[0].clone(), q, k, v, results[0].clone(), log_sum_exp];
        results.extend(run(&engine, &Op::AttentionGrad(spec), &operands));
        for y in results {
            block_on(engine.read(y)).unwrap_or_else(|error| panic!("{dtype:?}: {error}"));
        }
    }
}
