//! Functions behind neural network modules: convolution, pooling, normalisation, attention, embedding.

use crate::{AnyTensor, Backend, Bool, Custom, CustomOp, Float, Int, Kind, Tensor};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{
    AttentionSpec, ConvPass, ConvSpec, Error, NormKind, Op, Operand, PadAxis, PoolKind, PoolSpec, Real,
    ResizeMode, Value,
};

/// The attributes of a convolution over `N` axes of space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvOptions<const N: usize> {
    /// Distance between neighbouring positions of the kernel. Default 1.
    pub stride: [usize; N],
    /// Zeros before and after each axis. Default none.
    pub padding: [(usize, usize); N],
    /// Distance between neighbouring elements of the kernel. Default 1.
    pub dilation: [usize; N],
    /// Into how many independent groups the channels are split. Default 1.
    pub groups: usize,
}

impl<const N: usize> Default for ConvOptions<N> {
    fn default() -> ConvOptions<N> {
        ConvOptions { stride: [1; N], padding: [(0, 0); N], dilation: [1; N], groups: 1 }
    }
}

impl<const N: usize> ConvOptions<N> {
    /// Options with the same number of zeros on both sides of each axis.
    pub fn new(
        stride: [usize; N],
        padding: [usize; N],
        dilation: [usize; N],
        groups: usize,
    ) -> ConvOptions<N> {
        ConvOptions { stride, padding: padding.map(|p| (p, p)), dilation, groups }
    }

    fn spec(&self) -> ConvSpec {
        ConvSpec {
            stride: self.stride.to_vec(),
            padding: self.padding.to_vec(),
            dilation: self.dilation.to_vec(),
            groups: self.groups,
        }
    }
}

/// `x · weightᵀ + bias`: `x` is `[.., in]`, weight `[out, in]`, bias `[out]`; the result is `[.., out]`.
#[track_caller]
pub fn linear<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
) -> Tensor<B, D> {
    x.map(|any| {
        let shape = *any.shape();
        let (input, output) = (weight.dims()[1], weight.dims()[0]);
        if shape.last() != Some(&input) {
            let problem = "the last axis must be as long as the weight's inputs";
            return Err(Error::type_error(
                "linear",
                problem,
                &[any.ty().into(), weight.as_any().ty().into()],
            )
            .hint(format!("the weight is [out, in]: it takes {input} inputs")));
        }
        // One product over all rows: leading axes join into one.
        let rows: usize = shape[..D - 1].iter().product();
        let y = any.reshape([rows, input])?.matmul(weight.into_any().swap_dims(0, 1)?)?;
        let y = match bias {
            Some(bias) => y.binary(kiln_ir::Binary::Add, bias.into_any())?,
            None => y,
        };
        y.reshape(shape.with(D - 1, output))
    })
}

macro_rules! convolutions {
    ($($(#[$doc:meta])* $name:ident $transposed:ident $axes:literal $rank:literal;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<B: Backend>(
            x: Tensor<B, $rank>,
            weight: Tensor<B, $rank>,
            bias: Option<Tensor<B, 1>>,
            options: &ConvOptions<$axes>,
        ) -> Tensor<B, $rank> {
            let op = Op::Conv { spec: options.spec(), pass: ConvPass::Forward };
            let y = x.map(|any| any.apply_with(&op, [weight.into_any().into_value().into()]));
            add_channel_bias(y, bias)
        }

        /// The gradient of the convolution of the same name for its input, used as a layer: `x` is
        /// `[batch, channels_in, space..]`, weight `[channels_in, channels_out / groups, kernel..]`, bias
        /// `[channels_out]`. `output_padding` adds to the end of each axis of the result.
        #[track_caller]
        pub fn $transposed<B: Backend>(
            x: Tensor<B, $rank>,
            weight: Tensor<B, $rank>,
            bias: Option<Tensor<B, 1>>,
            options: &ConvOptions<$axes>,
            output_padding: [usize; $axes],
        ) -> Tensor<B, $rank> {
            let y = x.map(|any| transposed(any, weight.into_any(), options.clone(), output_padding));
            add_channel_bias(y, bias)
        }
    )*};
}

