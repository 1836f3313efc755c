//! Small values computed by hand, for each group of ops.

mod composite;
mod contraction;
mod edges;
mod elementwise;
mod index;
mod reduce;
mod view;

use kiln_ir::{
    Engine, Expand, Op, Operand, OperandType, Operands, Result, Scalar, TensorData, block_on, infer,
};
use kiln_reference::Reference;

/// A tensor operand.
fn t(data: impl Into<TensorData>) -> Operand {
    Reference::new().write(data.into()).into()
}

/// A tensor operand with a shape.
fn shaped<E: kiln_ir::Element>(elements: &[E], shape: &[usize]) -> Operand {
    t(TensorData::new(elements.to_vec(), shape).unwrap())
}

/// A scalar operand.
fn n(x: impl Into<Scalar>) -> Operand {
    x.into().into()
}

/// All results of an op, or the first error.
fn outcome(op: &Op, inputs: &[Operand]) -> Result<Vec<TensorData>> {
    run_on(&Expand::new(Reference::new()), op, inputs)
}

fn run_on(engine: &dyn Engine, op: &Op, inputs: &[Operand]) -> Result<Vec<TensorData>> {
    let inputs: Operands = inputs.iter().cloned().collect();
    let types = infer(op, &OperandType::list(&inputs))?;
    let values = engine.execute(op, inputs, &types);
    assert_eq!(values.len(), types.len());
    values.into_iter().map(|value| block_on(engine.read(value))).collect()
}

/// The only result of an op.
#[track_caller]
fn run(op: &Op, inputs: &[Operand]) -> TensorData {
    let mut results = outcome(op, inputs).unwrap();
    assert_eq!(results.len(), 1);
    results.remove(0)
}

/// The only result of an op, as a vector.
#[track_caller]
fn vec_of<E: kiln_ir::Element>(op: &Op, inputs: &[Operand]) -> Vec<E> {
    run(op, inputs).into_vec().unwrap()
}

/// Asserts that numbers agree to about `f32` precision.
#[track_caller]
fn assert_close(found: &TensorData, expected: &[f64]) {
    let found = found.to_vec::<f64>();
    assert_eq!(found.len(), expected.len(), "{found:?} against {expected:?}");
    for (a, b) in found.iter().zip(expected) {
        let close = (a - b).abs() <= 1e-6 * b.abs().max(1.0) || a == b || (a.is_nan() && b.is_nan());
        assert!(close, "{found:?} against {expected:?}");
    }
}
