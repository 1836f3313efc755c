//! Matrix products, convolutions and pooling.

use crate::ffi::Argument::{Bool, Bools, Int, Ints, None as Left, Real};
use crate::ffi::call as call_torch;
use crate::library::{Call, Native, Torch, stored};
use crate::tensor::{Result, Tensor, TorchType, ints, one};
use kiln_foreign::{Contraction, Library};
use kiln_ir::{ConvPass, ConvSpec, DType, PoolKind, PoolSpec, Scalar};

/// The most spatial dimensions of LibTorch's convolutions and pooling.
const MAX_DIMENSIONS: usize = 3;

impl Contraction for Torch {
    fn matmul(call: &Call<'_>) -> Native {
        let dtype = call.ty().dtype;
        let is_processor = call.library.0.is_processor();
        if !dtype.is_float() && !is_processor {
            return Ok(None);
        }
        let factor = |place: usize| -> Result {
            let x = call.tensor(place)?;
            if !dtype.is_float() {
                return x.to(stored(dtype));
            }
            // GPUs accumulate products of 16-bit floats in `f32` themselves.
            if is_processor { Torch::widened(&x) } else { Ok(x) }
        };
        Torch::rounded(&factor(0)?.and(c"matmul", &factor(1)?)?, dtype).map(Some)
    }

    fn has_conv(spec: &ConvSpec, _: &ConvPass) -> bool {
        spec.stride.len() <= MAX_DIMENSIONS
    }

    /// LibTorch has the same padding on both sides. Zeros are added to the operand here, or cut off the gradient.
    fn conv(call: &Call<'_>, a: &Tensor, b: &Tensor, spec: &ConvSpec, pass: &ConvPass) -> Result {
        match pass {
            ConvPass::Forward => forward(&padded(a, &spec.padding, 0.0)?, b, spec),
            ConvPass::Input { size } => {
                let mut dims = call.dims().to_vec();
                for (i, (length, (low, high))) in size.iter().zip(&spec.padding).enumerate() {
                    dims[2 + i] = length + low + high;
                }
                let x = unread(call, a, &dims)?;
                let [mut gradient, _, _] = backward(a, &x, b, spec, [true, false, false])?;
                for (i, (length, (low, _))) in size.iter().zip(&spec.padding).enumerate() {
                    gradient = gradient.narrow(2 + i, *low, *length)?;
                }
                Ok(gradient)
            }
            ConvPass::Weight { .. } => {
                let w = unread(call, a, call.dims())?;
                let x = padded(a, &spec.padding, 0.0)?;
                let [_, gradient, _] = backward(b, &x, &w, spec, [false, true, false])?;
                Ok(gradient)
            }
        }
    }

    fn has_pool(spec: &PoolSpec) -> bool {
        spec.window.len() <= MAX_DIMENSIONS
    }

    fn pool(call: &Call<'_>, x: &Tensor, spec: &PoolSpec) -> Result {
        let size = x.dims().split_off(2);
        let edges: Vec<(usize, usize)> =
            spec.padding.iter().zip(&spec.overhang).map(|(&(low, high), &over)| (low, high + over)).collect();
        match spec.kind {
            PoolKind::Max => greatest(&padded(x, &edges, f64::NEG_INFINITY)?, spec),
            PoolKind::Average { include_padding } => {
                let total = summed(&padded(x, &edges, 0.0)?, spec)?;
                let is_counted = if include_padding { &spec.padding } else { &vec![(0, 0); size.len()] };
                let outside: Vec<(usize, usize)> = edges
                    .iter()
                    .zip(is_counted)
                    .map(|(all, counted)| (all.0 - counted.0, all.1 - counted.1))
                    .collect();
                let mut dims = vec![1, 1];
                dims.extend(size.iter().zip(is_counted).map(|(length, (low, high))| length + low + high));
                let ones = call.repeated(Scalar::Float(1.0), DType::F32, &dims)?;
                let counts = summed(&padded(&ones, &outside, 0.0)?, spec)?;
                total.and(c"div.Tensor", &counts)
            }
        }
    }
}

