//! Functions with a gradient of their own.

use super::custom;
use crate::{Backend, Float, Tensor};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::any::TypeId;
use core::fmt;
use kiln_ir::{CustomOp, Error, OperandType, Recorder, Result, ResultTypes, TensorType, Var};

/// Computes a function of tensors whose gradient is the given one instead of the derivative: JAX's `custom_vjp`, PyTorch's
/// `autograd.Function`.
///
/// `forward` computes the result from the inputs. `backward` takes the inputs, the result and the gradient of the result,
/// and returns one gradient for each input, of the input's shape. Both are written in [`Var`]s, so that they run on each
/// engine and fuse with the ops around them; the gradient itself can be differentiated. `name` is the name of the op in
/// messages and programs. Under [`vmap`](crate::transform::vmap) the function keeps its values, while its gradient
/// becomes the derivative of `forward`: [`CustomOp::batched`] is the way to keep the gradient there.
///
/// A [`Var`] stands for a tensor of any shape and float dtype. `+ - * /` take another `Var`, by value or by reference, or
/// a number (`f64` or `f32`), and broadcast. Methods are those of [`Var`]: `exp`, `sqrt`, `tanh`, `select`, `sum`,
/// `matmul` and others; [`Var::scalar`] makes a number an operand, as in `x.max(&x.scalar(0.0))`.
///
/// Neither function may capture variables, which is an error at compile time. A value that changes between calls is
/// another tensor in `inputs`, with [`detach`](Tensor::detach) if it needs no gradient; `backward` then returns zeros for
/// it. Or implement [`CustomOp`], whose [`attributes`](CustomOp::attributes) contain such values, and which also has ops
/// without an expansion, integer results and kernels of one engine. [`gradient_reversal`](super::gradient_reversal) is
/// built in.
///
/// The straight-through estimator ([Bengio et al. 2013](https://arxiv.org/abs/1308.3432)) rounds, with the gradient of
/// the identity:
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Autodiff, Tensor, module};
///
/// let x = Tensor::<Autodiff<Flex>, 1>::from([0.4, 1.6]).require_grad();
/// let y: Tensor<_, 1> = module::custom_gradient(
///     "straight_through_round",
///     vec![x.clone()],
///     |inputs| inputs[0].round(),
///     |_inputs, _output, gradient| vec![gradient.clone()],
/// );
/// assert_eq!(y.to_vec::<f32>(), [0.0, 2.0]);
/// assert_eq!(x.grad(&y.backward()).unwrap().to_vec::<f32>(), [1.0, 1.0]);
/// ```
///
/// The limit of a clipped gradient is another input:
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Autodiff, Tensor, module};
///
/// let x = Tensor::<Autodiff<Flex>, 1>::from([0.5, 3.0]).require_grad();
/// let limit = Tensor::from([1.0]);
/// let y: Tensor<_, 1> = module::custom_gradient(
///     "clipped_square",
///     vec![x.clone(), limit],
///     |inputs| inputs[0].square(),
///     |inputs, _output, gradient| {
///         let slope = &inputs[0] * 2.0f32;
///         vec![slope.min(&inputs[1]) * gradient, &inputs[1] * 0.0f32]
///     },
/// );
/// assert_eq!(x.grad(&y.backward()).unwrap().to_vec::<f32>(), [1.0, 1.0]);
/// ```
///
/// # Panics
/// When there is no input, `forward` does not suit the inputs, or its result is not of rank `D2`. In the backward pass,
/// when `backward` does not return one gradient for each input.
#[doc(alias = "custom_vjp")]
#[doc(alias = "autograd.Function")]
#[track_caller]
pub fn custom_gradient<B: Backend, const D: usize, const D2: usize, F, G>(
    name: &'static str,
    inputs: Vec<Tensor<B, D>>,
    forward: F,
    backward: G,
) -> Tensor<B, D2>
where
    F: for<'e> Fn(&[Var<'e>]) -> Var<'e> + Send + Sync + 'static,
    G: for<'e> Fn(&[Var<'e>], &Var<'e>, &Var<'e>) -> Vec<Var<'e>> + Send + Sync + 'static,
{
    const {
        // The types of the functions identify the op where plans are cached; values that they captured would not.
        assert!(
            size_of::<(F, G)>() == 0,
            "a function passed to `custom_gradient` captures a variable: pass the value as another tensor in `inputs`, \
             with `detach` if it needs no gradient, write a constant in the function, or implement `CustomOp` with the \
             value in `attributes`"
        );
    }
    custom::<B, D, D2, Float>(Function { name, forward, backward }, inputs)
}

struct Function<F, G> {
    name: &'static str,
    forward: F,
    backward: G,
}

impl<F, G> fmt::Debug for Function<F, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<F, G> CustomOp for Function<F, G>
where
    F: for<'e> Fn(&[Var<'e>]) -> Var<'e> + Send + Sync + 'static,
    G: for<'e> Fn(&[Var<'e>], &Var<'e>, &Var<'e>) -> Vec<Var<'e>> + Send + Sync + 'static,
{
    fn name(&self) -> &str {
        self.name
    }

    fn attributes(&self) -> String {
        format!("{:?}", TypeId::of::<(F, G)>())
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        let types: Option<Vec<TensorType>> = inputs.iter().map(|input| input.tensor().copied()).collect();
        let types = types.ok_or_else(|| Error::type_error(self.name, "expects tensors", inputs))?;
        let recorder = Recorder::new(&types);
        let inputs: Vec<Var<'_>> = recorder.inputs().into_iter().map(|v| Var::new(&recorder, v)).collect();
        let output = (self.forward)(&inputs).into_value();
        Ok([*output.ty()].into_iter().collect())
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        Some(vec![(self.forward)(inputs)])
    }

    fn is_expression(&self) -> bool {
        true
    }

    fn vjp<'e>(
        &self,
        inputs: &[Var<'e>],
        outputs: &[Var<'e>],
        gradients: &[Option<Var<'e>>],
    ) -> Option<Result<Vec<Option<Var<'e>>>>> {
        let (Some(output), Some(Some(gradient))) = (outputs.first(), gradients.first()) else {
            return Some(Ok(inputs.iter().map(|_| None).collect()));
        };
        let found = (self.backward)(inputs, output, gradient);
        if found.len() != inputs.len() {
            let problem = format!("`backward` returns {} gradients for {} inputs", found.len(), inputs.len());
            let hint = "return one gradient for each input, zeros for one without a gradient".to_string();
            return Some(Err(Error::value(self.name, problem).hint(hint)));
        }
        Some(Ok(found.into_iter().map(Some).collect()))
    }
}