convolutions! {
    /// Convolution over one axis: `x` is `[batch, channels_in, length]`, weight
    /// `[channels_out, channels_in / groups, kernel]`, bias `[channels_out]`.
    conv1d conv_transpose1d 1 3;
    /// Convolution over two axes: `x` is `[batch, channels_in, height, width]`, weight
    /// `[channels_out, channels_in / groups, kernel_height, kernel_width]`, bias `[channels_out]`.
    conv2d conv_transpose2d 2 4;
    /// Convolution over three axes: `x` is `[batch, channels_in, depth, height, width]`, weight
    /// `[channels_out, channels_in / groups, kernel_depth, kernel_height, kernel_width]`, bias `[channels_out]`.
    conv3d conv_transpose3d 3 5;
}

#[track_caller]
fn add_channel_bias<B: Backend, const D: usize>(y: Tensor<B, D>, bias: Option<Tensor<B, 1>>) -> Tensor<B, D> {
    let Some(bias) = bias else { return y };
    let mut shape = [1; D];
    shape[1] = bias.dims()[0];
    y + bias.reshape(shape)
}

/// Output padding first takes back what the padding after an axis took off. What is left of it are zeros: no element
/// of `x` reaches there.
fn transposed<const N: usize>(
    x: AnyTensor,
    weight: AnyTensor,
    mut options: ConvOptions<N>,
    mut output_padding: [usize; N],
) -> crate::Result<AnyTensor> {
    for ((_, high), output) in options.padding.iter_mut().zip(&mut output_padding) {
        let back = (*output).min(*high);
        *high -= back;
        *output -= back;
    }
    let size = transposed_size(&x, &weight, &options)?;
    let op = Op::Conv { spec: options.spec(), pass: ConvPass::Input { size } };
    let y = x.apply_with(&op, [weight.into_value().into()])?;
    if output_padding == [0; N] {
        return Ok(y);
    }
    let zeros = output_padding.map(|zeros| PadAxis::new(0, zeros));
    y.pad_axes([PadAxis::default(); 2].into_iter().chain(zeros).collect(), 0.0)
}

fn transposed_size<const N: usize>(
    x: &AnyTensor,
    weight: &AnyTensor,
    options: &ConvOptions<N>,
) -> crate::Result<Vec<usize>> {
    (0..N)
        .map(|axis| {
            let (low, high) = options.padding[axis];
            let reach = options.dilation[axis] * weight.shape()[axis + 2].saturating_sub(1) + 1;
            let grown = x.shape()[axis + 2].saturating_sub(1) * options.stride[axis] + reach;
            grown.checked_sub(low + high).ok_or_else(|| {
                let problem = format!("padding {low} + {high} along axis {} leaves nothing", axis + 2);
                Error::type_error("conv_transpose", problem, &[x.ty().into(), weight.ty().into()])
            })
        })
        .collect()
}

/// The attributes of pooling over `N` axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOptions<const N: usize> {
    /// Elements per window.
    pub window: [usize; N],
    /// Distance between neighbouring windows. Default: the window.
    pub stride: [usize; N],
    /// Elements before and after each axis; they never win a maximum. Default none.
    pub padding: [usize; N],
    /// Distance between neighbouring elements of a window; 1 for averages. Default 1.
    pub dilation: [usize; N],
    /// Whether a last window that reaches over the end counts (the number of windows is rounded up). Default no.
    pub ceil_mode: bool,
}

impl<const N: usize> PoolOptions<N> {
    /// Windows side by side, without padding.
    pub fn new(window: [usize; N]) -> PoolOptions<N> {
        PoolOptions { window, stride: window, padding: [0; N], dilation: [1; N], ceil_mode: false }
    }

    fn spec(&self, kind: PoolKind, lengths: &[usize]) -> PoolSpec {
        PoolSpec {
            kind,
            window: self.window.to_vec(),
            stride: self.stride.to_vec(),
            padding: self.padding.iter().map(|&p| (p, p)).collect(),
            overhang: (0..N).map(|axis| self.overhang(axis, lengths[axis])).collect(),
            dilation: self.dilation.to_vec(),
        }
    }

    /// What rounding the number of windows up adds: the last window must still start within the tensor or the
    /// padding before it.
    fn overhang(&self, axis: usize, length: usize) -> usize {
        let stride = self.stride[axis].max(1);
        let reach = self.dilation[axis] * self.window[axis].saturating_sub(1) + 1;
        let padded = length + 2 * self.padding[axis];
        if !self.ceil_mode || padded < reach || (padded - reach).is_multiple_of(stride) {
            return 0;
        }
        let last_start = (padded - reach).div_ceil(stride) * stride;
        if last_start >= length + self.padding[axis] { 0 } else { last_start + reach - padded }
    }
}

