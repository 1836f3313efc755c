//! Fourier transforms: the op transforms one axis without scaling; sizes, norms and real transforms are around it.

use crate::call::{Call, Outputs, one};
use kiln_ir::{Op, PadAxis, SliceAxis, Var};

/// A complex tensor as two real ones.
type Complex<'e> = (Var<'e>, Var<'e>);

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    let axes = call.counts("axes");
    let sizes = call.optional_counts("sizes");
    let y = match &*call.op {
        "fft" | "ifft" => {
            let inverse = call.op == "ifft";
            let mut x = split(&call.var("x"));
            for (i, &axis) in axes.iter().enumerate() {
                let size = sizes.as_ref().map_or(x.0.shape()[axis], |sizes| sizes[i]);
                x = transform(call, fit(&x, axis, size), axis, inverse);
            }
            joined(x)
        }
        "rfft" => joined(rfft(call, &axes, sizes.as_deref())),
        "irfft" => irfft(call, &axes, sizes.as_deref()),
        op => panic!("unknown op {op}"),
    };
    one(call.done(y))
}

fn split<'e>(x: &Var<'e>) -> Complex<'e> {
    let last = x.rank() - 1;
    let shape = x.shape().without(last);
    let part = |start| x.slice_axis(last, SliceAxis { start, len: 1, step: 1 }).reshape(shape);
    (part(0), part(1))
}

fn joined<'e>((re, im): Complex<'e>) -> Var<'e> {
    let shape = re.shape().inserted(re.rank(), 1);
    Var::concat(&[re.reshape(shape), im.reshape(shape)], re.rank())
}

/// Cut, or padded with zeros at the end, to a size.
fn fit<'e>((re, im): &Complex<'e>, axis: usize, size: usize) -> Complex<'e> {
    (fit_one(re, axis, size), fit_one(im, axis, size))
}

fn fit_one<'e>(x: &Var<'e>, axis: usize, size: usize) -> Var<'e> {
    let length = x.shape()[axis];
    if size <= length {
        return x.slice_axis(axis, SliceAxis { start: 0, len: size, step: 1 });
    }
    let mut pads = vec![PadAxis::default(); x.rank()];
    pads[axis] = PadAxis::new(0, size - length);
    x.pad(pads, 0.0)
}

/// One axis, scaled as the norm says.
fn transform<'c>(call: &'c Call<'_>, (re, im): Complex<'c>, axis: usize, inverse: bool) -> Complex<'c> {
    let count = re.shape()[axis] as f64;
    let scale = match (call.text("norm"), inverse) {
        ("backward", true) | ("forward", false) => 1.0 / count,
        ("ortho", _) => 1.0 / count.sqrt(),
        _ => 1.0,
    };
    let y = call.emit(Op::Fft { axis, inverse }, &[&re, &im]);
    (&y[0] * scale, &y[1] * scale)
}

/// The last axis first, of which the second half mirrors the first.
fn rfft<'c>(call: &'c Call<'_>, axes: &[usize], sizes: Option<&[usize]>) -> Complex<'c> {
    let x = call.var("x");
    let mut y = (x.clone(), x * 0.0);
    for (i, &axis) in axes.iter().enumerate().rev() {
        let size = sizes.map_or(y.0.shape()[axis], |sizes| sizes[i]);
        y = transform(call, fit(&y, axis, size), axis, false);
        if i == axes.len() - 1 {
            y = fit(&y, axis, size / 2 + 1);
        }
    }
    y
}

/// The last axis last, with its second half made from the first.
fn irfft<'c>(call: &'c Call<'_>, axes: &[usize], sizes: Option<&[usize]>) -> Var<'c> {
    let mut x = split(&call.var("x"));
    let (&last, others) = axes.split_last().expect("an axis");
    for (i, &axis) in others.iter().enumerate() {
        let size = sizes.map_or(x.0.shape()[axis], |sizes| sizes[i]);
        x = transform(call, fit(&x, axis, size), axis, true);
    }
    let size = sizes.map_or(2 * (x.0.shape()[last] - 1), |sizes| sizes[others.len()]);
    let (re, im) = fit(&x, last, size / 2 + 1);
    // Element `size - k` is the conjugate of element `k`; those of 0 and, for an even size, of the middle stand alone.
    let mirrored = (size - 1) / 2;
    let mirror =
        |part: &Var<'c>| part.slice_axis(last, SliceAxis { start: mirrored, len: mirrored, step: -1 });
    let alone = alone(call, &im, last, size);
    let im = &im * alone;
    let (re_rest, im_rest) = (mirror(&re), -mirror(&im));
    let whole = (Var::concat(&[re, re_rest], last), Var::concat(&[im, im_rest], last));
    transform(call, whole, last, true).0
}

/// 0 at the elements whose imaginary part does not count, 1 elsewhere.
fn alone<'c>(call: &'c Call<'_>, im: &Var<'c>, axis: usize, size: usize) -> Var<'c> {
    let length = im.shape()[axis];
    let counts = |k: usize| if k == 0 || 2 * k == size { 0.0 } else { 1.0 };
    let weights: Vec<f64> = (0..length).map(counts).collect();
    let mut shape = vec![1; im.rank()];
    shape[axis] = length;
    let data = kiln_tensor::TensorData::new(weights, shape).expect("a weight for each").convert(im.dtype());
    call.constant(data)
}
