//! Reductions, scans and sorting.

use crate::ffi::Argument::{Bool, Int};
use crate::ffi::call as call_torch;
use crate::library::{Call, Native, Torch, ordered, unordered};
use crate::tensor::{Result, Tensor, TorchType, one};
use kiln_foreign::{Library, Reduce, View};
use kiln_ir::{DType, Extremum, Reduction};

impl Reduce for Torch {
    fn reduce(x: &Tensor, reduction: Reduction, axes: &[usize], dtype: DType) -> Native {
        let op = match reduction {
            Reduction::Sum => return x.sum(axes, accumulator(x, dtype)).map(Some),
            Reduction::Prod => return product(x, axes, dtype).map(Some),
            Reduction::Min => c"amin",
            Reduction::Max => c"amax",
        };
        unordered(&ordered(x, dtype)?.extreme(op, axes)?, dtype).map(Some)
    }

    fn arg_reduce(call: &Call<'_>, extremum: Extremum, axis: usize) -> Native {
        let x = ordered(&call.tensor(0)?, call.dtype())?;
        let op = match extremum {
            Extremum::Min => c"argmin",
            Extremum::Max => c"argmax",
        };
        let place = one(op, &[x.arg(), Int(axis as i64), Bool(true)])?;
        Torch::rounded(&place, call.ty().dtype).map(Some)
    }

    fn scan(call: &Call<'_>, reduction: Reduction, axis: usize, reverse: bool, exclusive: bool) -> Native {
        let (mut x, dtype) = (call.tensor(0)?, call.dtype());
        if reverse {
            x = x.flip(axis)?;
        }
        if exclusive {
            let mut dims = x.dims();
            let others = dims[axis] - 1;
            dims[axis] = 1;
            let identity = call.repeated(reduction.identity(dtype), dtype, &dims)?;
            x = Torch::concat(&[identity, x.narrow(axis, 0, others)?], axis)?;
        }
        let y = scanned(&x, reduction, axis, dtype)?;
        if reverse { y.flip(axis).map(Some) } else { Ok(Some(y)) }
    }

    fn sort(call: &Call<'_>, axis: usize, k: usize, descending: bool, index: DType) -> Native<[Tensor; 2]> {
        let dtype = call.dtype();
        let x = ordered(&call.tensor(0)?, dtype)?;
        let arguments = [x.arg(), Bool(true), Int(axis as i64), Bool(descending)];
        let [values, places] = call_torch(c"sort.stable", &arguments)?;
        let first = |sorted: Tensor| sorted.narrow(axis, 0, k);
        Ok(Some([unordered(&first(values)?, dtype)?, Torch::rounded(&first(places)?, index)?]))
    }
}

/// The dtype in which LibTorch adds and multiplies: integers wrap when the result is narrowed.
fn accumulator(x: &Tensor, dtype: DType) -> TorchType {
    match (dtype.is_float(), x.is(TorchType::Double)) {
        (true, true) => TorchType::Double,
        (true, false) => TorchType::Float,
        (false, _) => TorchType::Long,
    }
}

fn product(x: &Tensor, axes: &[usize], dtype: DType) -> Result {
    let ty = Int(i64::from(accumulator(x, dtype) as i32));
    let mut x = x.clone();
    for &axis in axes {
        x = one(c"prod.dim_int", &[x.arg(), Int(axis as i64), Bool(true), ty])?;
    }
    Ok(x)
}

fn scanned(x: &Tensor, reduction: Reduction, axis: usize, dtype: DType) -> Result {
    let axis = Int(axis as i64);
    let op = match reduction {
        Reduction::Sum | Reduction::Prod => {
            let op = if reduction == Reduction::Sum { c"cumsum" } else { c"cumprod" };
            let x = Torch::widened(x)?;
            let ty = Int(i64::from(accumulator(&x, dtype) as i32));
            return Torch::rounded(&one(op, &[x.arg(), axis, ty])?, dtype);
        }
        Reduction::Min => c"cummin",
        Reduction::Max => c"cummax",
    };
    let x = ordered(x, dtype)?;
    let [y, _places] = call_torch(op, &[x.arg(), axis])?;
    unordered(&y, dtype)
}
