//! Reverse-mode differentiation.

use super::{Tree, autodiff_above, basis, check_alike, check_rank, flattened, unflattened, zeros_of};
use crate::tensor::ok;
use crate::{AnyTensor, AutodiffBackend, Error, Result, Stack, Tensor, TensorType};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kiln_autodiff::{Autodiff as Layer, Gradients};
use kiln_ir::{Engine, Value, Var};
use kiln_vmap::Vmap;

/// Returns a function that computes the gradient of a scalar function.
///
/// The gradient has the structure, shapes and dtypes of the argument. It is zero for inputs that the result does not
/// depend on, and for integers and booleans.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::transform::grad;
/// use kiln_tensor::{Autodiff, Tensor};
///
/// type B = Autodiff<Flex>;
/// let device = Default::default();
/// // A line through points, as a function of its slope and offset.
/// let loss = |(slope, offset): (Tensor<B, 1>, Tensor<B, 1>)| {
///     let x = Tensor::<B, 1>::from_floats([0.0, 1.0, 2.0], &slope.device());
///     let y = Tensor::<B, 1>::from_floats([1.0, 3.0, 5.0], &slope.device());
///     let error = x * slope + offset - y;
///     (&error * &error).sum()
/// };
/// let (by_slope, by_offset) = grad(loss)((Tensor::zeros([1], &device), Tensor::zeros([1], &device)));
/// assert_eq!(by_slope.into_data().to_vec::<f32>(), [-26.0]);
/// assert_eq!(by_offset.into_data().to_vec::<f32>(), [-18.0]);
/// ```
///
/// # Panics
/// The returned function panics when `f` returns more than one element or a tensor from outside, or an op has no
/// gradient.
pub fn grad<A, T, F, const R: usize>(f: F) -> impl Fn(T::On<A::InnerBackend>) -> T::On<A::InnerBackend>
where
    A: AutodiffBackend,
    T: Tree<A>,
    F: Fn(T) -> Tensor<A, R>,
{
    move |x| ok(differentiated("grad", x, |x| (f(x), ()))).1
}

/// Returns a function that computes the value and the gradient of a scalar function; see [`grad`].
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::transform::value_and_grad;
/// use kiln_tensor::{Autodiff, Tensor};
///
/// let square = |x: Tensor<Autodiff<Flex>, 1>| (&x * &x).sum();
/// let (value, slope) = value_and_grad(square)(Tensor::from_floats([3.0, 4.0], &Default::default()));
/// assert_eq!(value.into_data().to_vec::<f32>(), [25.0]);
/// assert_eq!(slope.into_data().to_vec::<f32>(), [6.0, 8.0]);
/// ```
///
/// # Panics
/// As [`grad`].
#[allow(clippy::type_complexity)]
pub fn value_and_grad<A, T, F, const R: usize>(
    f: F,
) -> impl Fn(T::On<A::InnerBackend>) -> (Tensor<A::InnerBackend, R>, T::On<A::InnerBackend>)
where
    A: AutodiffBackend,
    T: Tree<A>,
    F: Fn(T) -> Tensor<A, R>,
{
    move |x| {
        let (value, gradient, ()) = ok(differentiated("value_and_grad", x, |x| (f(x), ())));
        (value, gradient)
    }
}

/// Returns a function that computes the value, the gradient, and the auxiliary outputs of a function, such as
/// predictions or new statistics. Auxiliary outputs are not differentiated.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::transform::value_and_grad_with_aux;
/// use kiln_tensor::{Autodiff, Tensor};
///
/// let f = |x: Tensor<Autodiff<Flex>, 1>| {
///     let squares = &x * &x;
///     (squares.clone().sum(), squares)
/// };
/// let (value, slope, squares) = value_and_grad_with_aux(f)(Tensor::from_floats([3.0, 4.0], &Default::default()));
/// assert_eq!(value.into_data().to_vec::<f32>(), [25.0]);
/// assert_eq!(slope.into_data().to_vec::<f32>(), [6.0, 8.0]);
/// assert_eq!(squares.into_data().to_vec::<f32>(), [9.0, 16.0]);
/// ```
///
/// # Panics
/// As [`grad`].
#[allow(clippy::type_complexity)]
pub fn value_and_grad_with_aux<A, T, X, F, const R: usize>(
    f: F,
) -> impl Fn(T::On<A::InnerBackend>) -> (Tensor<A::InnerBackend, R>, T::On<A::InnerBackend>, X::On<A::InnerBackend>)
where
    A: AutodiffBackend,
    T: Tree<A>,
    X: Tree<A>,
    F: Fn(T) -> (Tensor<A, R>, X),
{
    move |x| ok(differentiated("value_and_grad_with_aux", x, &f))
}

