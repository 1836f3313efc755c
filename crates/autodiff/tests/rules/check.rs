//! Gradient checking by finite differences.

use crate::rules::cases::{Case, Input};
use kiln_autodiff::{Autodiff, Checkpointing};
use kiln_ir::{Engine, Expand, Op, Operand, OperandType, Operands, TensorData, Value, Var, block_on, infer};
use kiln_reference::Reference;
use std::sync::Arc;

const STEP: f64 = 1e-5;
const TOLERANCE: f64 = 2e-6;

/// Checks all first and second derivatives.
pub(crate) fn check(case: &Case) -> Result<(), String> {
    let floats: Vec<usize> = case.floats();
    let mut sets: Vec<Vec<usize>> = vec![floats.clone()];
    if floats.len() > 1 {
        sets.extend(floats.iter().map(|&place| vec![place]));
    }
    for tracked in sets {
        let named = |error: String| format!("{} wrt {tracked:?}: {error}", case.name);
        first_order(case, &tracked).map_err(named)?;
        second_order(case, &tracked).map_err(named)?;
    }
    Ok(())
}

fn first_order(case: &Case, tracked: &[usize]) -> Result<(), String> {
    let found = gradients(case, &case.inputs, tracked)?;
    for (k, &place) in tracked.iter().enumerate() {
        let expected = differences(case, place, |inputs| loss_of(case, inputs));
        compare("gradient", place, &found[k], &expected)?;
    }
    Ok(())
}

fn second_order(case: &Case, tracked: &[usize]) -> Result<(), String> {
    let found = second_gradients(case, tracked)?;
    for (k, &place) in tracked.iter().enumerate() {
        let weighted = |inputs: &[Input]| {
            let gradients = gradients(case, inputs, tracked)?;
            Ok(gradients.iter().enumerate().map(|(k, g)| dot(g, &weights(g.len(), 7 + k))).sum())
        };
        let expected = differences(case, place, weighted);
        compare("second gradient", place, &found[k], &expected)?;
    }
    Ok(())
}

/// Central differences of a function of the operands, by each element of one of them.
fn differences(
    case: &Case,
    place: usize,
    function: impl Fn(&[Input]) -> Result<f64, String>,
) -> Result<Vec<f64>, String> {
    let count = case.inputs[place].data().num_elements();
    let at = |i: usize, by: f64| {
        let mut inputs = case.inputs.clone();
        let mut elements = inputs[place].data().to_vec::<f64>();
        elements[i] += by;
        let shape = *inputs[place].data().shape();
        inputs[place] = Input::Float(TensorData::new(elements, shape).expect("same shape"));
        function(&inputs)
    };
    (0..count).map(|i| Ok((at(i, STEP)? - at(i, -STEP)?) / (2.0 * STEP))).collect()
}

fn compare(
    what: &str,
    place: usize,
    found: &[f64],
    expected: &Result<Vec<f64>, String>,
) -> Result<(), String> {
    let expected = expected.as_ref().map_err(Clone::clone)?;
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= TOLERANCE * (1.0 + b.abs());
    if found.len() != expected.len() || !found.iter().zip(expected).all(near) {
        return Err(format!("{what} of operand {place}\n  found    {found:?}\n  expected {expected:?}"));
    }
    Ok(())
}

fn loss_of(case: &Case, inputs: &[Input]) -> Result<f64, String> {
    let engine = Expand::new(Reference::new());
    let operands = inputs.iter().map(|input| input.write(&engine)).collect();
    read(&engine, loss(&engine, &case.op, operands)).map(|loss| loss[0])
}

