//! Checks that gradients agree with finite differences.

use super::forward_values::ForwardValues;
use super::{Check, Counts, Failure, Subjects, direction};
use crate::random::Random;
use crate::trace::read;
use crate::trial::Trial;
use kiln_autodiff::{Autodiff, Checkpointing};
use kiln_ir::{DType, Element, Engine, Expand, ProgramOperand, TensorData, Value, Values, Var};
use kiln_suite::engines::reference;

/// Differentiated elements per input.
const SAMPLES: usize = 3;

/// The step of differences, relative to 1 or the magnitude of the element.
const STEP: f64 = 1e-5;

/// Gradients above this are not compared: differences of steep functions are inaccurate.
const STEEPEST: f64 = 1e5;

/// Programs with values above this are not differentiated: cancellation may leave no digit of a gradient.
const LARGEST: f64 = 1e5;

/// Compares the gradients of a random projection of the outputs, by [`Autodiff`] over the engine under test, with
/// central differences on the reference.
///
/// A difference counts if two step sizes agree and both one-sided differences agree, which excludes kinks.
pub(super) fn check(trial: &Trial, subjects: &Subjects, counts: &mut Counts) -> Result<(), Failure> {
    if !trial.smooth || !trial.inputs.iter().any(|data| data.dtype() == DType::F64) {
        return Ok(());
    }
    let function = Projection::new(trial);
    let values = ForwardValues::of(trial);
    let Some(here) = function.at(&trial.inputs).filter(|_| values.largest() <= LARGEST) else {
        counts.gradients_skipped += 1;
        return Ok(());
    };
    let odd = trial.program.instructions.len() % 2 == 1;
    let checkpointing = if odd { Checkpointing::Balanced } else { Checkpointing::None };
    let layer = Autodiff::new(subjects.one.clone(), checkpointing);
    let gradients = function.gradients(&layer).map_err(|text| Failure::of_program(Check::Gradient, text))?;
    let Some(gradients) = gradients else { return Ok(()) };
    let steepest = gradients
        .iter()
        .flatten()
        .flat_map(|g| g.to_vec::<f64>())
        .fold(0.0, |most: f64, g| most.max(g.abs()));
    direction::check(trial, &function, &values, &gradients, subjects, counts)?;
    let is_singular = gradients.iter().flatten().any(has_nonfinite) && values.are_singular();
    let mut random = Random::new(17, trial.inputs.len() as u64);
    for (place, gradient) in gradients.iter().enumerate() {
        let Some(gradient) = gradient else { continue };
        if gradient.ty() != trial.inputs[place].ty() {
            let text = format!("of input {place}: type {} of {}", gradient.ty(), trial.inputs[place].ty());
            return Err(Failure::of_program(Check::Gradient, text));
        }
        let gradient = gradient.to_vec::<f64>();
        let elements = random.permutation(gradient.len());
        for &element in elements.iter().take(SAMPLES) {
            let Some(slope) = function.slope(place, element, here, STEP) else {
                counts.gradients_skipped += 1;
                continue;
            };
            let nothing = !gradient[element].is_finite() && is_singular;
            if slope.value.abs() > STEEPEST || nothing {
                counts.gradients_skipped += 1;
                continue;
            }
            counts.gradients += 1;
            let g = gradient[element];
            let steep = if steepest.is_finite() { steepest.min(STEEPEST) } else { 1.0 };
            let allowed = 1e-6 * (1.0 + slope.value.abs() + 1e-2 * steep) + slope.doubt;
            let agrees = (g - slope.value).abs() <= allowed;
            let is_unsteady = || values.have_ties() || values.have_dense_jumps(1e-2 / STEP);
            if !agrees && (is_unsteady() || function.jumps(place, element, here, &slope)) {
                counts.gradients -= 1;
                counts.gradients_skipped += 1;
            } else if !agrees {
                let text =
                    format!("element {element} of input {place}: {g} instead of about {}", slope.value);
                return Err(Failure::of_program(Check::Gradient, text));
            }
        }
    }
    Ok(())
}

fn has_nonfinite(data: &TensorData) -> bool {
    data.dtype().is_float() && data.to_vec::<f64>().iter().any(|x| !x.is_finite())
}

/// The scalar projection of a program: the sum of all float outputs times random weights.
pub(super) struct Projection<'a> {
    trial: &'a Trial,
    reference: Expand,
}

/// The value of a projection, and the sum of the magnitudes of its terms.
#[derive(Clone, Copy)]
struct Projected {
    value: f64,
    magnitude: f64,
}

/// A derivative by finite differences, with its error bound.
struct Slope {
    value: f64,
    doubt: f64,
}

