//! Mode *forward*: JVPs agree with gradients and with finite differences.

use super::grad::{TapeRun, dot, floats, gradients, leaf, loss, projection, run};
use super::{HostOperand, Outcome, guarded, host_operands, read};
use crate::case::{Case, Grad};
use crate::engines::reference;
use crate::fill::Random;
use kiln_autodiff::{Autodiff, Checkpointing, Forward};
use kiln_ir::{Element, Engine, TensorData, TensorType, Value};
use std::sync::Arc;

/// Allowed difference from gradients, of 1 plus the magnitude: both are analytic.
const ANALYTIC: f64 = 1e-9;
/// Allowed difference from central differences.
const NUMERIC: f64 = 1e-5;

/// Compares, for the Jacobian `J` of the case and random `u` and `v`, `u · J v` by [`Forward`] with `v · Jᵀ u` by
/// [`Autodiff`], for tangents of all float operands together and of each alone, and with central differences. For
/// smooth cases, compares Hessian-vector products, forward over reverse and reverse over forward, with differences of
/// gradients.
pub fn check_forward(engine: &Arc<dyn Engine>, case: &Case) -> Outcome {
    let list = host_operands(case);
    let mut outcome = Outcome::default();
    let result = guarded(|| first_order(engine, case, &list)).and_then(|outcome| outcome);
    outcome.absorb(&format!("{} first order", case.name), result);
    if case.grad == Grad::Smooth {
        let result = guarded(|| second_order(engine, case, &list)).and_then(|outcome| outcome);
        outcome.absorb(&format!("{} second order", case.name), result);
    }
    outcome
}

fn first_order(engine: &Arc<dyn Engine>, case: &Case, list: &[HostOperand]) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let layer = Forward::new(engine.clone());
    let gradients = gradients(&Autodiff::new(engine.clone(), Checkpointing::None), case, list)?;
    let share = |place: usize| match &gradients[place] {
        Some(gradient) => dot(gradient, &direction(case, place, gradient.ty())),
        None => 0.0,
    };
    let scale = |place: usize| gradients[place].as_ref().map_or(1.0, |g| 1.0 + magnitude(g));
    let places: Vec<usize> = (0..list.len()).filter(|&place| gradients[place].is_some()).collect();
    let mut masks: Vec<Vec<usize>> = places.iter().map(|&place| vec![place]).collect();
    masks.push(places.clone());
    let mut all = 0.0;
    for mask in masks {
        all = forward(&layer, case, list, &mask)?;
        let expected: f64 = mask.iter().map(|&place| share(place)).sum();
        let allowed = ANALYTIC * mask.iter().map(|&place| scale(place)).fold(1.0 + expected.abs(), f64::max);
        let problem = || format!("{all} instead of {expected} from gradients");
        let agrees = (all - expected).abs() <= allowed;
        outcome.note(&format!("operands {mask:?}"), (!agrees).then(problem));
    }
    let h = 1e-6;
    let moved = |h: f64| projected(case, &moved(case, list, h));
    let numeric = (moved(h) - moved(-h)) / (2.0 * h);
    let allowed = NUMERIC * places.iter().map(|&place| scale(place)).fold(1.0 + all.abs(), f64::max);
    let problem = || format!("{all} instead of about {numeric}");
    outcome.note("differences", ((all - numeric).abs() > allowed).then(problem));
    Ok(outcome)
}

fn second_order(engine: &Arc<dyn Engine>, case: &Case, list: &[HostOperand]) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let found = [
        forward_over_reverse(engine.clone(), case, list)?,
        reverse_over_forward(engine.clone(), case, list)?,
    ];
    let h = 1e-5;
    let reference = Autodiff::new(Arc::new(reference()), Checkpointing::None);
    let at = |h: f64| gradients(&reference, case, &moved(case, list, h));
    let (after, before) = (at(h)?, at(-h)?);
    for (name, products) in ["forward over reverse", "reverse over forward"].into_iter().zip(found) {
        for (place, (after, before)) in after.iter().zip(&before).enumerate() {
            let (Some(after), Some(before), Some(product)) = (after, before, &products[place]) else {
                continue;
            };
            let allowed = 4.0 * NUMERIC * (1.0 + magnitude(product)).max(magnitude(after));
            let numeric = after.to_vec::<f64>().into_iter().zip(before.to_vec::<f64>());
            let problem = product.to_vec::<f64>().into_iter().zip(numeric).enumerate().find_map(
                |(element, (found, (after, before)))| {
                    let numeric = (after - before) / (2.0 * h);
                    let agrees = (found - numeric).abs() <= allowed;
                    (!agrees).then(|| format!("element {element}: {found} instead of about {numeric}"))
                },
            );
            outcome.note(&format!("{name}, operand {place}"), problem);
        }
    }
    Ok(outcome)
}

/// The tangent of an operand.
fn direction(case: &Case, place: usize, ty: TensorType) -> TensorData {
    let mut random = Random::new(&format!("{}direction", case.name), place as u64);
    let numbers: Vec<f64> = (0..ty.num_elements()).map(|_| random.normal()).collect();
    TensorData::new(numbers, ty.shape).expect("as many numbers as elements")
}

fn magnitude(data: &TensorData) -> f64 {
    data.to_vec::<f64>().into_iter().fold(0.0, |most: f64, x| most.max(x.abs()))
}

