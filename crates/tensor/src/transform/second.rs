//! Second derivatives: forward over reverse.

use super::forward::{all_columns, moving, moving_everywhere, parted};
use super::reverse::{number_and_gradients, recording, started};
use super::{Tree, autodiff_above, check_alike, check_rank, flattened, unflattened};
use crate::tensor::ok;
use crate::{AnyTensor, AutodiffBackend, ForwardBackend, Result, Tensor};
use alloc::vec::Vec;

/// The backend below forward mode below a tape.
type Outside<A> = <<A as AutodiffBackend>::InnerBackend as ForwardBackend>::InnerBackend;

/// Returns a function that computes the Hessian of a scalar function, `[argument.., argument..]`.
///
/// It is one backward pass over values with a batch of tangents, one for each element of the argument. For a few
/// products with vectors use [`hessian_vector_product`], which never stores the matrix.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::transform::hessian;
/// use kiln_tensor::{Autodiff, Forward, Tensor};
///
/// let f = |x: Tensor<Autodiff<Forward<Flex>>, 1>| x.prod();
/// let h: Tensor<Flex, 2> = hessian(f)(Tensor::from_floats([2.0, 3.0, 5.0], &Default::default()));
/// assert_eq!(h.into_data().to_vec::<f32>(), [0.0, 5.0, 3.0, 5.0, 0.0, 2.0, 3.0, 2.0, 0.0]);
/// ```
///
/// # Panics
/// The returned function panics when `J` is not `2 * D`, `f` returns more than one element or a tensor from outside, or
/// an op has no gradient.
pub fn hessian<A, F, const D: usize, const R: usize, const J: usize>(
    f: F,
) -> impl Fn(Tensor<Outside<A>, D>) -> Tensor<Outside<A>, J>
where
    A: AutodiffBackend,
    A::InnerBackend: ForwardBackend,
    F: Fn(Tensor<A, D>) -> Tensor<A, R>,
{
    move |x| {
        let shape = x.shape().iter().chain(x.shape().iter()).copied().collect();
        ok(check_rank("hessian", &shape, J));
        let x = moving_everywhere(x.into_any());
        let arguments = started(Vec::from([x.clone()]), &autodiff_above::<A>);
        let y = recording(&arguments, || f(Tensor::from_any(arguments[0].clone()))).into_any();
        let (_, gradients) = ok(number_and_gradients("hessian", y, &arguments));
        Tensor::from_any(all_columns(&gradients[0], gradients[0].value(), &x))
    }
}

/// Computes the gradient of a scalar function, and its *Hessian-vector product* with a direction.
///
/// The cost is that of a few gradients, for any size of the argument.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::transform::hessian_vector_product;
/// use kiln_tensor::{Autodiff, Forward, Tensor};
///
/// let device = Default::default();
/// let f = |x: Tensor<Autodiff<Forward<Flex>>, 1>| (&x * &x * &x).sum();
/// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0], &device);
/// let (gradient, product) = hessian_vector_product(f, x, Tensor::from_floats([1.0, 10.0], &device));
/// assert_eq!(gradient.into_data().to_vec::<f32>(), [3.0, 12.0]);
/// assert_eq!(product.into_data().to_vec::<f32>(), [6.0, 120.0]);
/// ```
///
/// # Panics
/// When the direction does not have the types of the argument, `f` returns more than one element or a tensor from
/// outside, or an op has no gradient.
#[track_caller]
#[allow(clippy::type_complexity)]
pub fn hessian_vector_product<A, T, F, const R: usize>(
    f: F,
    x: T::On<Outside<A>>,
    direction: T::On<Outside<A>>,
) -> (T::On<Outside<A>>, T::On<Outside<A>>)
where
    A: AutodiffBackend,
    A::InnerBackend: ForwardBackend,
    T: Tree<A>,
    F: FnOnce(T) -> Tensor<A, R>,
{
    let transform = "hessian_vector_product";
    let (arguments, structure) = flattened::<Outside<A>, _>(x);
    let (directions, given) = flattened::<Outside<A>, _>(direction);
    ok(check_alike(transform, "the direction", (&directions, &given), (&arguments, &structure)));
    let moving = moving(arguments, directions.into_iter().map(AnyTensor::into_value));
    let arguments = started(moving.clone(), &autodiff_above::<A>);
    let inside = ok(unflattened(&structure, arguments.clone()));
    let y = recording(&arguments, || f(inside)).into_any();
    let (_, gradients) = ok(number_and_gradients(transform, y, &arguments));
    let parts = gradients.into_iter().map(|gradient| parted(transform, gradient, &moving));
    let (gradients, products) = ok(parts.collect::<Result<(Vec<_>, Vec<_>)>>());
    (ok(unflattened(&structure, gradients)), ok(unflattened(&structure, products)))
}
