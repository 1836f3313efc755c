//! Checks of a method.

use super::{Argument, Gradient, Method};
use crate::case::Tolerance;
use crate::check::{Outcome, compare_slopes, guarded};
use crate::compare::difference;
use crate::engines::{REFERENCE, Subject};
use crate::fill::{Random, filled};
use crate::layout::{Layout, elements, place};
use kiln_autodiff::Autodiff;
use kiln_backends::{Device, Dyn};
use kiln_ir::{DType, TensorData};
use kiln_tensor::{AnyTensor, Float, Stack, Tensor};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Elements of each operand for finite differences; larger operands are sampled.
const SAMPLES: usize = 8;
const FIRST_ORDER: f64 = 2e-6;
const SECOND_ORDER: f64 = 2e-5;
/// The tested dtypes of methods with float operands.
const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

/// Checks one case of a row.
type Body<'a> = dyn Fn(&[Argument], usize) -> Result<Outcome, String> + 'a;
type Results = Result<Vec<AnyTensor>, String>;

/// Checks that values of a row on an engine match the reference, in each float dtype and memory layout, with and
/// without automatic differentiation.
pub fn check_value(subject: &Subject, method: &Method) -> Outcome {
    let mut outcome = Outcome::default();
    let device = device_of(subject);
    for (number, arguments) in method.cases.iter().enumerate() {
        for dtype in dtypes(method, arguments) {
            let place = format!("{} on {} [{number}] {dtype}", method.key(), subject.name);
            let result = guarded(|| in_dtype(&device, method, arguments, number, dtype));
            outcome.absorb(&place, result.and_then(|inner| inner));
        }
    }
    outcome
}

/// The dtypes of a run; one without float operands.
fn dtypes(method: &Method, arguments: &[Argument]) -> Vec<DType> {
    let has_floats = arguments.iter().any(|argument| argument.ty(DType::F64).dtype.is_float());
    let wanted = |dtype: &DType| dtype.size() > 2 || method.no_half.is_none();
    if has_floats { FLOATS.into_iter().filter(wanted).collect() } else { vec![DType::F32] }
}

fn in_dtype(
    device: &Device,
    method: &Method,
    arguments: &[Argument],
    number: usize,
    dtype: DType,
) -> Result<Outcome, String> {
    let data = given(method, arguments, number, dtype);
    let layouts = if dtype.size() > 2 { &Layout::ALL[..] } else { &[Layout::Owned] };
    let mut outcome = Outcome::default();
    for &layout in layouts {
        let seen: Vec<TensorData> = data.iter().map(|data| elements(layout, data)).collect();
        let expected = host(call(method, &on(&reference(), Layout::Owned, &seen)))?;
        let actual = host(call(method, &on(device, layout, &data)))?;
        compare(&mut outcome, &format!("{layout:?}"), method, &expected, &actual);
        if layout == Layout::Shared {
            let actual = host(call(method, &tracked(&device.autodiff(), &data)))?;
            compare(&mut outcome, "autodiff", method, &expected, &actual);
        }
    }
    Ok(outcome)
}

fn compare(
    outcome: &mut Outcome,
    place: &str,
    method: &Method,
    expected: &[TensorData],
    actual: &[TensorData],
) {
    let number = (expected.len() != actual.len())
        .then(|| format!("{} results instead of {}", actual.len(), expected.len()));
    outcome.note(place, number);
    for (i, (expected, actual)) in expected.iter().zip(actual).enumerate() {
        let wrong_type = expected.ty() != actual.ty();
        let ty = wrong_type.then(|| format!("result {i} is {} instead of {}", actual.ty(), expected.ty()));
        outcome.note(place, ty);
        if !wrong_type {
            let tolerance = Tolerance::Near { relative: method.tolerance, absolute: method.tolerance };
            let problem = difference(expected, actual, tolerance);
            outcome.note(place, problem.map(|problem| format!("result {i}: {problem}")));
        }
    }
}

