//! Reductions and scans.

use crate::call::{Call, Native, ordered, rounded, unordered, widened};
use crate::ffi::Argument::{Bool, Int};
use crate::ffi::call as call_torch;
use crate::tensor::{Result, Tensor, TorchType, cat, one};
use kiln_ir::{Axes, DType, Extremum, Reduction};

/// The dtype in which LibTorch adds and multiplies: integers wrap when the result is narrowed.
fn accumulator(x: &Tensor, dtype: DType) -> TorchType {
    match (dtype.is_float(), x.is(TorchType::Double)) {
        (true, true) => TorchType::Double,
        (true, false) => TorchType::Float,
        (false, _) => TorchType::Long,
    }
}

pub(crate) fn reduce(call: &Call<'_>, reduction: Reduction, axes: &Axes) -> Native {
    let (x, dtype) = (call.tensor(0)?, call.dtype());
    let axes = axes.to_vec();
    if axes.is_empty() {
        return Ok(Some(x));
    }
    let op = match reduction {
        Reduction::Sum => {
            let x = widened(&x)?;
            return rounded(&x.sum(&axes, accumulator(&x, dtype))?, dtype).map(Some);
        }
        Reduction::Prod => return rounded(&product(&widened(&x)?, &axes, dtype)?, dtype).map(Some),
        Reduction::Min => c"amin",
        Reduction::Max => c"amax",
    };
    unordered(&ordered(&x, dtype)?.extreme(op, &axes)?, dtype).map(Some)
}

fn product(x: &Tensor, axes: &[usize], dtype: DType) -> Result {
    let ty = Int(i64::from(accumulator(x, dtype) as i32));
    let mut x = x.clone();
    for &axis in axes {
        x = one(c"prod.dim_int", &[x.arg(), Int(axis as i64), Bool(true), ty])?;
    }
    Ok(x)
}

pub(crate) fn arg_reduce(call: &Call<'_>, extremum: Extremum, axis: usize) -> Native {
    let x = ordered(&call.tensor(0)?, call.dtype())?;
    let op = match extremum {
        Extremum::Min => c"argmin",
        Extremum::Max => c"argmax",
    };
    let place = one(op, &[x.arg(), Int(axis as i64), Bool(true)])?;
    rounded(&place, call.ty().dtype).map(Some)
}

pub(crate) fn scan(
    call: &Call<'_>,
    reduction: Reduction,
    axis: usize,
    reverse: bool,
    exclusive: bool,
) -> Native {
    let (mut x, dtype) = (call.tensor(0)?, call.dtype());
    if reverse {
        x = x.flip(axis)?;
    }
    if exclusive {
        let mut dims = x.dims();
        let others = dims[axis] - 1;
        dims[axis] = 1;
        let identity = call.repeated(reduction.identity(dtype), dtype, &dims)?;
        x = cat(&[identity, x.narrow(axis, 0, others)?], axis)?;
    }
    let y = scanned(&x, reduction, axis, dtype)?;
    if reverse { y.flip(axis).map(Some) } else { Ok(Some(y)) }
}

fn scanned(x: &Tensor, reduction: Reduction, axis: usize, dtype: DType) -> Result {
    let axis = Int(axis as i64);
    let op = match reduction {
        Reduction::Sum | Reduction::Prod => {
            let op = if reduction == Reduction::Sum { c"cumsum" } else { c"cumprod" };
            let x = widened(x)?;
            let ty = Int(i64::from(accumulator(&x, dtype) as i32));
            return rounded(&one(op, &[x.arg(), axis, ty])?, dtype);
        }
        Reduction::Min => c"cummin",
        Reduction::Max => c"cummax",
    };
    let x = ordered(x, dtype)?;
    let [y, _places] = call_torch(op, &[x.arg(), axis])?;
    unordered(&y, dtype)
}