impl Projection<'_> {
    fn new(trial: &Trial) -> Projection<'_> {
        Projection { trial, reference: reference() }
    }

    /// The output index of a float output.
    pub(super) fn float_output(&self, number: usize) -> usize {
        let types = self.trial.program.slot_types();
        let is_float = |place: &usize| match self.trial.program.outputs[*place] {
            ProgramOperand::Slot(slot) => types[slot].dtype.is_float(),
            ProgramOperand::Scalar(_) => false,
        };
        (0..self.trial.program.outputs.len())
            .filter(is_float)
            .nth(number)
            .expect("an input for each float output")
    }

    /// Fixed weights of the elements of an output.
    pub(super) fn weights(&self, place: usize, count: usize) -> Vec<f64> {
        let mut random = Random::new(23, place as u64);
        (0..count).map(|_| 2.0 * random.uniform() - 1.0).collect()
    }

    /// Weights of the elements of an output, in `f64`.
    pub(super) fn weights_of(place: usize, output: &Value) -> TensorData {
        let mut random = Random::new(23, place as u64);
        let list = (0..output.ty().num_elements()).map(|_| 2.0 * random.uniform() - 1.0).collect();
        TensorData::new(list, *output.shape()).expect("one for each element")
    }

    /// The value for these inputs; `None` if it is not finite.
    fn at(&self, inputs: &[TensorData]) -> Option<Projected> {
        let values: Values = inputs.iter().map(|data| self.reference.write(data.clone())).collect();
        let outputs = self.trial.program.run(&self.reference, values);
        let mut total = Projected { value: 0.0, magnitude: 0.0 };
        for (place, output) in outputs.into_iter().enumerate() {
            if output.dtype() != DType::F64 {
                continue;
            }
            let list = read(&self.reference, output).ok()?.to_vec::<f64>();
            for (x, weight) in list.iter().zip(self.weights(place, list.len())) {
                total.value += x * weight;
                total.magnitude += (x * weight).abs();
            }
        }
        total.magnitude.is_finite().then_some(total)
    }

    /// The gradients of the float inputs, by a layer: `None` for other inputs, and overall if no float output depends
    /// on an input.
    fn gradients(&self, layer: &Autodiff) -> Result<Option<Vec<Option<TensorData>>>, String> {
        let leaf = |data: &TensorData| {
            let value = layer.write(data.clone());
            if data.dtype() == DType::F64 { layer.require_grad(value) } else { value }
        };
        let leaves: Values = self.trial.inputs.iter().map(leaf).collect();
        let outputs = self.trial.program.run(layer, leaves.clone());
        let Some(loss) = self.loss(layer, outputs) else { return Ok(None) };
        if !layer.is_tracked(&loss) {
            let zeros =
                |data: &TensorData| (data.dtype() == DType::F64).then(|| TensorData::zeros(data.ty()));
            return Ok(Some(self.trial.inputs.iter().map(zeros).collect()));
        }
        let found = layer.backward(&loss, None).map_err(|error| error.to_string())?;
        let host = |leaf: &Value| {
            if leaf.dtype() != DType::F64 {
                return Ok(None);
            }
            match found.get(leaf) {
                Some(gradient) => read(&**layer.inner(), gradient).map(Some),
                None => Ok(Some(TensorData::zeros(*leaf.ty()))),
            }
        };
        leaves.iter().map(host).collect::<Result<Vec<_>, _>>().map(Some)
    }

    fn loss(&self, layer: &Autodiff, outputs: Values) -> Option<Value> {
        let mut sum: Option<Var<'_>> = None;
        for (place, output) in outputs.into_iter().enumerate() {
            if output.dtype() != DType::F64 {
                continue;
            }
            let weights = self.weights(place, output.ty().num_elements());
            let weights = TensorData::new(weights, *output.shape()).expect("one for each element");
            let output = Var::new(layer, output);
            let axes: Vec<usize> = (0..output.rank()).collect();
            let term = (output * Var::new(layer, layer.write(weights))).sum(&axes).reshape([]);
            sum = Some(match sum {
                Some(sum) => sum + term,
                None => term,
            });
        }
        sum.map(Var::into_value)
    }

    /// Whether a much smaller step gives another derivative, because the function jumps or is too steep.
    fn jumps(&self, place: usize, element: usize, here: Projected, slope: &Slope) -> bool {
        let finer = self.slope(place, element, here, STEP * 1e-3);
        finer.is_none_or(|finer| {
            let scale = 1.0 + slope.value.abs();
            (finer.value - slope.value).abs() > 1e-2 * scale + finer.doubt
        })
    }

    /// The derivative by one element of an input; `None` if finite differences are unreliable.
    fn slope(&self, place: usize, element: usize, here: Projected, step: f64) -> Option<Slope> {
        let x = self.trial.inputs[place].to_vec::<f64>()[element];
        let step = step * x.abs().max(1.0);
        let at = |offset: f64| {
            let mut inputs = self.trial.inputs.clone();
            let elements = f64::slice_mut(inputs[place].elements_mut())?;
            elements[element] = x + offset;
            let moved = elements[element] - x;
            Some((self.at(&inputs)?, moved))
        };
        let central = |(high, up): (Projected, f64), (low, down): (Projected, f64)| {
            (high.value - low.value) / (up - down)
        };
        let (far_up, far_down, up, down) = (at(step)?, at(-step)?, at(step / 2.0)?, at(-step / 2.0)?);
        let (wide, narrow) = (central(far_up, far_down), central(up, down));
        let (right, left) = ((up.0.value - here.value) / up.1, (down.0.value - here.value) / down.1);
        let noise = here.magnitude * 1e-15 / step;
        let scale = 1.0 + narrow.abs();
        let consistent = (wide - narrow).abs() <= 1e-5 * scale && (right - left).abs() <= 1e-3 * scale;
        consistent.then_some(Slope { value: narrow, doubt: 10.0 * (wide - narrow).abs() + 10.0 * noise })
    }
}