/// Checks that first gradients of a row agree with finite differences on the reference.
pub fn check_gradient(subject: &Subject, method: &Method) -> Outcome {
    let promised = match method.gradient {
        Gradient::Twice | Gradient::Once(_) => true,
        Gradient::None(_) => false,
    };
    let body = |arguments: &[Argument], number: usize| {
        let data = given(method, arguments, number, DType::F64);
        let device = device_of(subject);
        let found = first(&device, method, arguments, &data)?.gradients;
        let function = |data: &[TensorData]| projected(method, &reference(), data);
        slopes(arguments, &data, &found, &function, 1e-5, FIRST_ORDER)
    };
    if promised { each_case(subject, method, &body) } else { Outcome::default() }
}

/// Checks that second gradients of a row agree with finite differences of the first ones.
pub fn check_second(subject: &Subject, method: &Method) -> Outcome {
    let promised = match method.gradient {
        Gradient::Twice => true,
        Gradient::Once(_) | Gradient::None(_) => false,
    };
    let body = |arguments: &[Argument], number: usize| {
        let data = given(method, arguments, number, DType::F64);
        let device = device_of(subject);
        let found = second(&device, method, arguments, &data)?;
        let function = |data: &[TensorData]| Ok(first(&reference(), method, arguments, data)?.projected);
        slopes(arguments, &data, &found, &function, 1e-5, SECOND_ORDER)
    };
    if promised { each_case(subject, method, &body) } else { Outcome::default() }
}

fn each_case(subject: &Subject, method: &Method, body: &Body<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    for (number, arguments) in method.cases.iter().enumerate() {
        if arguments.iter().any(differentiated) {
            let place = format!("{} on {} [{number}]", method.key(), subject.name);
            outcome.absorb(&place, guarded(|| body(arguments, number)).and_then(|inner| inner));
        }
    }
    outcome
}

fn differentiated(argument: &Argument) -> bool {
    argument.differentiated && argument.ty(DType::F64).dtype.is_float()
}

thread_local! {
    // Stacks live as long as the process, and engines may own threads: each thread opens each engine once. Not one for
    // all threads, since the stream of random keys belongs to the stack.
    static DEVICES: RefCell<BTreeMap<&'static str, Device>> = const { RefCell::new(BTreeMap::new()) };
}

fn device_of(subject: &Subject) -> Device {
    let open = || Device::from_engine((subject.open)(), subject.name);
    DEVICES.with_borrow_mut(|devices| devices.entry(subject.name).or_insert_with(open).clone())
}

fn reference() -> Device {
    device_of(&REFERENCE)
}

/// The operands of a case on the host. Floats are equal in every dtype, except for rounding.
fn given(method: &Method, arguments: &[Argument], number: usize, float: DType) -> Vec<TensorData> {
    let fill = |(place, argument): (usize, &Argument)| {
        let mut random = Random::new(&method.key(), (number * 16 + place) as u64);
        match argument.ty(float).dtype.is_float() {
            true => filled(argument.ty(DType::F64), argument.fill, &mut random).convert(float),
            false => filled(argument.ty(float), argument.fill, &mut random),
        }
    };
    arguments.iter().enumerate().map(fill).collect()
}

fn on(device: &Device, layout: Layout, data: &[TensorData]) -> Vec<AnyTensor> {
    let stack = device.as_ref();
    data.iter().map(|data| AnyTensor::new(stack.clone(), place(stack.engine(), layout, data))).collect()
}

fn tracked(device: &Device, data: &[TensorData]) -> Vec<AnyTensor> {
    let leaf = |data: &TensorData| {
        let tensor = AnyTensor::from_data(data.clone(), device);
        if data.dtype().is_float() { tensor.require_grad().expect("a float on autodiff") } else { tensor }
    };
    data.iter().map(leaf).collect()
}

/// Calls the method with a fixed random seed.
fn call(method: &Method, operands: &[AnyTensor]) -> Results {
    if let Some(operand) = operands.first() {
        let mut stack = Some(operand.stack());
        while let Some(outer) = stack {
            outer.keys().seed(7);
            stack = outer.inner();
        }
    }
    (method.call)(operands).map_err(|error| error.to_string())
}

