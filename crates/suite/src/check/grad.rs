//! Mode *grad*: gradients agree with finite differences.

use super::{HostOperand, Outcome, execute, guarded, host_operands, operands, read};
use crate::case::{Case, Grad, Input, Layouts};
use crate::engines::reference;
use crate::fill::Random;
use kiln_autodiff::{Autodiff, Checkpointing};
use kiln_ir::{DType, Element, Engine, Operand, Operands, Shape, TensorData, TensorType, Value, Var};
use std::sync::Arc;

/// Elements of each operand that are differentiated by differences; larger operands are sampled.
const SAMPLES: usize = 24;

/// Allowed difference, relative to 1 plus the magnitude of the gradients: truncation `h²` and rounding `epsilon / h`.
const FIRST_ORDER: f64 = 1e-6;
/// The same for second derivatives, by differences of first ones.
const SECOND_ORDER: f64 = 1e-5;

/// Returns whether gradients of the case are checked: it is differentiable, all its floats are `f64`, and it is small.
pub fn differentiates(case: &Case) -> bool {
    let promised = match case.grad {
        Grad::Smooth | Grad::Piecewise => true,
        Grad::None(_) => false,
    };
    let types = case.operand_types();
    let mut floats =
        types.iter().filter_map(|kind| kind.tensor()).filter(|ty| ty.dtype.is_float()).peekable();
    promised
        && case.layouts != Layouts::Few
        && floats.peek().is_some()
        && floats.all(|ty| ty.dtype == DType::F64)
        && case.result_types().is_ok_and(|types| types.iter().any(|ty| ty.dtype == DType::F64))
}

/// Compares the gradients of a random projection of the results, by [`Autodiff`] over the engine, with central
/// differences on the reference; for smooth cases the second derivatives too, by two layers.
pub fn check_grad(engine: Arc<dyn Engine>, case: &Case) -> Outcome {
    let list = host_operands(case);
    let mut outcome = Outcome::default();
    for checkpointing in [Checkpointing::None, Checkpointing::Balanced] {
        let result = guarded(|| first_order(engine.clone(), case, &list, checkpointing));
        let result = result.and_then(|outcome| outcome);
        outcome.absorb(&format!("{} first order {checkpointing:?}", case.name), result);
    }
    if case.grad == Grad::Smooth {
        let result = guarded(|| second_order(engine, case, &list)).and_then(|outcome| outcome);
        outcome.absorb(&format!("{} second order", case.name), result);
    }
    outcome
}

fn first_order(
    engine: Arc<dyn Engine>,
    case: &Case,
    list: &[HostOperand],
    checkpointing: Checkpointing,
) -> Result<Outcome, String> {
    let analytic = gradients(&Autodiff::new(engine, checkpointing), case, list)?;
    let numeric = |list: &[HostOperand]| Ok(projected(case, list));
    compare(list, &analytic, &numeric, 1e-5, FIRST_ORDER)
}

fn second_order(engine: Arc<dyn Engine>, case: &Case, list: &[HostOperand]) -> Result<Outcome, String> {
    let analytic = second_gradients(engine, case, list)?;
    let layer = Autodiff::new(Arc::new(reference()), Checkpointing::None);
    let numeric = |list: &[HostOperand]| {
        let gradients = gradients(&layer, case, list)?;
        let weigh = |(place, gradient): (usize, &Option<TensorData>)| match gradient {
            Some(gradient) => dot(gradient, &projection(case, "second", place, gradient.shape())),
            None => 0.0,
        };
        Ok(gradients.iter().enumerate().map(weigh).sum())
    };
    compare(list, &analytic, &numeric, 1e-4, SECOND_ORDER)
}

/// Fixed random weights for the scalar projection of the results.
pub(super) fn projection(case: &Case, purpose: &str, place: usize, shape: &Shape) -> TensorData {
    let mut random = Random::new(&format!("{}{purpose}", case.name), place as u64);
    let numbers: Vec<f64> = (0..shape.num_elements()).map(|_| random.normal()).collect();
    TensorData::new(numbers, *shape).expect("as many numbers as elements")
}

/// The weighted sum of results. Infinite elements (the `lse` of a query without visible keys) are constant and left
/// out, so that differences are finite.
pub(super) fn dot(results: &TensorData, weights: &TensorData) -> f64 {
    let (results, weights) = (results.to_vec::<f64>(), weights.to_vec::<f64>());
    results.iter().zip(weights).filter(|(x, _)| !x.is_infinite()).map(|(x, weight)| x * weight).sum()
}

