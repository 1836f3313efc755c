//! Loops over steps as one op, for typed tensors.

use super::{Tree, flattened, unflattened};
use crate::tensor::ok;
use crate::{Backend, loop_over};
use alloc::vec::Vec;

/// Runs `body` once for each step along axis 0 of the scanned tensors, as one op: [`loop_over`] for typed tensors.
///
/// `carried`, `scanned` and `constants` are [`Tree`]s. `body` receives the carried values, one slice of each scanned
/// tensor (without axis 0) and the constants, and returns the new carried values and the outputs of the step. The result
/// is the final carried values, and the outputs of all steps with a new axis 0. Their ranks follow from annotations: of
/// the slices in the closure, of the stacked outputs in a `let`. With `reverse`, the last step runs first.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Tensor, transform::scan};
///
/// // A running sum of the rows of a matrix.
/// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], &Default::default());
/// let start = Tensor::<Flex, 1>::zeros([2], &Default::default());
/// let none = Vec::<Tensor<Flex, 1>>::new();
/// let body = |sum: Tensor<Flex, 1>, row: Tensor<Flex, 1>, _: Vec<Tensor<Flex, 1>>| {
///     let sum = sum + row;
///     (sum.clone(), sum)
/// };
/// let (last, all): (_, Tensor<Flex, 2>) = scan(start, x, none, false, body);
/// assert_eq!(last.into_data().to_vec::<f32>(), [9.0, 12.0]);
/// assert_eq!(all.into_data().to_vec::<f32>(), [1.0, 2.0, 4.0, 6.0, 9.0, 12.0]);
/// ```
///
/// # Panics
/// With the errors of [`loop_over`]. When a slice or an output has another rank or kind than its type.
#[track_caller]
pub fn scan<B, C, X, S, K, Y, Z>(
    carried: C,
    scanned: X,
    constants: K,
    reverse: bool,
    body: impl FnOnce(C, S, K) -> (C, Y),
) -> (C, Z)
where
    B: Backend,
    C: Tree<B>,
    X: Tree<B>,
    S: Tree<B>,
    K: Tree<B>,
    Y: Tree<B>,
    Z: Tree<B>,
{
    let (carried, of_carried) = flattened(carried);
    let (scanned, of_scanned) = flattened(scanned);
    let (constants, of_constants) = flattened(constants);
    let mut of_outputs = None;
    let results = loop_over(carried, scanned, constants, reverse, |carried, slices, constants| {
        let carried = unflattened(&of_carried, carried.to_vec())?;
        let slices = unflattened(&of_scanned, slices.to_vec())?;
        let (carried, outputs) = body(carried, slices, unflattened(&of_constants, constants.to_vec())?);
        let (mut new, mut leaves) = (Vec::new(), Vec::new());
        carried.flatten(&mut new);
        of_outputs = Some(outputs.flatten(&mut leaves));
        Ok((new, leaves))
    });
    ok(results.and_then(|(carried, outputs)| {
        let of_outputs = of_outputs.unwrap_or(super::Structure::Node(Vec::new()));
        Ok((unflattened(&of_carried, carried)?, unflattened(&of_outputs, outputs)?))
    }))
}
