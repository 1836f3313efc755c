//! Gradient checking by finite differences.

use super::{Tree, autodiff_above, flattened, grad, unflattened};
use crate::tensor::ok;
use crate::{AnyTensor, AutodiffBackend, DType, Error, Result, Tensor, TensorData};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{TensorType, philox};

/// Options of [`gradcheck`]. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradcheckOptions {
    /// Step of the central difference. Default 1e-6.
    pub step: f64,
    /// Relative tolerance. Default 1e-3.
    pub relative: f64,
    /// Absolute tolerance. Default 1e-5.
    pub absolute: f64,
}

impl Default for GradcheckOptions {
    fn default() -> GradcheckOptions {
        GradcheckOptions { step: 1e-6, relative: 1e-3, absolute: 1e-5 }
    }
}

/// Compares the gradient of a function with finite differences, for every element of its float arguments. Use it to
/// test functions with custom gradient rules, such as custom ops.
///
/// It differentiates the sum of the results with fixed random weights, so that errors do not cancel.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::transform::{GradcheckOptions, gradcheck};
/// use kiln_tensor::{Autodiff, DType, Tensor};
///
/// type B = Autodiff<Flex>;
/// let x = Tensor::<Flex, 1>::from_data_dtype([0.5, -1.5], DType::F64, &Default::default());
/// let options = GradcheckOptions::default();
/// gradcheck(|x: Tensor<B, 1>| x.clone().sin() * x, x.clone(), options)?;
/// // A gradient that is cut is found.
/// assert!(gradcheck(|x: Tensor<B, 1>| x.clone().detach() * x, x, options).is_err());
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
///
/// <https://docs.pytorch.org/docs/stable/generated/torch.autograd.gradcheck.gradcheck.html>
///
/// # Errors
/// When a gradient differs; the message names the tensor, the element and both numbers. When a float argument is not
/// `f64`, because differences of lower precision are too coarse.
pub fn gradcheck<A, T, F, const R: usize>(
    f: F,
    x: T::On<A::InnerBackend>,
    options: GradcheckOptions,
) -> Result<()>
where
    A: AutodiffBackend,
    T: Tree<A>,
    F: Fn(T) -> Tensor<A, R>,
{
    let weighted = |x: T| {
        let y = f(x);
        let weights = ok(weights(*y.as_any().ty()));
        let weights: Tensor<A, R> = Tensor::from_any(AnyTensor::from_data(weights, y.engine_stack()));
        (y * weights).sum()
    };
    let (leaves, structure) = flattened::<A::InnerBackend, _>(x.clone());
    let (gradients, _) = flattened::<A::InnerBackend, _>(grad(weighted)(x));
    let slope = |leaves: Vec<AnyTensor>| -> Result<f64> {
        let Some(first) = leaves.first() else { return Ok(0.0) };
        let above = autodiff_above::<A>(first.stack());
        let lifted = leaves.into_iter().map(|leaf| leaf.from_inner(&above)).collect::<Result<Vec<_>>>()?;
        weighted(unflattened::<A, T>(&structure, lifted)?).try_into_scalar()
    };
    compare(&leaves, &gradients, &slope, options)
}

/// The scalar function of the leaves whose derivatives are the gradients.
type Projected<'a> = dyn Fn(Vec<AnyTensor>) -> Result<f64> + 'a;

fn compare(
    leaves: &[AnyTensor],
    gradients: &[AnyTensor],
    projected: &Projected<'_>,
    options: GradcheckOptions,
) -> Result<()> {
    for (number, leaf) in leaves.iter().enumerate().filter(|(_, leaf)| leaf.dtype().is_float()) {
        if leaf.dtype() != DType::F64 {
            let problem = format!("tensor {number} is not f64");
            return Err(Error::type_error("gradcheck", problem, &[leaf.ty().into()]).hint(
                "create it with `from_data_dtype` or `cast`: differences of narrower numbers are too coarse",
            ));
        }
        let gradient = gradients[number].to_data()?.to_vec::<f64>();
        let numbers = leaf.to_data()?.to_vec::<f64>();
        for (element, &found) in gradient.iter().enumerate() {
            let at = |offset: f64| {
                let mut moved = numbers.to_vec();
                moved[element] += offset;
                let mut leaves = leaves.to_vec();
                leaves[number] = AnyTensor::from_data(TensorData::new(moved, *leaf.shape())?, leaf.stack());
                projected(leaves)
            };
            let slope = (at(options.step)? - at(-options.step)?) / (2.0 * options.step);
            let agrees = (found - slope).abs() <= options.absolute + options.relative * slope.abs();
            if !agrees {
                let problem = format!(
                    "the gradient for element {element} of tensor {number} is {found}, but the slope is about {slope}"
                );
                return Err(Error::gradient("gradcheck", problem).hint(
                    "check the rule of the custom op and detached tensors; the point must not be a kink",
                ));
            }
        }
    }
    Ok(())
}

/// Returns fixed weights in 0.5 to 1.5.
fn weights(ty: TensorType) -> Result<TensorData> {
    let weight = |index: usize| {
        let [bits, ..] = philox::block(0x6b69_6c6e, index as u64);
        0.5 + f64::from(bits) / f64::from(u32::MAX)
    };
    let numbers: Vec<f64> = (0..ty.num_elements()).map(weight).collect();
    Ok(TensorData::new(numbers, ty.shape)?.convert(ty.dtype))
}
