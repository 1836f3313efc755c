//! Softmax and normalisation.

use crate::ffi::Argument::{self, Bool, Int, Ints, Real};
use crate::ffi::call as call_torch;
use crate::library::Torch;
use crate::tensor::{Result, Tensor, TorchType, ints, one};
use kiln_foreign::Composite;
use kiln_ir::NormKind;

impl Composite for Torch {
    fn softmax(x: &Tensor, axis: usize, log: bool) -> Result {
        let op = if log { c"_log_softmax" } else { c"_softmax" };
        one(op, &[x.arg(), Int(axis as i64), Bool(false)])
    }

    fn log_sum_exp(x: &Tensor, axis: usize) -> Result {
        one(c"logsumexp", &[x.arg(), Ints(&[axis as i64]), Bool(true)])
    }

    fn norm(
        x: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        kind: NormKind,
        axes: usize,
        epsilon: f64,
    ) -> Result {
        let row = x.rank() - axes;
        let lengths = ints(&x.dims()[row..]);
        let count: i64 = lengths.iter().product();
        let mean_of = |x: &Tensor| {
            let ty = if x.is(TorchType::Double) { TorchType::Double } else { TorchType::Float };
            let axes: Vec<usize> = (row..x.rank()).collect();
            x.sum(&axes, ty)?.with(c"div.Scalar", Real(count as f64))
        };
        let y = match kind {
            NormKind::Layer => {
                // LibTorch multiplies the row and its mean by the scale before it subtracts them, which loses the digits that the
                // mean has in common with the row.
                let x = x.and(c"sub.Tensor", &mean_of(x)?)?;
                let arguments = [x.arg(), Ints(&lengths), optional(weight), optional(bias), Real(epsilon)];
                let [y, _mean, _deviation] = call_torch(c"native_layer_norm", &arguments)?;
                return Ok(y);
            }
            NormKind::Rms => {
                let mean = mean_of(&x.and(c"mul.Tensor", x)?)?;
                x.and(c"div.Tensor", &mean.with(c"add.Scalar", Real(epsilon))?.map(c"sqrt")?)?
            }
        };
        let y = weight.map_or(Ok(y.clone()), |weight| y.and(c"mul.Tensor", weight))?;
        bias.map_or(Ok(y.clone()), |bias| y.and(c"add.Tensor", bias))
    }
}

fn optional(x: Option<&Tensor>) -> Argument<'_> {
    x.map_or(Argument::None, Tensor::arg)
}
