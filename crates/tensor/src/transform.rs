//! Function transforms: derivatives and batching.
//!
//! A transform accepts a function of tensors and returns another function. The function runs unchanged, on a backend
//! with one more layer; the results are on the backend of the arguments.
//!
//! | transform | returned for `f` | backend of `f`'s argument |
//! |---|---|---|
//! | [`grad`], [`value_and_grad`] | the gradient of a scalar function | [`Autodiff<B>`](crate::Autodiff) |
//! | [`vjp`] | the result, and the vector-Jacobian product as a function | `Autodiff<B>` |
//! | [`jvp`] | the result, and the Jacobian-vector product | [`Forward<B>`](crate::Forward) |
//! | [`jacobian`], [`jacobian_forward`] | the Jacobian | `Autodiff<B>`, `Forward<B>` |
//! | [`hessian`], [`hessian_vector_product`] | the Hessian, and its product with a vector | `Autodiff<Forward<B>>` |
//! | [`gradcheck`] | a comparison with finite differences | `Autodiff<B>` |
//! | [`vmap`], [`vmap_with`] | the batched function | [`Vmap<B>`](crate::Vmap) |
//!
//! [`scan`] is a loop over steps as one op.
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_tensor::transform::{grad, vmap};
//! use kiln_tensor::{Autodiff, Tensor, Vmap};
//!
//! // The gradient of x³ at 2 …
//! let cube = |x: Tensor<Autodiff<Flex>, 1>| (&x * &x * &x).sum();
//! let x = Tensor::<Flex, 1>::from_floats([2.0], &Default::default());
//! assert_eq!(grad(cube)(x).into_data().to_vec::<f32>(), [12.0]);
//!
//! // … and of each of many examples, in one pass.
//! let cube = |x: Tensor<Autodiff<Vmap<Flex>>, 1>| (&x * &x * &x).sum();
//! let xs = Tensor::<Flex, 2>::from_floats([[1.0], [2.0], [3.0]], &Default::default());
//! let slopes: Tensor<Flex, 2> = vmap(grad(cube))(xs);
//! assert_eq!(slopes.into_data().to_vec::<f32>(), [3.0, 12.0, 27.0]);
//! ```
//!
//! **Arguments** and results are [`Tree`]s: tensors, and tuples, arrays, vectors and maps of them. Arguments may
//! include integer and `bool` tensors: they have no derivative, and are zeros (`false`) in a gradient or direction.
//!
//! **Functions** may be closures, functions, or references to them. Make them generic over the backend
//! (`fn f<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1>`) to run them with and without a transform.
//! [`lift`](crate::Tensor::lift) brings a tensor from outside into the function: it is constant in derivatives, and the
//! same for all examples.
//!
//! **Nesting** stacks the layers in the order of the transforms, the outermost transform lowest: for
//! `vmap(grad(f))` the argument of `f` is on `Autodiff<Vmap<B>>`, for `grad(|x| vmap(f)(x).sum())` on
//! `Vmap<Autodiff<B>>`. On `Dyn` all of these are `Dyn`.
//!
//! The transforms and their names are those of [JAX](https://docs.jax.dev/en/latest/automatic-differentiation.html) and
//! [`torch.func`](https://docs.pytorch.org/docs/stable/func.api.html).
//!
//! # Panics
//! Like methods of [`Tensor`](crate::Tensor), transforms and the functions they return panic when shapes are
//! incompatible. Data errors are reported when a result is read.

mod check;
mod forward;
mod lift;
mod reverse;
mod scan;
mod second;
mod tree;
mod vmap;

pub use check::{GradcheckOptions, gradcheck};
pub use forward::{jacobian_forward, jvp};
pub use kiln_vmap::Randomness;
pub use reverse::{grad, jacobian, value_and_grad, value_and_grad_with_aux, vjp};
pub use scan::scan;
pub use second::{hessian, hessian_vector_product};
pub use tree::{Structure, Tree};
pub use vmap::{VmapOptions, vmap, vmap_with};

use crate::any::index_dtype;
use crate::{AnyTensor, AutodiffBackend, Backend, Checkpointing, Error, Result, Shape, Stack, TensorType};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Value, Var};

/// Returns the stack with the automatic differentiation of `A` around it.
pub(crate) fn autodiff_above<A: AutodiffBackend>(below: &Stack) -> Stack {
    let stack = A::stack(&<A::InnerBackend as Backend>::device(below));
    // A run-time device is the stack below itself: its layer is found from there.
    let is_above = stack.inner().is_some_and(|inner| inner.same(below));
    if is_above { stack } else { below.with_autodiff(Checkpointing::None) }
}

/// Flattens a tree into its tensors, in order, and its structure.
fn flattened<B: Backend, T: Tree<B>>(tree: T) -> (Vec<AnyTensor>, Structure) {
    let mut leaves = Vec::new();
    let structure = tree.flatten(&mut leaves);
    (leaves, structure)
}

/// Rebuilds the tree of a structure.
fn unflattened<B: Backend, T: Tree<B>>(structure: &Structure, leaves: Vec<AnyTensor>) -> Result<T> {
    T::unflatten(structure, &mut leaves.into_iter())
}

/// Checks that two trees have the same structure and tensor types.
fn check_alike(
    transform: &str,
    what: &str,
    given: (&[AnyTensor], &Structure),
    expected: (&[AnyTensor], &Structure),
) -> Result<()> {
    if given.1 != expected.1 {
        let problem = format!("{what} is {}, not {}", given.1, expected.1);
        return Err(Error::type_error(transform, problem, &[]));
    }
    for (number, (given, expected)) in given.0.iter().zip(expected.0).enumerate() {
        if given.ty() != expected.ty() {
            let problem =
                format!("{what} is {} where {} is expected (tensor {number})", given.ty(), expected.ty());
            return Err(Error::type_error(transform, problem, &[])
                .hint("each tensor has the shape and dtype of the one it belongs to"));
        }
    }
    Ok(())
}

/// Returns the standard basis of a tensor type: `[n, shape..]` for `n` elements, with one element of each set to 1.
fn basis(stack: &Stack, ty: TensorType) -> Value {
    let n = ty.num_elements();
    let index = index_dtype(n);
    let along = |shape: [usize; 2], axis| Var::iota(stack.engine(), TensorType::new(shape, index), axis);
    let square = along([n, 1], 0).equal(&along([1, n], 1)).cast(ty.dtype);
    square.reshape(ty.shape.inserted(0, n)).into_value()
}

/// Checks that a derivative has the rank of its type.
fn check_rank(transform: &str, shape: &Shape, rank: usize) -> Result<()> {
    if shape.rank() == rank {
        return Ok(());
    }
    let problem = format!("the derivative has shape {shape}, but a tensor with {rank} axes is expected");
    Err(Error::type_error(transform, problem, &[]).hint(
        "it has the axes of the result, then those of the argument: annotate the rank, as in `Tensor<_, 2>`",
    ))
}

/// Returns zeros of a type, or the error of the value that they belong to.
fn zeros_of(stack: &Stack, ty: TensorType, of: &Value) -> Value {
    match of.error() {
        Some(error) => Value::poisoned(ty, error.clone()),
        None => Var::zeros(stack.engine(), ty).into_value(),
    }
}