macro_rules! poolings {
    ($($max:ident $average:ident $adaptive:ident $axes:literal $rank:literal;)*) => {$(
        /// The greatest element of each window over the last axes of `[batch, channels, space..]`.
        #[track_caller]
        pub fn $max<B: Backend>(x: Tensor<B, $rank>, options: &PoolOptions<$axes>) -> Tensor<B, $rank> {
            let spec = options.spec(PoolKind::Max, &x.dims()[2..]);
            x.map(|any| any.apply(&Op::Pool(spec)))
        }

        /// The mean of each window over the last axes of `[batch, channels, space..]`; `include_padding` says whether
        /// padding counts in the divisor.
        #[track_caller]
        pub fn $average<B: Backend>(
            x: Tensor<B, $rank>,
            options: &PoolOptions<$axes>,
            include_padding: bool,
        ) -> Tensor<B, $rank> {
            let spec = options.spec(PoolKind::Average { include_padding }, &x.dims()[2..]);
            x.map(|any| any.apply(&Op::Pool(spec)))
        }

        /// The mean of windows that split the last axes of `[batch, channels, space..]` into the given number of parts;
        /// part `i` of `n` covers `floor(i length / n) .. ceil((i + 1) length / n)`.
        #[track_caller]
        pub fn $adaptive<B: Backend>(x: Tensor<B, $rank>, size: [usize; $axes]) -> Tensor<B, $rank> {
            x.map(|any| adaptive_average(any, &size))
        }
    )*};
}

poolings! {
    max_pool1d avg_pool1d adaptive_avg_pool1d 1 3;
    max_pool2d avg_pool2d adaptive_avg_pool2d 2 4;
    max_pool3d avg_pool3d adaptive_avg_pool3d 3 5;
}

fn adaptive_average(any: AnyTensor, size: &[usize]) -> crate::Result<AnyTensor> {
    let shape = *any.shape();
    let lengths = &shape[2..];
    if size.contains(&0) || lengths.contains(&0) {
        let problem = format!("cannot split axes into {size:?} parts");
        return Err(Error::type_error("adaptive_avg_pool", problem, &[any.ty().into()])
            .hint("each axis of space gets at least 1 part, and has at least 1 element"));
    }
    if lengths.iter().zip(size).all(|(length, parts)| length.is_multiple_of(*parts)) {
        let window: Vec<usize> = lengths.iter().zip(size).map(|(length, parts)| length / parts).collect();
        let spec = PoolSpec::new(PoolKind::Average { include_padding: true }, &window);
        return any.apply(&Op::Pool(spec));
    }
    // The windows differ in length: each axis is a product with a matrix of weights, which is small.
    (0..size.len()).try_fold(any, |any, axis| adaptive_axis(any, axis + 2, size[axis]))
}

fn adaptive_axis(any: AnyTensor, axis: usize, parts: usize) -> crate::Result<AnyTensor> {
    let (shape, last) = (*any.shape(), any.shape().rank() - 1);
    let length = shape[axis];
    let mut weights = alloc::vec![0.0f64; length * parts];
    for part in 0..parts {
        let (start, end) = (part * length / parts, ((part + 1) * length).div_ceil(parts));
        for place in start..end {
            weights[place * parts + part] = 1.0 / (end - start) as f64;
        }
    }
    let data = crate::TensorData::new(weights, [length, parts])?.convert(any.dtype());
    let weights = AnyTensor::from_data(data, any.stack());
    let moved = any.swap_dims(axis, last)?;
    let before = *moved.shape();
    let rows: usize = before[..last].iter().product();
    let y = moved.reshape([rows, length])?.matmul(weights)?.reshape(before.with(last, parts))?;
    y.swap_dims(axis, last)
}

/// Rows of a table: weights are `[vocabulary, dim]`, indices `[batch, length]`; the result is
/// `[batch, length, dim]`. An index out of range is an error of the result.
#[track_caller]
pub fn embedding<B: Backend>(weights: Tensor<B, 2>, indices: Tensor<B, 2, Int>) -> Tensor<B, 3> {
    weights.take(0, indices)
}

/// Normalises the last axis to mean 0 and variance 1, then scales and shifts; weight and bias are `[dim]`.
#[track_caller]
pub fn layer_norm<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Option<Tensor<B, 1>>,
    bias: Option<Tensor<B, 1>>,
    epsilon: f64,
) -> Tensor<B, D> {
    normalize(x, weight, bias, NormKind::Layer, epsilon)
}

