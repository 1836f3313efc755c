//! Kiln's semantics where candle alone differs. `kiln-foreign` has the tests that all libraries share.

use crate::{Candle, CandleDevice};
use kiln_ir::{
    Axes, DType, Engine, Expand, Extremum, IndexUser, Op, Operand, OperandType, Operands, Reduction,
    TensorData, Value, block_on, infer,
};

fn engine() -> Candle {
    Candle::open(CandleDevice::Cpu).expect("the processor is there")
}

fn executed(engine: &dyn Engine, op: &Op, operands: &[Operand]) -> Vec<Value> {
    let operands: Operands = operands.iter().cloned().collect();
    let types = infer(op, &OperandType::list(&operands)).expect("the op takes the operands");
    engine.execute(op, operands, &types).into_vec()
}

fn one<T: kiln_ir::Element>(op: Op, operands: &[Operand]) -> Vec<T> {
    let engine = Expand::new(engine());
    let value = executed(&engine, &op, operands).remove(0);
    block_on(engine.read(value)).expect("the op runs").to_vec()
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