fn host(results: Results) -> Result<Vec<TensorData>, String> {
    results?.into_iter().map(|result| result.into_data().map_err(|error| error.to_string())).collect()
}

/// Weights of a result for the scalar projection.
fn weights(method: &Method, purpose: u64, place: usize, like: &AnyTensor) -> TensorData {
    let mut random = Random::new(&method.key(), 1000 + purpose * 100 + place as u64);
    let ty = kiln_ir::TensorType::new(*like.shape(), DType::F64);
    filled(ty, crate::case::Fill::Normal, &mut random)
}

/// The weighted sum of all float results, of shape `[1]`; `None` if there is none.
fn loss(
    method: &Method,
    purpose: u64,
    results: Vec<(usize, AnyTensor)>,
) -> Result<Option<AnyTensor>, String> {
    let mut sum: Option<AnyTensor> = None;
    for (place, result) in results {
        if result.dtype() != DType::F64 {
            continue;
        }
        let weights = AnyTensor::from_data(weights(method, purpose, place, &result), result.stack());
        let term = result.mul(weights).and_then(AnyTensor::sum).map_err(|error| error.to_string())?;
        sum = Some(match sum {
            Some(sum) => sum.add(term).map_err(|error| error.to_string())?,
            None => term,
        });
    }
    Ok(sum)
}

/// The differentiated scalar function.
fn projected(method: &Method, device: &Device, data: &[TensorData]) -> Result<f64, String> {
    let results = call(method, &on(device, Layout::Owned, data))?;
    let sum = loss(method, 1, results.into_iter().enumerate().collect())?;
    let sum = sum.ok_or("there is no float result")?;
    Ok(sum.into_data().map_err(|error| error.to_string())?.to_vec::<f64>()[0])
}

struct First {
    /// Gradients by operand; `None` for operands that are not differentiated.
    gradients: Vec<Option<TensorData>>,
    /// The weighted sum of the gradients.
    projected: f64,
}

fn first(
    device: &Device,
    method: &Method,
    arguments: &[Argument],
    data: &[TensorData],
) -> Result<First, String> {
    let outer = device.autodiff();
    let leaves = leaves(&outer, arguments, data);
    let gradients = backward(method, 1, call(method, &leaves)?, arguments, &leaves)?;
    let sum =
        loss(method, 2, gradients.iter().cloned().enumerate().filter_map(|(i, g)| Some((i, g?))).collect())?;
    let projected = match sum {
        Some(sum) => sum.into_data().map_err(|error| error.to_string())?.to_vec::<f64>()[0],
        None => 0.0,
    };
    Ok(First { gradients: to_host(gradients)?, projected })
}

fn second(
    device: &Device,
    method: &Method,
    arguments: &[Argument],
    data: &[TensorData],
) -> Result<Vec<Option<TensorData>>, String> {
    let inner = device.autodiff();
    let outer = inner.autodiff();
    let inner_leaves = leaves(&inner, arguments, data);
    let lift = |(leaf, argument): (&AnyTensor, &Argument)| {
        let lifted = leaf.clone().from_inner(outer.as_ref())?;
        if differentiated(argument) { lifted.require_grad() } else { Ok(lifted) }
    };
    let outer_leaves: kiln_tensor::Result<Vec<AnyTensor>> =
        inner_leaves.iter().zip(arguments).map(lift).collect();
    let outer_leaves = outer_leaves.map_err(|error| error.to_string())?;
    let gradients = backward(method, 1, call(method, &outer_leaves)?, arguments, &outer_leaves)?;
    let tracked = gradients.into_iter().enumerate().filter_map(|(place, gradient)| Some((place, gradient?)));
    let results: Vec<(usize, AnyTensor)> = tracked.collect();
    let sum = loss(method, 2, results)?;
    let below: &Stack = inner.as_ref();
    let is_tracked =
        |sum: &AnyTensor| below.outermost::<Autodiff>().is_some_and(|layer| layer.is_tracked(sum.value()));
    match sum {
        Some(sum) if is_tracked(&sum) => to_host(collect(sum, arguments, &inner_leaves)?),
        // The gradients of a linear function do not depend on its operands.
        Some(_) | None => Ok(zeros(arguments, data)),
    }
}

