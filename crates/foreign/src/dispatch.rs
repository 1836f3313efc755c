//! The choice of a kernel: one arm per op.

use crate::call::Call;
use crate::index;
use crate::library::{Elementwise, Kernels, Native, Outcome};
use kiln_ir::{Binary, DType, Op, TensorType};

/// The number up to which `f32` represents every integer exactly.
const MAX_EXACT_F32: usize = 1 << 24;

/// Returns the entry of a key in a table of kernels; `None` if the library lacks it.
pub fn entry<K: PartialEq, V: Copy>(table: &[(K, V)], key: K) -> Option<V> {
    table.iter().find(|(other, _)| *other == key).map(|(_, kernel)| *kernel)
}

/// Returns a function of two tensors of a dtype.
///
/// # Errors
/// Those of the library.
pub fn binary<L: Elementwise>(a: &L::Tensor, b: &L::Tensor, function: Binary, dtype: DType) -> Native<L> {
    let y = L::binary(&L::widened(a)?, &L::widened(b)?, function, dtype)?;
    y.map(|y| L::rounded(&y, dtype)).transpose()
}

/// Runs an op by the library's kernels; `None` for an op without one, which runs on the host or by its expansion.
#[expect(clippy::wildcard_enum_match_arm, reason = "an op without an arm has no kernel in the library")]
pub(crate) fn dispatch<L: Kernels>(op: &Op, call: &Call<'_, L>) -> Native<L, Vec<L::Tensor>> {
    let x = || call.tensor(0);
    let wide = |place: usize| L::widened(&call.tensor(place)?);
    let rounded = |y: Option<L::Tensor>| y.map(|y| L::rounded(&y, call.ty().dtype)).transpose();
    let both = |dtype: DType| -> Outcome<L, _> { Ok((call.filled(0, dtype)?, call.filled(1, dtype)?)) };
    let sorted = |axis: usize, k: usize, descending: bool, index: DType| {
        L::sort(call, axis, k, descending, index).map(|sorted| sorted.map(Vec::from))
    };
    let one = match op {
        Op::Full(_) => match call.inputs[0].scalar() {
            Some(scalar) => L::contiguous(&call.repeated(scalar, call.ty().dtype, call.dims())?).map(Some),
            None => Ok(None),
        },
        Op::Iota { ty, axis } => iota(call, *ty, *axis),
        Op::Unary(function) => rounded(L::unary(call, &wide(0)?, *function, call.dtype())?),
        Op::Binary(function) => {
            let (a, b) = both(call.dtype())?;
            binary::<L>(&a, &b, *function, call.dtype())
        }
        Op::Compare(comparison) => {
            let (a, b) = both(call.dtype())?;
            L::compare(&a, &b, *comparison, call.dtype())
        }
        Op::Select => {
            let dtype = call.ty().dtype;
            L::select(&x()?, &call.filled(1, dtype)?, &call.filled(2, dtype)?).map(Some)
        }
        Op::Cast(dtype) if *dtype == call.dtype() => x().map(Some),
        Op::Cast(dtype) => L::cast(&x()?, call.dtype(), *dtype),
        Op::Bitcast(dtype) => L::bitcast(&x()?, call.dtype(), *dtype),
        Op::Reshape(_) => L::reshape(&x()?, call.dims()).map(Some),
        Op::Permute(axes) => L::permute(&x()?, &axes.to_vec()).map(Some),
        Op::Broadcast(_) => L::broadcast(&x()?, call.dims()).map(Some),
        Op::Slice(slices) => L::slice(call, &x()?, slices),
        Op::Pad(pads) => match call.inputs[1].scalar() {
            Some(number) => L::pad(call, &x()?, pads, number).map(Some),
            None => Ok(None),
        },
        Op::Concat { axis } => {
            let parts: Outcome<L, Vec<_>> = (0..call.inputs.len()).map(|place| call.tensor(place)).collect();
            L::concat(&parts?, *axis).map(Some)
        }
        Op::Windows { axis, size, step, dilation } => L::windows(call, &x()?, *axis, *size, *step, *dilation),
        Op::Copy => L::contiguous(&x()?).map(Some),
        Op::Reduce { axes, .. } if axes.is_empty() => x().map(Some),
        Op::Reduce { reduction, axes } => {
            rounded(L::reduce(&wide(0)?, *reduction, &axes.to_vec(), call.dtype())?)
        }
        Op::ArgReduce { extremum, axis, .. } => L::arg_reduce(call, *extremum, *axis),
        Op::Scan { reduction, axis, reverse, exclusive } => {
            L::scan(call, *reduction, *axis, *reverse, *exclusive)
        }
        Op::Sort { axis, descending, index } => {
            return sorted(*axis, call.dims()[*axis], *descending, *index);
        }
        Op::TopK { axis, k, largest, index } => return sorted(*axis, *k, *largest, *index),
        Op::Take { axis } => index::take(call, *axis),
        Op::Gather { axis } => index::gather(call, *axis),
        Op::Put { axis, mode } => index::put(call, *axis, *mode),
        Op::Scatter { axis, mode } => index::scatter(call, *axis, *mode),
        Op::SliceUpdate { slices, mode } => {
            L::slice_update(&x()?, &call.tensor(1)?, slices, *mode, call.ty().dtype)
        }
        Op::NonZero { .. } => rounded(L::non_zero(&x()?)?),
        Op::CheckIndex { length, .. } => index::check(call, *length),
        Op::MatMul => L::matmul(call),
        Op::Conv { spec, pass } => rounded(Some(L::conv(call, &wide(0)?, &wide(1)?, spec, pass)?)),
        Op::Pool(spec) => rounded(Some(L::reshape(&L::pool(call, &wide(0)?, spec)?, call.dims())?)),
        Op::Softmax { axis, log } => rounded(Some(L::softmax(&wide(0)?, *axis, *log)?)),
        Op::LogSumExp { axis } => rounded(Some(L::log_sum_exp(&wide(0)?, *axis)?)),
        Op::Norm { kind, axes, epsilon } => {
            let [weight, bias] = [1, 2].map(|at| (at < call.inputs.len()).then(|| wide(at)).transpose());
            rounded(Some(L::norm(&wide(0)?, weight?.as_ref(), bias?.as_ref(), *kind, *axes, epsilon.0)?))
        }
        _ => Ok(None),
    };
    Ok(one?.map(|tensor| vec![tensor]))
}

fn iota<L: Kernels>(call: &Call<'_, L>, ty: TensorType, axis: usize) -> Native<L> {
    let length = ty.shape[axis];
    if ty.dtype.is_float() && ty.dtype.size() == 2 && length > MAX_EXACT_F32 {
        return Ok(None);
    }
    let Some(line) = L::count(call, length)? else { return Ok(None) };
    let mut dims = vec![1; ty.shape.rank()];
    dims[axis] = length;
    L::contiguous(&L::broadcast(&L::reshape(&line, &dims)?, &ty.shape)?).map(Some)
}