/// The float operands, moved by `h` along their tangents.
fn moved(case: &Case, list: &[HostOperand], h: f64) -> Vec<HostOperand> {
    let mut moved = list.to_vec();
    for (place, operand) in moved.iter_mut().enumerate() {
        if let HostOperand::Tensor(data) = operand
            && data.dtype().is_float()
        {
            let direction = direction(case, place, data.ty()).to_vec::<f64>();
            if let Some(elements) = f64::slice_mut(data.elements_mut()) {
                elements.iter_mut().zip(direction).for_each(|(x, v)| *x += h * v);
            }
        }
    }
    moved
}

/// The projection of the results on the reference.
fn projected(case: &Case, list: &[HostOperand]) -> f64 {
    let reference = reference();
    let ran = run(&reference, case, list, &|_, data| reference.write(data.clone()));
    let weigh = |(place, value): (usize, Value)| {
        let data = read(&reference, value).expect("the reference computes the case");
        dot(&data, &projection(case, "first", place, data.shape()))
    };
    floats(ran.results).into_iter().map(weigh).sum()
}

/// The projection of the result tangents, with tangents of the operands at some indices.
fn forward(layer: &Forward, case: &Case, list: &[HostOperand], places: &[usize]) -> Result<f64, String> {
    let ran = run(layer, case, list, &|place, data| {
        let value = layer.write(data.clone());
        match places.contains(&place) {
            true => layer.dual(value, layer.write(direction(case, place, data.ty()))),
            false => value,
        }
    });
    let mut sum = 0.0;
    for (place, value) in floats(ran.results) {
        let Some(tangent) = layer.tangent(&value) else { continue };
        let tangent = read(&**layer.inner(), tangent).map_err(|error| error.to_string())?;
        let primal = read(layer, value).map_err(|error| error.to_string())?;
        let weights = projection(case, "first", place, primal.shape());
        let weighed = tangent.to_vec::<f64>().into_iter().zip(weights.to_vec::<f64>());
        let finite = weighed.zip(primal.to_vec::<f64>()).filter(|(_, x)| !x.is_infinite());
        sum += finite.map(|((tangent, weight), _)| tangent * weight).sum::<f64>();
    }
    Ok(sum)
}

/// The tangents of gradients: a tape over dual values.
fn forward_over_reverse(
    engine: Arc<dyn Engine>,
    case: &Case,
    list: &[HostOperand],
) -> Result<Vec<Option<TensorData>>, String> {
    let forward = Forward::new(engine);
    let tape = Autodiff::new(Arc::new(forward.clone()), Checkpointing::None);
    let ran = run(&tape, case, list, &|place, data| {
        let value = tape.write(data.clone());
        if !data.dtype().is_float() {
            return value;
        }
        tape.require_grad(forward.dual(value, forward.write(direction(case, place, data.ty()))))
    });
    let value = loss(&tape, case, "first", floats(ran.results)).ok_or("there is no float result")?;
    let found = tape.backward(&value, None).map_err(|error| error.to_string())?;
    products(case, list, &ran.operands, |leaf| {
        let tangent = found.get(leaf).and_then(|gradient| forward.tangent(&gradient));
        tangent.map(|tangent| read(&**forward.inner(), tangent))
    })
}

/// The gradients of tangents: dual values over a tape.
fn reverse_over_forward(
    engine: Arc<dyn Engine>,
    case: &Case,
    list: &[HostOperand],
) -> Result<Vec<Option<TensorData>>, String> {
    let tape = Autodiff::new(engine, Checkpointing::None);
    let forward = Forward::new(Arc::new(tape.clone()));
    let TapeRun { operands, results } = run(&forward, case, list, &|place, data| {
        let value = forward.write(data.clone());
        if !data.dtype().is_float() {
            return value;
        }
        forward.dual(tape.require_grad(value), forward.write(direction(case, place, data.ty())))
    });
    let tangents = floats(results).into_iter();
    let tangents = tangents.filter_map(|(place, value)| Some((place, forward.tangent(&value)?))).collect();
    let value = loss(&tape, case, "first", tangents);
    let found = match value {
        // The tangents of a linear op do not depend on its operands.
        Some(value) if tape.is_tracked(&value) => {
            tape.backward(&value, None).map_err(|error| error.to_string())?
        }
        Some(_) | None => kiln_autodiff::Gradients::new(),
    };
    products(case, list, &operands, |leaf| {
        found.get(&forward.primal(leaf)).map(|gradient| read(&**tape.inner(), gradient))
    })
}

/// A product for every filled float operand, zeros where there is none.
fn products(
    case: &Case,
    list: &[HostOperand],
    operands: &kiln_ir::Operands,
    product: impl Fn(&Value) -> Option<kiln_ir::Result<TensorData>>,
) -> Result<Vec<Option<TensorData>>, String> {
    let host = |(place, operand): (usize, &kiln_ir::Operand)| {
        let Some(leaf) = leaf(case, list, place, operand) else { return Ok(None) };
        match product(leaf) {
            Some(data) => data.map(Some).map_err(|error| error.to_string()),
            None => Ok(Some(TensorData::zeros(*leaf.ty()))),
        }
    };
    operands.iter().enumerate().map(host).collect()
}
