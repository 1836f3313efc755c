//! Forward-mode differentiation.

use super::{Tree, basis, check_alike, check_rank, flattened, unflattened, zeros_of};
use crate::tensor::ok;
use crate::{AnyTensor, Error, ForwardBackend, Result, Tensor, TensorType};
use alloc::format;
use alloc::vec::Vec;
use core::any::Any;
use kiln_autodiff::Forward as Layer;
use kiln_ir::{Value, Var};
use kiln_vmap::Vmap;

/// Computes the result of a function and its *Jacobian-vector product* with a direction (tangent).
///
/// It costs two or three evaluations of the function, without memory for a tape. The direction has the structure,
/// shapes and dtypes of the argument; its integer and boolean tensors are ignored (pass zeros). The tangent of a result
/// that does not depend on the argument, or is integer or boolean, is 0.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::transform::jvp;
/// use kiln_tensor::{Forward, Tensor};
///
/// let device = Default::default();
/// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0], &device);
/// let direction = Tensor::from_floats([1.0, 10.0], &device);
/// let (y, change) = jvp(|x: Tensor<Forward<Flex>, 1>| &x * &x, x, direction);
/// assert_eq!(y.into_data().to_vec::<f32>(), [1.0, 4.0]);
/// assert_eq!(change.into_data().to_vec::<f32>(), [2.0, 40.0]);
/// ```
///
/// # Panics
/// When the direction does not have the types of the argument, or `f` returns a tensor from outside. The derivative of
/// an op without one is an error, reported when it is read.
#[track_caller]
#[allow(clippy::type_complexity)]
pub fn jvp<V, T, Y, F>(
    f: F,
    x: T::On<V::InnerBackend>,
    direction: T::On<V::InnerBackend>,
) -> (Y::On<V::InnerBackend>, Y::On<V::InnerBackend>)
where
    V: ForwardBackend,
    T: Tree<V>,
    Y: Tree<V>,
    F: FnOnce(T) -> Y,
{
    let (arguments, structure) = flattened::<V::InnerBackend, _>(x);
    let (directions, given) = flattened::<V::InnerBackend, _>(direction);
    ok(check_alike("jvp", "the direction", (&directions, &given), (&arguments, &structure)));
    let arguments = moving(arguments, directions.into_iter().map(AnyTensor::into_value));
    let (results, structure) = flattened::<V, Y>(f(ok(unflattened(&structure, arguments.clone()))));
    let parts = results.into_iter().map(|result| parted("jvp", result, &arguments));
    let (values, changes) = ok(parts.collect::<Result<(Vec<_>, Vec<_>)>>());
    (ok(unflattened(&structure, values)), ok(unflattened(&structure, changes)))
}

/// Returns a function that computes the Jacobian by forward mode, `[result.., argument..]`.
///
/// The function runs once, with all directions as a batch. It is faster than [`jacobian`](super::jacobian) if the
/// argument has fewer elements than the result.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::transform::jacobian_forward;
/// use kiln_tensor::{Forward, Tensor};
///
/// let f = |x: Tensor<Forward<Flex>, 1>| x.clone() * x.sum();
/// let j: Tensor<Flex, 2> = jacobian_forward(f)(Tensor::from_floats([1.0, 2.0], &Default::default()));
/// assert_eq!(j.into_data().to_vec::<f32>(), [4.0, 1.0, 2.0, 5.0]);
/// ```
///
/// # Panics
/// The returned function panics when `J` is not `D + E`, or `f` returns a tensor from outside.
pub fn jacobian_forward<V, F, const D: usize, const E: usize, const J: usize>(
    f: F,
) -> impl Fn(Tensor<V::InnerBackend, D>) -> Tensor<V::InnerBackend, J>
where
    V: ForwardBackend,
    F: Fn(Tensor<V, D>) -> Tensor<V, E>,
{
    move |x| {
        let x = moving_everywhere(x.into_any());
        let y = f(Tensor::from_any(x.clone())).into_any();
        let shape = y.shape().iter().chain(x.shape().iter()).copied().collect();
        ok(check_rank("jacobian_forward", &shape, J));
        ok(check_result("jacobian_forward", &y, core::slice::from_ref(&x)));
        Tensor::from_any(all_columns(&y, y.value(), &x))
    }
}