fn leaves(device: &Device, arguments: &[Argument], data: &[TensorData]) -> Vec<AnyTensor> {
    let leaf = |(argument, data): (&Argument, &TensorData)| {
        let tensor = AnyTensor::from_data(data.clone(), device);
        if differentiated(argument) { tensor.require_grad().expect("a float on autodiff") } else { tensor }
    };
    arguments.iter().zip(data).map(leaf).collect()
}

/// The gradients of the weighted sum of results by the leaves, on the inner stack.
fn backward(
    method: &Method,
    purpose: u64,
    results: Vec<AnyTensor>,
    arguments: &[Argument],
    leaves: &[AnyTensor],
) -> Result<Vec<Option<AnyTensor>>, String> {
    let sum = loss(method, purpose, results.into_iter().enumerate().collect())?;
    collect(sum.ok_or("there is no float result")?, arguments, leaves)
}

fn collect(
    sum: AnyTensor,
    arguments: &[Argument],
    leaves: &[AnyTensor],
) -> Result<Vec<Option<AnyTensor>>, String> {
    let sum: Tensor<Dyn, 1, Float> = sum.try_into_tensor().map_err(|error| error.to_string())?;
    let found = sum.try_backward().map_err(|error| error.to_string())?;
    let of = |(argument, leaf): (&Argument, &AnyTensor)| {
        if !differentiated(argument) {
            return Ok(None);
        }
        match found.get(leaf) {
            Some(gradient) => Ok(Some(gradient)),
            None => {
                let below = leaf.stack().inner().ok_or("the leaf is on no tape")?;
                AnyTensor::zeros(*leaf.ty(), below).map(Some).map_err(|error| error.to_string())
            }
        }
    };
    arguments.iter().zip(leaves).map(of).collect()
}

fn to_host(gradients: Vec<Option<AnyTensor>>) -> Result<Vec<Option<TensorData>>, String> {
    let data = |gradient: AnyTensor| gradient.into_data().map_err(|error| error.to_string());
    gradients.into_iter().map(|gradient| gradient.map(data).transpose()).collect()
}

fn zeros(arguments: &[Argument], data: &[TensorData]) -> Vec<Option<TensorData>> {
    let zero = |(argument, data): (&Argument, &TensorData)| {
        differentiated(argument).then(|| TensorData::zeros(data.ty()))
    };
    arguments.iter().zip(data).map(zero).collect()
}

/// Compares gradients with central differences of `function`.
fn slopes(
    arguments: &[Argument],
    data: &[TensorData],
    found: &[Option<TensorData>],
    function: &dyn Fn(&[TensorData]) -> Result<f64, String>,
    h: f64,
    tolerance: f64,
) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    for (place, gradient) in found.iter().enumerate() {
        let (Some(gradient), true) = (gradient, differentiated(&arguments[place])) else { continue };
        let slope = |element: usize| {
            let x = data[place].to_vec::<f64>()[element];
            let step = h * x.abs().max(1.0);
            let at = |x: f64| {
                let mut moved = data.to_vec();
                let mut numbers = moved[place].to_vec::<f64>();
                numbers[element] = x;
                moved[place] = TensorData::new(numbers, *moved[place].shape()).expect("the same number");
                function(&moved)
            };
            Ok((at(x + step)? - at(x - step)?) / (2.0 * step))
        };
        let (name, ty) = (format!("gradient {place}"), data[place].ty());
        compare_slopes(&mut outcome, &name, (gradient, ty), SAMPLES, tolerance, slope)?;
    }
    Ok(outcome)
}