/// Computes the result of a function, and returns its *vector-Jacobian product* as a function of the output gradients.
///
/// The returned function may be called any number of times; the tape is kept as long as it lives.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::transform::vjp;
/// use kiln_tensor::{Autodiff, Tensor};
///
/// let device = Default::default();
/// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0], &device);
/// let (y, pull_back) = vjp(|x: Tensor<Autodiff<Flex>, 1>| &x * &x, x);
/// assert_eq!(y.into_data().to_vec::<f32>(), [1.0, 4.0]);
/// let pulled = pull_back(Tensor::from_floats([10.0, 1.0], &device));
/// assert_eq!(pulled.into_data().to_vec::<f32>(), [20.0, 4.0]);
/// ```
///
/// # Panics
/// When `f` returns a tensor from outside. The returned function panics when its argument does not have the types of
/// the result, or an op has no gradient.
#[track_caller]
#[allow(clippy::type_complexity)]
pub fn vjp<A, T, Y, F>(
    f: F,
    x: T::On<A::InnerBackend>,
) -> (Y::On<A::InnerBackend>, impl Fn(Y::On<A::InnerBackend>) -> T::On<A::InnerBackend>)
where
    A: AutodiffBackend,
    T: Tree<A>,
    Y: Tree<A>,
    F: FnOnce(T) -> Y,
{
    let (arguments, structure) = flattened::<A::InnerBackend, _>(x);
    let arguments = started(arguments, &autodiff_above::<A>);
    let inside = ok(unflattened(&structure, arguments.clone()));
    let (results, result_structure) = flattened::<A, Y>(recording(&arguments, || f(inside)));
    ok(check_results("vjp", &results, &arguments));
    let values: Vec<AnyTensor> = results.iter().cloned().map(AnyTensor::inner).collect();
    let y = ok(unflattened(&result_structure, values.clone()));
    let pull_back = move |gradients: Y::On<A::InnerBackend>| {
        let (gradients, given) = flattened::<A::InnerBackend, _>(gradients);
        ok(check_alike("vjp", "the gradient", (&gradients, &given), (&values, &result_structure)));
        let pulled = ok(pulled(&results, gradients, &arguments));
        ok(unflattened(&structure, pulled))
    };
    (y, pull_back)
}

/// Returns a function that computes the Jacobian by reverse mode, `[result.., argument..]`.
///
/// The gradients of all elements of the result are computed in one pass, as a batch. Memory and time are those of as
/// many passes as the result has elements. [`jacobian_forward`](super::jacobian_forward) batches over the elements of
/// the argument, and is faster if these are fewer.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::transform::jacobian;
/// use kiln_tensor::{Autodiff, Tensor};
///
/// let f = |x: Tensor<Autodiff<Flex>, 1>| x.clone() * x.sum();
/// let j: Tensor<Flex, 2> = jacobian(f)(Tensor::from_floats([1.0, 2.0], &Default::default()));
/// assert_eq!(j.into_data().to_vec::<f32>(), [4.0, 1.0, 2.0, 5.0]);
/// ```
///
/// # Panics
/// The returned function panics when `J` is not `D + E`, `f` returns a tensor from outside, or an op has no
/// gradient.
pub fn jacobian<A, F, const D: usize, const E: usize, const J: usize>(
    f: F,
) -> impl Fn(Tensor<A::InnerBackend, D>) -> Tensor<A::InnerBackend, J>
where
    A: AutodiffBackend,
    F: Fn(Tensor<A, D>) -> Tensor<A, E>,
{
    move |x| {
        let arguments = started(Vec::from([x.into_any()]), &autodiff_above::<A>);
        let y = recording(&arguments, || f(Tensor::from_any(arguments[0].clone()))).into_any();
        let j = ok(all_rows(&y, &arguments, J));
        Tensor::from_any(j)
    }
}

/// Runs a scalar function, and returns its value, gradient and auxiliary outputs.
#[allow(clippy::type_complexity)]
fn differentiated<A, T, X, const R: usize>(
    transform: &str,
    x: T::On<A::InnerBackend>,
    f: impl FnOnce(T) -> (Tensor<A, R>, X),
) -> Result<(Tensor<A::InnerBackend, R>, T::On<A::InnerBackend>, X::On<A::InnerBackend>)>
where
    A: AutodiffBackend,
    T: Tree<A>,
    X: Tree<A>,
{
    let (arguments, structure) = flattened::<A::InnerBackend, _>(x);
    let arguments = started(arguments, &autodiff_above::<A>);
    let inside = unflattened(&structure, arguments.clone())?;
    let (y, rest) = recording(&arguments, || f(inside));
    let (rest, rest_structure) = flattened::<A, X>(rest);
    let y = y.into_any();
    let (value, gradients) = number_and_gradients(transform, y, &arguments)?;
    let rest = unflattened(&rest_structure, rest.into_iter().map(AnyTensor::inner).collect())?;
    Ok((Tensor::from_any(value), unflattened(&structure, gradients)?, rest))
}

/// Runs a function of these arguments while the layer of their tape records, in a [`no_grad`](crate::no_grad) scope too.
pub(super) fn recording<T>(arguments: &[AnyTensor], f: impl FnOnce() -> T) -> T {
    match arguments.first().and_then(|argument| argument.stack().outermost::<Layer>()) {
        Some(layer) => layer.recording(f),
        None => f(),
    }
}