/// Returns the arguments with tangents.
pub(super) fn moving(arguments: Vec<AnyTensor>, directions: impl Iterator<Item = Value>) -> Vec<AnyTensor> {
    let set_off = |(argument, direction): (AnyTensor, Value)| {
        let stack = argument.stack().with_forward();
        let is_float = argument.dtype().is_float();
        let value = match stack.outermost::<Layer>() {
            Some(layer) if is_float => layer.dual(argument.into_value(), direction),
            Some(_) | None => argument.into_value(),
        };
        AnyTensor::new(stack, value)
    };
    arguments.into_iter().zip(directions).map(set_off).collect()
}

/// Returns the argument with a batch of tangents, one for each of its elements.
pub(super) fn moving_everywhere(argument: AnyTensor) -> AnyTensor {
    let stack = argument.stack().with_forward();
    let directions = basis(argument.stack(), *argument.ty());
    let value = match stack.outermost::<Layer>().and_then(batching) {
        Some((layer, batch)) => layer.dual(argument.into_value(), batch.batch(directions, 0)),
        None => argument.into_value(),
    };
    AnyTensor::new(stack, value)
}

/// Returns the layer, and the batching layer of its tangents.
fn batching(layer: &Layer) -> Option<(&Layer, &Vmap)> {
    let tangents: &dyn Any = &**layer.tangents();
    Some((layer, tangents.downcast_ref()?))
}

/// Splits a result of forward mode into value and tangent.
pub(super) fn parted(
    transform: &str,
    result: AnyTensor,
    arguments: &[AnyTensor],
) -> Result<(AnyTensor, AnyTensor)> {
    check_result(transform, &result, arguments)?;
    let (Some(layer), Some(below)) = (result.stack().outermost::<Layer>(), result.stack().below()) else {
        return Ok((result.clone(), result));
    };
    let value = layer.primal(result.value());
    let change =
        layer.tangent(result.value()).unwrap_or_else(|| zeros_of(below, *result.ty(), result.value()));
    Ok((AnyTensor::new(below.clone(), value), AnyTensor::new(below.clone(), change)))
}

/// Checks that a result is from inside the function.
fn check_result(transform: &str, result: &AnyTensor, arguments: &[AnyTensor]) -> Result<()> {
    let inside = arguments.first().map_or(result.stack(), AnyTensor::stack);
    if result.stack().same_domain(inside) && inside.outermost::<Layer>().is_some() {
        return Ok(());
    }
    let problem = format!("the function returns a tensor on {:?}, not on {inside:?}", result.stack());
    Err(Error::type_error(transform, problem, &[result.ty().into()])
        .hint("bring tensors from outside in with `lift`: `x.lift(outside)`"))
}

/// Returns the derivatives of a value of a forward stack by each element of `x`: `[y.., x..]`, on the stack below.
pub(super) fn all_columns(y: &AnyTensor, value: &Value, x: &AnyTensor) -> AnyTensor {
    let (stack, ty) = (x.stack(), *x.ty());
    let below = stack.below().unwrap_or(stack);
    let shape: crate::Shape = y.shape().iter().chain(ty.shape.iter()).copied().collect();
    let layer = stack.outermost::<Layer>().and_then(batching);
    let change = layer.and_then(|(layer, batch)| Some((layer.tangent(value)?, batch)));
    let all = match change {
        Some((change, batch)) => {
            let all = batch.unbatch(&change, ty.num_elements(), y.rank());
            Var::new(below.engine(), all).reshape(shape).into_value()
        }
        None => zeros_of(below, TensorType::new(shape, y.dtype()), value),
    };
    AnyTensor::new(below.clone(), all)
}
