//! Forward mode: which values carry a tangent, and nesting. The suite checks every op.

use kiln_autodiff::Forward;
use kiln_ir::{
    DType, Engine, Error, Op, Operand, OperandType, TensorData, TensorType, Value, Var, block_on, infer,
};
use kiln_reference::Reference;
use std::sync::Arc;

fn layer() -> Forward {
    Forward::new(Arc::new(Reference::new()))
}

fn dual<'e>(layer: &'e Forward, x: &[f64], tangent: &[f64]) -> Var<'e> {
    let (x, tangent) = (layer.write(x.to_vec().into()), layer.write(tangent.to_vec().into()));
    Var::new(layer, layer.dual(x, tangent))
}

fn read(engine: &dyn Engine, value: Value) -> Result<Vec<f64>, Error> {
    block_on(engine.read(value)).and_then(TensorData::into_vec)
}

fn tangent(layer: &Forward, var: Var<'_>) -> Vec<f64> {
    let tangent = layer.tangent(&var.into_value()).expect("it changes");
    read(&**layer.inner(), tangent).expect("it is healthy")
}

#[test]
fn values_without_a_tangent_are_not_dual() {
    let layer = layer();
    let x = Var::new(&layer, layer.write([1.0f64, 2.0].into()));
    assert!(layer.tangent(&x.exp().into_value()).is_none());
}

#[test]
fn integers_comparisons_and_floor_have_no_tangent() {
    let layer = layer();
    let x = dual(&layer, &[1.5, 2.5], &[1.0, 1.0]);
    assert!(layer.tangent(&x.cast(DType::I32).into_value()).is_none());
    assert!(layer.tangent(&x.less(&x.scalar(2.0)).into_value()).is_none());
    assert!(layer.tangent(&x.floor().into_value()).is_none());
}

#[test]
fn one_operand_may_have_a_tangent_alone() {
    let layer = layer();
    let x = dual(&layer, &[2.0, 4.0], &[1.0, 10.0]);
    let constant = Var::new(&layer, layer.write([5.0f64, 8.0].into()));
    assert_eq!(tangent(&layer, &constant - &x), [-1.0, -10.0]);
    assert_eq!(tangent(&layer, &x * &constant), [5.0, 80.0]);
    assert_eq!(tangent(&layer, &constant / &x), [-1.25, -5.0]);
    assert_eq!(tangent(&layer, Var::concat(&[constant, x], 0)), [0.0, 0.0, 1.0, 10.0]);
}

#[test]
fn a_tangent_of_another_type_poisons() {
    let layer = layer();
    let (x, short) = (layer.write([1.0f64, 2.0].into()), layer.write([1.0f64].into()));
    let error = layer.dual(x, short).error().expect("it is poisoned").to_string();
    assert_eq!(
        error,
        "[jvp] a tangent of f64[1] for f64[2]\n  hint: a tangent has the type of the value that changes along it"
    );
    let int = layer.write([1i32].into());
    let error = layer.dual(int.clone(), int).error().expect("it is poisoned").to_string();
    assert_eq!(error, "[jvp] i32[1] has no derivative\n  hint: cast it to a float dtype first");
}

#[test]
fn ops_without_a_derivative_compute_values_and_poison_tangents() {
    let layer = layer();
    let x = dual(&layer, &[1.0, 2.0], &[1.0, 1.0]);
    let y = x.apply(Op::Bitcast(DType::F64), &[]).into_value();
    let error = layer.tangent(&y).and_then(|tangent| tangent.error().cloned()).expect("it is poisoned");
    assert!(error.to_string().starts_with("[bitcast] has no derivative\n  hint: "), "{error}");
    assert_eq!(read(&layer, y), Ok(vec![1.0, 2.0]));
}

#[test]
fn poison_propagates() {
    let layer = layer();
    let error = Error::value("test", "broken");
    let ty = TensorType::new([2], DType::F64);
    let x = dual(&layer, &[1.0, 4.0], &[1.0, 1.0]);
    let broken = Var::new(&layer, Value::poisoned(ty, error.clone()));
    assert_eq!((&x * &broken).into_value().error(), Some(&error));
    let changes_badly = Var::new(&layer, layer.dual(x.into_value(), Value::poisoned(ty, error.clone())));
    let y = changes_badly.sqrt().into_value();
    assert_eq!(layer.tangent(&y).and_then(|tangent| tangent.error().cloned()), Some(error));
    assert_eq!(read(&layer, y), Ok(vec![1.0, 2.0]));
}

#[test]
fn forward_mode_nests() {
    // x³ along 1, twice: 6x.
    let inner = layer();
    let outer = Forward::new(Arc::new(inner.clone()));
    let one = || inner.write([1.0f64].into());
    let x = inner.dual(inner.write([2.0f64].into()), one());
    let x = Var::new(&outer, outer.dual(x, one()));
    let first = outer.tangent(&(&x * &x * &x).into_value()).expect("it changes");
    let second = inner.tangent(&first).expect("it changes");
    assert_eq!(read(&**inner.inner(), second), Ok(vec![12.0]));
    assert_eq!(read(&outer, first), Ok(vec![12.0]));
}

#[test]
fn an_owned_operand_is_overwritten_not_shared() {
    let layer = layer();
    let x = dual(&layer, &[1.0, 4.0], &[1.0, 1.0]).into_value();
    let kept = x.clone();
    let op = Op::Unary(kiln_ir::Unary::Sqrt);
    let inputs: kiln_ir::Operands = [Operand::Value(x)].into_iter().collect();
    let types = infer(&op, &OperandType::list(&inputs)).expect("a valid op");
    let y = layer.execute(&op, inputs, &types).remove(0);
    assert_eq!(read(&layer, kept), Ok(vec![1.0, 4.0]));
    assert_eq!(tangent(&layer, Var::new(&layer, y)), [0.5, 0.25]);
}