/// Runs the case with operands made by `write`; operands that are results of other ops are computed here, so that
/// gradients flow through them.
pub(super) fn run(
    engine: &dyn Engine,
    case: &Case,
    list: &[HostOperand],
    write: &dyn Fn(usize, &TensorData) -> Value,
) -> TapeRun {
    let mut operands = operands(list, write);
    for (i, input) in case.inputs.iter().enumerate() {
        if let Input::Result { op, inputs, place } = input {
            let sources: Operands = inputs.iter().map(|&place| operands[place].clone()).collect();
            operands[i] = Operand::Value(execute(engine, op, sources).remove(*place));
        }
    }
    let results = execute(engine, &case.op, operands.clone());
    TapeRun { operands, results: results.into_vec() }
}

pub(super) struct TapeRun {
    pub(super) operands: Operands,
    pub(super) results: Vec<Value>,
}

/// The scalar projection of the results on the reference: the differentiated function.
fn projected(case: &Case, list: &[HostOperand]) -> f64 {
    let reference = reference();
    let ran = run(&reference, case, list, &|_, data| reference.write(data.clone()));
    let mut sum = 0.0;
    for (place, value) in ran.results.into_iter().enumerate() {
        if value.dtype().is_float() {
            let data = read(&reference, value).expect("the reference computes the case");
            sum += dot(&data, &projection(case, "first", place, data.shape()));
        }
    }
    sum
}

/// The projection as a value of an engine.
pub(super) fn loss(
    engine: &dyn Engine,
    case: &Case,
    purpose: &str,
    results: Vec<(usize, Value)>,
) -> Option<Value> {
    let mut sum: Option<Var<'_>> = None;
    for (place, value) in results {
        let weights = engine.write(projection(case, purpose, place, value.shape()));
        let result = Var::new(engine, value);
        let axes: Vec<usize> = (0..result.rank()).collect();
        let term = (result * Var::new(engine, weights)).sum(&axes).reshape([]);
        sum = Some(match sum {
            Some(sum) => sum + term,
            None => term,
        });
    }
    sum.map(Var::into_value)
}

pub(super) fn floats(results: Vec<Value>) -> Vec<(usize, Value)> {
    results.into_iter().enumerate().filter(|(_, value)| value.dtype().is_float()).collect()
}

/// The gradients of the projection by the filled float operands, on the host; `None` for other operands.
pub(super) fn gradients(
    layer: &Autodiff,
    case: &Case,
    list: &[HostOperand],
) -> Result<Vec<Option<TensorData>>, String> {
    let ran = run(layer, case, list, &|_, data| {
        let value = layer.write(data.clone());
        if data.dtype().is_float() { layer.require_grad(value) } else { value }
    });
    let Some(loss) = loss(layer, case, "first", floats(ran.results)) else {
        return Err("there is no float result".into());
    };
    let found = layer.backward(&loss, None).map_err(|error| error.to_string())?;
    let host = |(place, operand): (usize, &Operand)| {
        let Some(leaf) = leaf(case, list, place, operand) else { return Ok(None) };
        match found.get(leaf) {
            Some(gradient) => {
                let data = read(&**layer.inner(), gradient).map_err(|error| error.to_string())?;
                Ok(Some(data))
            }
            None => Ok(Some(TensorData::zeros(*leaf.ty()))),
        }
    };
    ran.operands.iter().enumerate().map(host).collect()
}

/// The operand, if it is a float tensor of the case.
pub(super) fn leaf<'a>(
    case: &Case,
    list: &[HostOperand],
    place: usize,
    operand: &'a Operand,
) -> Option<&'a Value> {
    let is_given = match &list[place] {
        HostOperand::Tensor(data) => data.dtype().is_float(),
        HostOperand::Scalar(_) | HostOperand::SameAs(_) => false,
    };
    let is_computed = matches!(case.inputs[place], Input::Result { .. });
    if is_given && !is_computed { operand.value() } else { None }
}