/// Returns the arguments as leaves of a tape.
pub(super) fn started(arguments: Vec<AnyTensor>, above: &dyn Fn(&Stack) -> Stack) -> Vec<AnyTensor> {
    let start = |argument: AnyTensor| {
        let stack = above(argument.stack());
        let is_float = argument.dtype().is_float();
        let value = argument.into_value();
        let value = match stack.outermost::<Layer>() {
            Some(layer) if is_float => layer.require_grad(value),
            Some(_) | None => value,
        };
        AnyTensor::new(stack, value)
    };
    arguments.into_iter().map(start).collect()
}

/// Returns the value of a scalar below the tape, and its gradients.
pub(super) fn number_and_gradients(
    transform: &str,
    y: AnyTensor,
    arguments: &[AnyTensor],
) -> Result<(AnyTensor, Vec<AnyTensor>)> {
    check_results(transform, core::slice::from_ref(&y), arguments)?;
    if y.shape().num_elements() != 1 {
        let problem = format!("the function returns {}, and only a single number has a gradient", y.ty());
        return Err(Error::type_error(transform, problem, &[])
            .hint("return the sum or the mean, or use `vjp` or `jacobian`"));
    }
    let value = y.clone().inner();
    let one = Var::full(value.stack().engine(), *value.ty(), 1.0).into_value();
    let one = AnyTensor::new(value.stack().clone(), one);
    let gradients = pulled(&[y], Vec::from([one]), arguments)?;
    Ok((value, gradients))
}

/// Checks that results are from inside the function.
fn check_results(transform: &str, results: &[AnyTensor], arguments: &[AnyTensor]) -> Result<()> {
    let Some(inside) = arguments.first().map(AnyTensor::stack) else { return Ok(()) };
    let Some(outside) = results.iter().find(|result| !result.stack().same_domain(inside)) else {
        return Ok(());
    };
    let problem = format!("the function returns a tensor on {:?}, not on {inside:?}", outside.stack());
    Err(Error::type_error(transform, problem, &[outside.ty().into()])
        .hint("bring tensors from outside in with `lift`: `x.lift(outside)`"))
}

/// Computes the gradients of the arguments from those of the results. A data error poisons them.
fn pulled(
    results: &[AnyTensor],
    gradients: Vec<AnyTensor>,
    arguments: &[AnyTensor],
) -> Result<Vec<AnyTensor>> {
    let error = results.iter().find_map(|result| result.value().error().cloned());
    let layer = results.iter().find_map(|result| result.stack().outermost::<Layer>());
    let found = match (layer, &error) {
        (Some(layer), None) => {
            let roots = results.iter().zip(gradients).filter(|(result, _)| result.dtype().is_float());
            let roots = roots.map(|(result, gradient)| (result.value().clone(), gradient.into_value()));
            layer.pull_back(&**layer.inner(), roots.collect())?
        }
        (Some(_) | None, _) => Gradients::new(),
    };
    let gradient = |argument: &AnyTensor| {
        let below = argument.stack().inner().unwrap_or(argument.stack()).clone();
        let value = match (&error, found.get(argument.value())) {
            (Some(error), _) => Value::poisoned(*argument.ty(), error.clone()),
            (None, Some(gradient)) => gradient,
            (None, None) => zeros_of(&below, *argument.ty(), argument.value()),
        };
        AnyTensor::new(below, value)
    };
    Ok(arguments.iter().map(gradient).collect())
}

/// Computes the gradients of each element of `y`, `[y.., x..]`.
fn all_rows(y: &AnyTensor, arguments: &[AnyTensor], rank: usize) -> Result<AnyTensor> {
    check_results("jacobian", core::slice::from_ref(y), arguments)?;
    let x = &arguments[0];
    let shape = y.shape().iter().chain(x.shape().iter()).copied().collect();
    check_rank("jacobian", &shape, rank)?;
    let ty = TensorType::new(shape, x.dtype());
    let below = x.stack().inner().unwrap_or(x.stack()).clone();
    let all = match x.stack().outermost::<Layer>() {
        Some(layer) if layer.is_tracked(y.value()) => {
            Var::new(below.engine(), rows(layer, &below, y, x)?).reshape(ty.shape).into_value()
        }
        Some(_) | None => zeros_of(&below, ty, y.value()),
    };
    Ok(AnyTensor::new(below, all))
}

/// Runs one backward pass for a batch of gradients, which share the saved tensors of the tape.
fn rows(layer: &Layer, below: &Stack, y: &AnyTensor, x: &AnyTensor) -> Result<Value> {
    let batch = Vmap::new(layer.inner().clone());
    let batched = |engine: &Arc<dyn Engine>| -> Arc<dyn Engine> { Arc::new(Vmap::new(engine.clone())) };
    let seeds = batch.batch(basis(below, *y.ty()), 0);
    let n = y.shape().num_elements();
    let found = layer.pull_back_around(&batched, Vec::from([(y.value().clone(), seeds)]))?;
    let row = found.get(x.value()).unwrap_or_else(|| zeros_of(below, *x.ty(), y.value()));
    Ok(batch.unbatch(&row, n, 0))
}