/// A tensor that gives a gradient its lengths, of one element in memory.
fn unread(call: &Call<'_>, like: &Tensor, dims: &[usize]) -> Result {
    let dtype = if like.is(TorchType::Double) { DType::F64 } else { DType::F32 };
    call.repeated(Scalar::Float(0.0), dtype, dims)
}

fn forward(x: &Tensor, w: &Tensor, spec: &ConvSpec) -> Result {
    let (stride, dilation, zeros) = (ints(&spec.stride), ints(&spec.dilation), vec![0; spec.stride.len()]);
    let arguments = [
        x.arg(),
        w.arg(),
        Left,
        Ints(&stride),
        Ints(&zeros),
        Ints(&dilation),
        Bool(false),
        Ints(&zeros),
        Int(spec.groups as i64),
    ];
    one(c"convolution", &arguments)
}

/// The gradients of an operand, a weight and a bias, those that are asked for.
fn backward(y: &Tensor, x: &Tensor, w: &Tensor, spec: &ConvSpec, asked: [bool; 3]) -> Result<[Tensor; 3]> {
    let (stride, dilation, zeros) = (ints(&spec.stride), ints(&spec.dilation), vec![0; spec.stride.len()]);
    let arguments = [
        y.arg(),
        x.arg(),
        w.arg(),
        Left,
        Ints(&stride),
        Ints(&zeros),
        Ints(&dilation),
        Bool(false),
        Ints(&zeros),
        Int(spec.groups as i64),
        Bools(&asked),
    ];
    call_torch(c"convolution_backward", &arguments)
}

/// Adds a number before and after the axes from the third on.
fn padded(x: &Tensor, sides: &[(usize, usize)], number: f64) -> Result {
    if sides.iter().all(|sides| *sides == (0, 0)) {
        return Ok(x.clone());
    }
    // LibTorch lists the last axis first.
    let list: Vec<i64> = sides.iter().rev().flat_map(|&(low, high)| [low as i64, high as i64]).collect();
    one(c"constant_pad_nd", &[x.arg(), Ints(&list), Real(number)])
}

/// The windows of a spec in two or three dimensions: one dimension gets another of length 1 in front.
struct Windows {
    window: Vec<i64>,
    stride: Vec<i64>,
    dilation: Vec<i64>,
}

impl Windows {
    fn of(spec: &PoolSpec) -> Windows {
        let lengths = |list: &[usize]| match list {
            [only] => vec![1, *only as i64],
            _ => ints(list),
        };
        let [window, stride, dilation] =
            [&spec.window, &spec.stride, &spec.dilation].map(|list| lengths(list));
        Windows { window, stride, dilation }
    }

    fn arranged(&self, x: &Tensor) -> Result {
        if x.rank() == 3 { x.with(c"unsqueeze", Int(2)) } else { Ok(x.clone()) }
    }
}

fn greatest(x: &Tensor, spec: &PoolSpec) -> Result {
    let windows = Windows::of(spec);
    let (x, zeros) = (windows.arranged(x)?, vec![0; windows.window.len()]);
    let op = if zeros.len() == 2 { c"max_pool2d_with_indices" } else { c"max_pool3d_with_indices" };
    let arguments =
        [x.arg(), Ints(&windows.window), Ints(&windows.stride), Ints(&zeros), Ints(&windows.dilation)];
    let [y, _places] = call_torch(op, &arguments)?;
    Ok(y)
}

/// The sum of each window.
fn summed(x: &Tensor, spec: &PoolSpec) -> Result {
    let windows = Windows::of(spec);
    let (x, zeros) = (windows.arranged(x)?, vec![0; windows.window.len()]);
    let op = if zeros.len() == 2 { c"avg_pool2d" } else { c"avg_pool3d" };
    let arguments = [
        x.arg(),
        Ints(&windows.window),
        Ints(&windows.stride),
        Ints(&zeros),
        Bool(false),
        Bool(true),
        Int(1),
    ];
    one(op, &arguments)
}