fn gradients(case: &Case, inputs: &[Input], tracked: &[usize]) -> Result<Vec<Vec<f64>>, String> {
    let layer = Autodiff::new(Arc::new(Expand::new(Reference::new())), Checkpointing::None);
    let (operands, leaves) = track(&layer, inputs, tracked, |value| layer.require_grad(value));
    let found = layer.backward_owned(loss(&layer, &case.op, operands), None).map_err(|e| e.to_string())?;
    let gradient = |leaf: &Value| match found.get(leaf) {
        Some(gradient) => read(&**layer.inner(), gradient),
        None => Ok(vec![0.0; leaf.ty().num_elements()]),
    };
    leaves.iter().map(gradient).collect()
}

fn second_gradients(case: &Case, tracked: &[usize]) -> Result<Vec<Vec<f64>>, String> {
    let inner = Arc::new(Autodiff::new(Arc::new(Expand::new(Reference::new())), Checkpointing::None));
    let outer = Autodiff::new(inner.clone(), Checkpointing::None);
    let mut inner_leaves = Vec::new();
    let (operands, leaves) = track(&outer, &case.inputs, tracked, |value| {
        let leaf = inner.require_grad(value);
        inner_leaves.push(leaf.clone());
        outer.require_grad(leaf)
    });
    let first = outer.backward(&loss(&outer, &case.op, operands), None).map_err(|e| e.to_string())?;
    let mut total: Option<Var<'_>> = None;
    for (k, leaf) in leaves.iter().enumerate() {
        let Some(gradient) = first.get(leaf) else { continue };
        let part = weighted_sum(&Var::new(&*inner, gradient), 7 + k);
        total = Some(match total {
            Some(total) => total + part,
            None => part,
        });
    }
    let zeros = |leaf: &Value| vec![0.0; leaf.ty().num_elements()];
    let total = match total {
        Some(total) if inner.is_tracked(&total.clone().into_value()) => total.into_value(),
        Some(_) | None => return Ok(leaves.iter().map(zeros).collect()),
    };
    let second = inner.backward(&total, None).map_err(|e| e.to_string())?;
    let gradient = |leaf: &Value| match second.get(leaf) {
        Some(gradient) => read(&**inner.inner(), gradient),
        None => Ok(zeros(leaf)),
    };
    inner_leaves.iter().map(gradient).collect()
}

fn track(
    engine: &dyn Engine,
    inputs: &[Input],
    tracked: &[usize],
    mut leaf: impl FnMut(Value) -> Value,
) -> (Operands, Vec<Value>) {
    let mut leaves = Vec::new();
    let operand = |(place, input): (usize, &Input)| match input.write(engine) {
        Operand::Value(value) if tracked.contains(&place) => {
            let value = leaf(value);
            leaves.push(value.clone());
            Operand::Value(value)
        }
        operand @ (Operand::Value(_) | Operand::Scalar(_)) => operand,
    };
    let operands = inputs.iter().enumerate().map(operand).collect();
    (operands, leaves)
}

/// The weighted sum of all float results.
fn loss(engine: &dyn Engine, op: &Op, operands: Operands) -> Value {
    let types = infer(op, &OperandType::list(&operands)).expect("a valid case");
    let results = engine.execute(op, operands, &types);
    let floats = results.into_iter().enumerate().filter(|(_, value)| value.dtype().is_float());
    let parts = floats.map(|(k, value)| weighted_sum(&Var::new(engine, value), k));
    parts.reduce(|a, b| a + b).expect("a float result").into_value()
}

fn weighted_sum<'e>(x: &Var<'e>, seed: usize) -> Var<'e> {
    let data = TensorData::new(weights(x.shape().num_elements(), seed), x.shape()).expect("as many weights");
    let axes: Vec<usize> = (0..x.rank()).collect();
    (x * Var::new(x.engine(), x.engine().write(data))).sum(&axes).reshape([1])
}

fn weights(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 37 + seed * 101) as f64 * 0.7).sin() + 0.3).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn read(engine: &dyn Engine, value: Value) -> Result<Vec<f64>, String> {
    block_on(engine.read(value)).map(|data| data.to_vec()).map_err(|error| error.to_string())
}
