//! Matmuls and convolutions.

use crate::call::Call;
use crate::numbers::{Number, Numbers, reals};
use crate::places::{place, positions};
use crate::quantize::decoded;
use alloc::vec::Vec;
use kiln_ir::{BlockFormat, ConvPass, ConvSpec, Float8, Result, Shape, TensorData, TensorType};

pub(crate) fn matmul(a: &TensorData, b: &TensorData, ty: TensorType) -> Result<TensorData> {
    let rank = ty.rank();
    let sizes = [ty.shape[rank - 2], a.shape()[rank - 1], ty.shape[rank - 1]];
    let batches = ty.shape[..rank - 2].iter().product();
    let numbers = match (Numbers::of(a), Numbers::of(b)) {
        (Numbers::Real(a), Numbers::Real(b)) => Numbers::Real(products(&a, &b, batches, sizes)),
        (Numbers::Integer(a), Numbers::Integer(b)) => Numbers::Integer(products(&a, &b, batches, sizes)),
        (Numbers::Real(_), Numbers::Integer(_)) | (Numbers::Integer(_), Numbers::Real(_)) => {
            unreachable!("inference refuses operands of different dtypes")
        }
    };
    numbers.into_data(ty)
}

/// The scaled matmul of the decoded 8-bit floats.
pub(crate) fn matmul_float8(call: &Call<'_>, formats: [Float8; 2]) -> Result<TensorData> {
    let (a, b, ty) = (call.data(0)?, call.data(1)?, call.ty());
    let numbers = |data: &TensorData, format: Float8| -> Vec<f64> {
        data.bytes().iter().map(|&bits| f64::from(format.decode(bits))).collect()
    };
    let rank = ty.rank();
    let sizes = [ty.shape[rank - 2], a.shape()[rank - 1], ty.shape[rank - 1]];
    let batches = ty.shape[..rank - 2].iter().product();
    let mut y = products(&numbers(a, formats[0]), &numbers(b, formats[1]), batches, sizes);
    let scale: f64 = reals(call.data(2)?).into_iter().chain(reals(call.data(3)?)).product();
    y.iter_mut().for_each(|y| *y *= scale);
    Numbers::Real(y).into_data(ty)
}

/// The matmul with the transposed decoded weight. `x` is not rounded.
pub(crate) fn matmul_blocks(call: &Call<'_>, format: BlockFormat) -> Result<TensorData> {
    let (x, ty) = (call.data(0)?, call.ty());
    let axis = ty.rank() - 1;
    let (rows, inner, columns) =
        (ty.shape[..axis].iter().product::<usize>(), x.shape()[axis], ty.shape[axis]);
    let (x, weight) = (reals(x), decoded(call.data(1)?, format));
    let dot = |row: usize, column: usize| -> f64 {
        let pairs = x[row * inner..][..inner].iter().zip(&weight[column * inner..][..inner]);
        pairs.map(|(x, w)| x * f64::from(*w)).sum()
    };
    let y = (0..rows * columns).map(|i| dot(i / columns, i % columns)).collect();
    Numbers::Real(y).into_data(ty)
}

/// `[batches, rows, inner] x [batches, inner, columns] -> [batches, rows, columns]`.
fn products<N: Number>(a: &[N], b: &[N], batches: usize, [rows, inner, columns]: [usize; 3]) -> Vec<N> {
    let mut y = alloc::vec![N::ZERO; batches * rows * columns];
    for batch in 0..batches {
        for row in 0..rows {
            for k in 0..inner {
                let left = a[(batch * rows + row) * inner + k];
                for column in 0..columns {
                    let total = &mut y[(batch * rows + row) * columns + column];
                    *total = total.plus(left.times(b[(batch * inner + k) * columns + column]));
                }
            }
        }
    }
    y
}

/// A convolution sums products `x · w` into elements of `y`. The forward, input and weight passes iterate over the same
/// `(x, w, y)` index triples; each pass accumulates into another member of the triple.
pub(crate) fn conv(
    a: &TensorData,
    b: &TensorData,
    spec: &ConvSpec,
    pass: &ConvPass,
    ty: TensorType,
) -> Result<TensorData> {
    let (x, w, y) = match pass {
        ConvPass::Forward => (*a.shape(), *b.shape(), ty.shape),
        ConvPass::Input { .. } => (ty.shape, *b.shape(), *a.shape()),
        ConvPass::Weight { .. } => (*a.shape(), ty.shape, *b.shape()),
    };
    let (left, right) = (reals(a), reals(b));
    let mut totals = alloc::vec![0.0; ty.num_elements()];
    for_each_triple(spec, &x, &w, &y, |x, w, y| match pass {
        ConvPass::Forward => totals[y] += left[x] * right[w],
        ConvPass::Input { .. } => totals[x] += left[y] * right[w],
        ConvPass::Weight { .. } => totals[w] += left[x] * right[y],
    });
    Numbers::Real(totals).into_data(ty)
}

/// Calls a function with the indices in `x`, `w` and `y` of each triple.
fn for_each_triple(
    spec: &ConvSpec,
    x: &Shape,
    w: &Shape,
    y: &Shape,
    mut meet: impl FnMut(usize, usize, usize),
) {
    let (batch, out_channels, in_per_group) = (y[0], y[1], w[1]);
    let out_per_group = out_channels / spec.groups;
    let size = |shape: &Shape| shape[2..].iter().product::<usize>();
    let taps = taps(spec, &x[2..], &w[2..], &y[2..]);
    for n in 0..batch {
        for out in 0..out_channels {
            for within in 0..in_per_group {
                let channel = out / out_per_group * in_per_group + within;
                let x_start = (n * x[1] + channel) * size(x);
                let w_start = (out * in_per_group + within) * size(w);
                let y_start = (n * out_channels + out) * size(y);
                for tap in &taps {
                    meet(x_start + tap.x, w_start + tap.w, y_start + tap.y);
                }
            }
        }
    }
}

/// The spatial indices, within one channel, of one triple.
struct Tap {
    x: usize,
    w: usize,
    y: usize,
}

fn taps(spec: &ConvSpec, x: &[usize], w: &[usize], y: &[usize]) -> Vec<Tap> {
    let (x, w, y): (Shape, Shape, Shape) = (x.into(), w.into(), y.into());
    let mut taps = Vec::new();
    for (y_place, at) in positions(y).enumerate() {
        for (w_place, k) in positions(w).enumerate() {
            let index = |axis: usize| {
                let padded = at[axis] * spec.stride[axis] + k[axis] * spec.dilation[axis];
                padded.checked_sub(spec.padding[axis].0).filter(|&index| index < x[axis])
            };
            let source: Option<Vec<usize>> = (0..x.rank()).map(index).collect();
            if let Some(source) = source {
                taps.push(Tap { x: place(&x, &source), w: w_place, y: y_place });
            }
        }
    }
    taps
}
