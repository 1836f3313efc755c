//! Matrix products, convolutions and pooling.

use crate::library::{Call, CandleCore, Native, constant, nan_mask};
use candle_core::{DType as CandleDType, Result, Tensor};
use kiln_foreign::{Contraction, Library};
use kiln_ir::{ConvPass, ConvSpec, PoolKind, PoolSpec};

impl Contraction for CandleCore {
    fn matmul(call: &Call<'_>) -> Native {
        let dtype = call.ty().dtype;
        if !dtype.is_float() || !call.dtype().is_float() {
            return Ok(None);
        }
        // GPUs accumulate products of 16-bit floats in `f32` themselves.
        let factor = |place: usize| -> Result<Tensor> {
            let x = call.tensor(place)?;
            let x = if call.library.0.is_cpu() { CandleCore::widened(&x)? } else { x };
            in_three_axes(&x)
        };
        let (a, b) = (factor(0)?, factor(1)?);
        // Candle reads transposed factors in place. Other strides it refuses, and a factor that repeats for all matrices of a
        // stack makes it take the other one for row-major.
        let repeats = a.stride()[0] == 0 || b.stride()[0] == 0;
        let direct = if repeats { None } else { a.matmul(&b).ok() };
        let y = match direct {
            Some(y) => y,
            None => a.contiguous()?.matmul(&b.contiguous()?)?,
        };
        CandleCore::rounded(&y.reshape(call.dims())?, dtype).map(Some)
    }

    /// Forward, over one or two dimensions, with one stride and one dilation.
    fn has_conv(spec: &ConvSpec, pass: &ConvPass) -> bool {
        let is_forward = match pass {
            ConvPass::Forward => true,
            ConvPass::Input { .. } | ConvPass::Weight { .. } => false,
        };
        is_forward
            && matches!(spec.stride.len(), 1 | 2)
            && all_equal(&spec.stride)
            && all_equal(&spec.dilation)
    }

    fn conv(_: &Call<'_>, x: &Tensor, w: &Tensor, spec: &ConvSpec, _: &ConvPass) -> Result<Tensor> {
        let (x, padding) = padded(x, &spec.padding)?;
        let (x, w, stride, dilation) = (x.contiguous()?, w.contiguous()?, spec.stride[0], spec.dilation[0]);
        match spec.stride.len() {
            1 => x.conv1d(&w, padding, stride, dilation, spec.groups),
            _ => x.conv2d(&w, padding, stride, dilation, spec.groups),
        }
    }

    /// Over one or two dimensions, without padding and dilation.
    fn has_pool(spec: &PoolSpec) -> bool {
        matches!(spec.window.len(), 1 | 2)
            && spec.padding.iter().all(|sides| *sides == (0, 0))
            && spec.overhang.iter().all(|overhang| *overhang == 0)
            && spec.dilation.iter().all(|dilation| *dilation == 1)
    }

    fn pool(_: &Call<'_>, x: &Tensor, spec: &PoolSpec) -> Result<Tensor> {
        let x = if spec.window.len() == 1 { x.unsqueeze(2)? } else { x.clone() };
        let x = x.contiguous()?;
        let pair = |lengths: &[usize]| match *lengths {
            [only] => (1, only),
            _ => (lengths[0], lengths[1]),
        };
        let (window, stride) = (pair(&spec.window), pair(&spec.stride));
        match spec.kind {
            PoolKind::Average { .. } => x.avg_pool2d_with_stride(window, stride),
            PoolKind::Max => {
                let has_nan = nan_mask(&x)?.to_dtype(CandleDType::F32)?;
                let has_nan = has_nan.max_pool2d_with_stride(window, stride)?;
                let y = x.max_pool2d_with_stride(window, stride)?;
                has_nan.gt(0.0)?.where_cond(&constant(&y, f64::NAN)?, &y)
            }
        }
    }
}

/// A stack of matrices, with one axis in front of the last two.
fn in_three_axes(x: &Tensor) -> Result<Tensor> {
    match x.dims() {
        [_, _] => x.unsqueeze(0),
        [.., m, n] if x.rank() > 3 => x.reshape(((), *m, *n)),
        _ => Ok(x.clone()),
    }
}

fn all_equal(lengths: &[usize]) -> bool {
    lengths.iter().all(|length| *length == lengths[0])
}

/// The operand and the padding that candle adds: the same on all sides, or none where it differs and is added here.
fn padded(x: &Tensor, padding: &[(usize, usize)]) -> Result<(Tensor, usize)> {
    let first = padding[0].0;
    if padding.iter().all(|&sides| sides == (first, first)) {
        return Ok((x.clone(), first));
    }
    let mut x = x.clone();
    for (i, &(low, high)) in padding.iter().enumerate() {
        x = x.pad_with_zeros(2 + i, low, high)?;
    }
    Ok((x, 0))
}