/// The gradients of a projection of the gradients, by two layers.
fn second_gradients(
    engine: Arc<dyn Engine>,
    case: &Case,
    list: &[HostOperand],
) -> Result<Vec<Option<TensorData>>, String> {
    let inner = Autodiff::new(engine, Checkpointing::None);
    let outer = Autodiff::new(Arc::new(inner.clone()), Checkpointing::None);
    // The inner leaves, which the outer leaves wrap.
    let leaves: Vec<Option<Value>> = list
        .iter()
        .map(|operand| match operand {
            HostOperand::Tensor(data) if data.dtype().is_float() => {
                Some(inner.require_grad(inner.write(data.clone())))
            }
            HostOperand::Tensor(_) | HostOperand::Scalar(_) | HostOperand::SameAs(_) => None,
        })
        .collect();
    let ran = run(&outer, case, list, &|place, data| match &leaves[place] {
        Some(leaf) => outer.require_grad(leaf.clone()),
        None => outer.write(data.clone()),
    });
    let value = loss(&outer, case, "first", floats(ran.results)).ok_or("there is no float result")?;
    let found = outer.backward(&value, None).map_err(|error| format!("outer: {error}"))?;
    let is_leaf = |place: usize| leaf(case, list, place, &ran.operands[place]).is_some();
    let gradients: Vec<(usize, Value)> = (0..list.len())
        .filter(|&place| is_leaf(place))
        .filter_map(|place| Some((place, found.get(ran.operands[place].value()?)?)))
        .collect();
    let value = loss(&inner, case, "second", gradients);
    let second = match value {
        // The gradients of a linear op do not depend on its operands.
        Some(value) if inner.is_tracked(&value) => {
            Some(inner.backward(&value, None).map_err(|error| format!("inner: {error}"))?)
        }
        Some(value) => {
            read(&inner, value).map_err(|error| error.to_string())?;
            None
        }
        None => None,
    };
    let host = |(place, operand): (usize, &HostOperand)| {
        let (HostOperand::Tensor(data), true, Some(leaf)) = (operand, is_leaf(place), &leaves[place]) else {
            return Ok(None);
        };
        match second.as_ref().and_then(|second| second.get(leaf)) {
            Some(gradient) => {
                let data = read(&**inner.inner(), gradient).map_err(|error| error.to_string())?;
                Ok(Some(data))
            }
            None => Ok(Some(TensorData::zeros(data.ty()))),
        }
    };
    list.iter().enumerate().map(host).collect()
}

/// Compares gradients with central differences of `function` with step `h` (times the magnitude of the element, if
/// above 1).
fn compare(
    list: &[HostOperand],
    analytic: &[Option<TensorData>],
    function: &dyn Fn(&[HostOperand]) -> Result<f64, String>,
    h: f64,
    tolerance: f64,
) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    for (place, gradient) in analytic.iter().enumerate() {
        let (Some(gradient), HostOperand::Tensor(data)) = (gradient, &list[place]) else { continue };
        let name = format!("gradient {place}");
        compare_slopes(&mut outcome, &name, (gradient, data.ty()), SAMPLES, tolerance, |element| {
            slope(list, place, element, function, h)
        })?;
    }
    Ok(outcome)
}

/// Compares a gradient, of an operand of that type, with the slopes at its elements; of more elements, with `samples`.
pub(crate) fn compare_slopes(
    outcome: &mut Outcome,
    name: &str,
    (gradient, ty): (&TensorData, TensorType),
    samples: usize,
    tolerance: f64,
    slope: impl Fn(usize) -> Result<f64, String>,
) -> Result<(), String> {
    let wrong_type = gradient.ty() != ty;
    outcome.note(name, wrong_type.then(|| format!("type {} of operand {ty}", gradient.ty())));
    if wrong_type {
        return Ok(());
    }
    let gradient = gradient.to_vec::<f64>();
    let scale = 1.0 + gradient.iter().fold(0.0, |most: f64, g| most.max(g.abs()));
    for element in sampled(gradient.len(), samples) {
        let numeric = slope(element)?;
        let agrees = (gradient[element] - numeric).abs() <= tolerance * scale;
        let problem = || format!("element {element}: {} instead of about {numeric}", gradient[element]);
        outcome.note(name, (!agrees).then(problem));
    }
    Ok(())
}

fn sampled(count: usize, samples: usize) -> Vec<usize> {
    if count <= samples {
        return (0..count).collect();
    }
    let mut random = Random::new("samples", count as u64);
    (0..samples).map(|_| random.below(count)).collect()
}

fn slope(
    list: &[HostOperand],
    place: usize,
    element: usize,
    function: &dyn Fn(&[HostOperand]) -> Result<f64, String>,
    h: f64,
) -> Result<f64, String> {
    let HostOperand::Tensor(data) = &list[place] else { return Ok(0.0) };
    let x = data.to_vec::<f64>()[element];
    let (low, high) = (x - h * x.abs().max(1.0), x + h * x.abs().max(1.0));
    let at = |x: f64| {
        let mut moved = list.to_vec();
        if let HostOperand::Tensor(data) = &mut moved[place]
            && let Some(elements) = f64::slice_mut(data.elements_mut())
        {
            elements[element] = x;
        }
        function(&moved)
    };
    Ok((at(high)? - at(low)?) / (high - low))
}