/// Divides the last axis by the root of its mean square, then scales; the weight is `[dim]`.
#[track_caller]
pub fn rms_norm<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Option<Tensor<B, 1>>,
    epsilon: f64,
) -> Tensor<B, D> {
    normalize(x, weight, None, NormKind::Rms, epsilon)
}

#[track_caller]
fn normalize<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Option<Tensor<B, 1>>,
    bias: Option<Tensor<B, 1>>,
    kind: NormKind,
    epsilon: f64,
) -> Tensor<B, D> {
    let op = Op::Norm { kind, axes: 1, epsilon: Real(epsilon) };
    // A bias without a weight: the op takes them in order, so the weight is ones.
    let weight = weight.or_else(|| bias.as_ref().map(Tensor::ones_like));
    let operands: Vec<Operand> =
        [weight, bias].into_iter().flatten().map(|tensor| tensor.into_any().into_value().into()).collect();
    x.map(|any| any.apply_with(&op, operands))
}

/// A mask of attention, `[batch, heads, queries, keys]`; axes of length 1 repeat.
#[derive(Clone, Debug)]
pub enum AttentionMask<B: Backend> {
    /// True where a query sees a key.
    Visible(Tensor<B, 4, Bool>),
    /// Added to the scores.
    Additive(Tensor<B, 4>),
}

/// The attributes of [`attention`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AttentionOptions {
    /// The factor of the scores. Default `1 / sqrt(dim)`.
    pub scale: Option<f64>,
    /// Whether query `i` sees only keys up to `i` (plus the number of keys before the first query, when there are more
    /// keys than queries).
    pub causal: bool,
}

/// Scaled dot-product attention: `q` is `[batch, heads, queries, dim]`, `k` `[batch, kv_heads, keys, dim]`, `v`
/// `[batch, kv_heads, keys, dim_v]`; the result is `[batch, heads, queries, dim_v]`. `heads` is a multiple of
/// `kv_heads`. ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762).)
#[track_caller]
pub fn attention<B: Backend>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    v: Tensor<B, 4>,
    mask: Option<AttentionMask<B>>,
    options: AttentionOptions,
) -> Tensor<B, 4> {
    let dim = q.dims()[3].max(1) as f64;
    let offset = k.dims()[2] as i64 - q.dims()[2] as i64;
    let spec = AttentionSpec {
        scale: Real(options.scale.unwrap_or_else(|| 1.0 / libm::sqrt(dim))),
        causal: options.causal.then_some(offset),
    };
    let mask: Option<Value> = mask.map(|mask| match mask {
        AttentionMask::Visible(mask) => mask.into_any().into_value(),
        AttentionMask::Additive(mask) => mask.into_any().into_value(),
    });
    let rest = [Some(k.into_any().into_value()), Some(v.into_any().into_value()), mask];
    q.map(|any| any.apply_with(&Op::Attention(spec), rest.into_iter().flatten().map(Operand::from)))
}

/// How [`interpolate`] finds values between samples.
pub use kiln_ir::ResizeMode as InterpolateMode;

/// Resizes the last two axes of `[batch, channels, height, width]`. With `align_corners` the first and last samples
/// of both grids coincide, otherwise their outer edges do.
#[track_caller]
pub fn interpolate<B: Backend>(
    x: Tensor<B, 4>,
    size: [usize; 2],
    mode: ResizeMode,
    align_corners: bool,
) -> Tensor<B, 4> {
    x.map(|any| any.apply(&Op::Resize { mode, size: size.to_vec(), align_corners }))
}

/// Runs a [`CustomOp`] with a single result of rank `D2` and kind `K2` on tensors of one backend.
///
/// # Panics
/// When the op does not accept the operands, or its result is of another rank or kind.
#[track_caller]
pub fn custom<B: Backend, const D: usize, const D2: usize, K2: Kind>(
    op: impl CustomOp,
    inputs: Vec<Tensor<B, D, Float>>,
) -> Tensor<B, D2, K2> {
    let op = Op::Custom(Custom::new(op));
    let mut inputs = inputs.into_iter();
    let Some(first) = inputs.next() else {
        panic!(
            "[{}] a custom op needs at least one tensor\n  hint: its device is that of the first",
            op.name()
        );
    };
    first.convert(|any| any.apply_with(&op, inputs.map(|input| input.into_any().into_value().into())))
}
