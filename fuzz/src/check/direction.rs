//! Checks that forward mode and gradient programs agree with reverse mode.

use super::forward_values::ForwardValues;
use super::gradient::Projection;
use super::{Check, Counts, Failure, Subjects, round_trip};
use crate::random::Random;
use crate::trace::read;
use crate::trial::Trial;
use kiln_autodiff::Forward;
use kiln_ir::{DType, Engine, Op, TensorData, Values, gradient_program, verify};

/// Allowed difference of two sums of the same terms in another order, relative to the sum of their magnitudes. Both are
/// computed in `f64`, through chains of ops that may lose a few digits.
const RELATIVE: f64 = 1e-7;

/// For the gradients `g` of the projection `w · f(x)` by reverse mode, checks that forward mode along a random
/// direction `v` returns `w · Jv = g · v`, and that the gradient program returns `g`.
pub(super) fn check(
    trial: &Trial,
    function: &Projection<'_>,
    values: &ForwardValues,
    gradients: &[Option<TensorData>],
    subjects: &Subjects,
    counts: &mut Counts,
) -> Result<(), Failure> {
    // With ties, each mode may choose another element.
    let open = |failure: Failure| if values.have_ties() { Ok(()) } else { Err(failure) };
    let is_finite = |data: &TensorData| data.to_vec::<f64>().iter().all(|x| x.is_finite());
    if !gradients.iter().flatten().all(is_finite) {
        return Ok(());
    }
    forward(trial, function, gradients, subjects, counts).or_else(open)?;
    // After `NonZero`, the actual shapes differ from those of the gradient program.
    let is_open =
        |trial: &Trial| trial.program.instructions.iter().any(|i| matches!(i.op, Op::NonZero { .. }));
    if is_open(trial) {
        return Ok(());
    }
    program(trial, function, gradients, subjects, counts).or_else(open)
}

fn forward(
    trial: &Trial,
    function: &Projection<'_>,
    gradients: &[Option<TensorData>],
    subjects: &Subjects,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let failed = |message: String| Failure::of_program(Check::Forward, message);
    let layer = Forward::new(subjects.one.clone());
    let mut random = Random::new(31, trial.inputs.len() as u64);
    let (mut reverse, mut magnitude) = (0.0, 0.0);
    let mut inputs = Values::new();
    for (data, gradient) in trial.inputs.iter().zip(gradients) {
        let value = layer.write(data.clone());
        let Some(gradient) = gradient else {
            inputs.push(value);
            continue;
        };
        let direction: Vec<f64> = (0..data.num_elements()).map(|_| 2.0 * random.uniform() - 1.0).collect();
        for (g, v) in gradient.to_vec::<f64>().iter().zip(&direction) {
            reverse += g * v;
            magnitude += (g * v).abs();
        }
        let direction = TensorData::new(direction, *data.shape()).expect("one for each element");
        inputs.push(layer.dual(value, layer.inner().write(direction)));
    }
    let mut along = 0.0;
    for (place, output) in trial.program.run(&layer, inputs).into_iter().enumerate() {
        if output.dtype() != DType::F64 {
            continue;
        }
        let Some(tangent) = layer.tangent(&output) else { continue };
        let list = read(&**layer.inner(), tangent).map_err(failed)?.to_vec::<f64>();
        for (t, weight) in list.iter().zip(function.weights(place, list.len())) {
            along += t * weight;
            magnitude += (t * weight).abs();
        }
    }
    if !magnitude.is_finite() {
        return Ok(());
    }
    counts.directions += 1;
    if (along - reverse).abs() <= RELATIVE * magnitude + 1e-9 {
        return Ok(());
    }
    Err(failed(format!("the derivative along a direction is {along}, by reverse mode {reverse}")))
}

fn program(
    trial: &Trial,
    function: &Projection<'_>,
    gradients: &[Option<TensorData>],
    subjects: &Subjects,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let failed = |message: String| Failure::of_program(Check::GradientProgram, message);
    let program = gradient_program(&trial.program).map_err(|error| failed(error.to_string()))?;
    verify(&program).map_err(|error| failed(format!("invalid: {error}\n{program}")))?;
    round_trip(&program).map_err(failed)?;
    let engine = &*subjects.one;
    let mut inputs: Values = trial.inputs.iter().map(|data| engine.write(data.clone())).collect();
    for ty in &program.inputs[inputs.len()..] {
        let place = function.float_output(inputs.len() - trial.inputs.len());
        // A scalar output has no gradient, and so no input here.
        let weights = TensorData::new(function.weights(place, ty.num_elements()), ty.shape).expect("as many");
        let is_weighted = ty.dtype == DType::F64;
        inputs.push(engine.write(if is_weighted { weights } else { TensorData::zeros(*ty) }));
    }
    // The program returns a gradient for each float input; only those of `f64` inputs are compared.
    let floats = gradients.iter().zip(&trial.inputs).filter(|(_, data)| data.dtype().is_float());
    let results = program.run(engine, inputs);
    for (place, (value, (expected, _))) in results.into_iter().zip(floats).enumerate() {
        let Some(expected) = expected else { continue };
        let data = read(engine, value).map_err(failed)?;
        let (found, expected) = (data.to_vec::<f64>(), expected.to_vec::<f64>());
        let most = expected.iter().fold(0.0, |most: f64, x| x.abs().max(most));
        counts.directions += 1;
        let agrees = |(a, b): (&f64, &f64)| (a - b).abs() <= RELATIVE * (1.0 + most);
        if let Some(element) = found.iter().zip(&expected).position(|pair| !agrees(pair)) {
            let text = format!("element {element}: {} instead of {}", found[element], expected[element]);
            return Err(failed(format!("gradient {place}: {text}")));
        }
    }
    Ok(())
}
