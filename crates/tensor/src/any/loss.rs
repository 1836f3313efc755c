//! Loss functions. The typed functions are in [`loss`](crate::loss).

mod binary;
mod classes;
mod ctc;
mod difference;
mod embedding;
mod image;
mod likelihood;
mod margin;
mod rnnt;

pub use classes::ClassOptions;
pub use ctc::CtcOptions;
pub use embedding::TripletOptions;
pub use rnnt::RnntOptions;

use crate::{AnyTensor, Result};
use kiln_ir::{Binary, Reduction as Combine, Var};
use serde::{Deserialize, Serialize};

/// The reduction of the losses of a batch.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Tensor, loss};
///
/// let x = Tensor::<Flex, 1>::from_data([1.0f32, 3.0], &Default::default());
/// let sum = loss::l1(x.clone(), x.zeros_like(), loss::Reduction::Sum);
/// assert_eq!(sum.into_data().to_vec::<f32>(), [4.0]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reduction {
    /// The mean; NaN without losses.
    #[default]
    Mean,
    /// The sum.
    Sum,
    /// No reduction.
    None,
    /// The sum, divided by the length of the first axis: PyTorch's `batchmean`, the mathematical Kullback-Leibler
    /// divergence.
    BatchMean,
    /// The default of the loss, as in Burn: [`BatchMean`](Reduction::BatchMean) for the Kullback-Leibler divergence,
    /// the mean for every other loss.
    Auto,
}

impl Reduction {
    /// Returns the reduction that `Auto` stands for.
    pub(crate) fn or(self, default: Reduction) -> Reduction {
        if self == Reduction::Auto { default } else { self }
    }

    /// Reduces losses to shape `[1]`, or returns them unchanged. Sums for a mean are computed in at least `f32`.
    pub(crate) fn of(self, losses: AnyTensor) -> Result<AnyTensor> {
        let divisor = match self {
            Reduction::None => return Ok(losses),
            Reduction::Sum => return losses.reduce_all(Combine::Sum),
            Reduction::Mean | Reduction::Auto => losses.shape().num_elements(),
            Reduction::BatchMean => losses.shape().first().copied().unwrap_or(1),
        };
        let dtype = losses.dtype();
        losses.widened()?.reduce_all(Combine::Sum)?.binary_scalar(Binary::Div, divisor)?.cast(dtype)
    }
}

impl AnyTensor {
    /// Checks that predictions and targets are floats of the same type, then applies a formula and the reduction, in
    /// at least `f32`.
    fn compared(
        self,
        op: &str,
        target: AnyTensor,
        reduction: Reduction,
        f: impl for<'e> FnOnce(Var<'e>, Var<'e>) -> Var<'e>,
    ) -> Result<AnyTensor> {
        self.check_float(op)?;
        self.check_alike(op, &target)?;
        if self.shape() != target.shape() {
            return Err(self
                .unlike(op, "predictions and targets differ in shape", &target)
                .hint("reshape or expand the targets: one that broadcasts is nearly always a mistake"));
        }
        let dtype = self.dtype();
        reduction.of(self.wide_expression([target], |x, [t]| f(x, t)))?.cast(dtype)
    }
}
