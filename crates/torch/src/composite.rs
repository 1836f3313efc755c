//! Softmax and normalisation.

use crate::call::{Call, Native, rounded, widened};
use crate::ffi::Argument::{self, Bool, Int, Ints, Real};
use crate::ffi::call as call_torch;
use crate::tensor::{Tensor, TorchType, ints, one};
use kiln_ir::NormKind;

pub(crate) fn softmax(call: &Call<'_>, axis: usize, log: bool) -> Native {
    let x = widened(&call.tensor(0)?)?;
    let op = if log { c"_log_softmax" } else { c"_softmax" };
    rounded(&one(op, &[x.arg(), Int(axis as i64), Bool(false)])?, call.ty().dtype).map(Some)
}

pub(crate) fn log_sum_exp(call: &Call<'_>, axis: usize) -> Native {
    let x = widened(&call.tensor(0)?)?;
    let y = one(c"logsumexp", &[x.arg(), Ints(&[axis as i64]), Bool(true)])?;
    rounded(&y, call.ty().dtype).map(Some)
}

pub(crate) fn norm(call: &Call<'_>, kind: NormKind, axes: usize, epsilon: f64) -> Native {
    let x = widened(&call.tensor(0)?)?;
    let widened_at = |place: usize| call.optional(place)?.map(|x| widened(&x)).transpose();
    let (weight, bias) = (widened_at(1)?, widened_at(2)?);
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
            let x = x.and(c"sub.Tensor", &mean_of(&x)?)?;
            let arguments =
                [x.arg(), Ints(&lengths), optional(weight.as_ref()), optional(bias.as_ref()), Real(epsilon)];
            let [y, _mean, _deviation] = call_torch(c"native_layer_norm", &arguments)?;
            return rounded(&y, call.ty().dtype).map(Some);
        }
        NormKind::Rms => {
            let mean = mean_of(&x.and(c"mul.Tensor", &x)?)?;
            x.and(c"div.Tensor", &mean.with(c"add.Scalar", Real(epsilon))?.map(c"sqrt")?)?
        }
    };
    let y = weight.map_or(Ok(y.clone()), |weight| y.and(c"mul.Tensor", &weight))?;
    let y = bias.map_or(Ok(y.clone()), |bias| y.and(c"add.Tensor", &bias))?;
    rounded(&y, call.ty().dtype).map(Some)
}

fn optional(x: Option<&Tensor>) -> Argument<'_> {
    x.map_or(Argument::None, Tensor::arg)
}
