//! The list of operations.
//!
//! An [`Op`] holds attributes; its operands and results are stored separately. The notation of the docs below:
//! `(x, y) -> z` lists operands and results; a *scalar* operand is a plain [`Scalar`](crate::Scalar) that takes the
//! dtype of the other operands. Axes count from 0 at the outermost. The rules of shape and dtype are in
//! [`infer`](mod@crate::infer).

mod attributes;
mod fact;
mod functions;
mod names;
mod precision;
mod table;
mod window;

pub use attributes::*;
pub use fact::Fact;
pub use functions::{Binary, Domain, Effort, FunctionInfo, Unary};
pub use names::NameOf;
pub use table::{
    CHEAP, EXPANDS, FAILS, FAILS_BY_INDEX, Flops, IMMEDIATE, Lengths, Linearity, NEEDS_AXIS, OPS, OpClass,
    OpInfo, OpKind, PRIMITIVE, Precision, REARRANGES, Reuse, Role, STOPS_POISON, Traffic,
};
pub use window::{
    ConvAttributes, ConvOptions, ConvSpec, PoolAttributes, PoolKind, PoolOptions, PoolSpec, Pooling,
};

use crate::{BlockFormat, Custom, DType, Float8, FusedOp, LoopOp, OpSet, Real, Shape, TensorType};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// One operation: its kind and attributes, without its operands.
///
/// Inference, gradient rules, expansions and batching rules are one exhaustive `match` over this enum each, so that adding
/// an op makes the compiler list every place that must decide. Its facts are a row of [`OPS`].
///
/// The serde form is that of messages (`kiln-remote`), and the source of the [text form](crate::text): an attribute is
/// printed under its serde name, in the order of declaration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Op {
    // Creation.
    /// `(scalar) -> y`: a tensor of this type with every element equal to the scalar.
    Full(TensorType),
    /// `() -> y`: each element is its own index along `axis`, as a number of the dtype (not `bool`).
    Iota {
        /// The type of the result.
        #[serde(rename = "type")]
        ty: TensorType,
        /// The axis that counts.
        axis: usize,
    },
    /// `(key) -> y`: random numbers. The key is a scalar or a 0-d `u64`; the same key produces the same numbers on
    /// every engine. See [`philox`](crate::philox) for the generator and the counter layout.
    Random {
        /// The type of the result.
        #[serde(rename = "type")]
        ty: TensorType,
        /// The distribution of the numbers.
        distribution: RandomKind,
    },

    // Elementwise. Operands have the same shape, or are scalars.
    /// `(x) -> y`: a function of each element.
    Unary(Unary),
    /// `(a, b) -> y`: a function of two elements of the same dtype. At most one operand is a scalar.
    Binary(Binary),
    /// `(a, b) -> bool`: a comparison of two elements of the same dtype. At most one operand is a scalar.
    Compare(Comparison),
    /// `(condition, a, b) -> y`: `a` where the `bool` condition is true, otherwise `b`. At most one of `a` and `b` is a
    /// scalar. Poison of an operand that is selected nowhere does not propagate, if the engine [finds errors on the
    /// host](crate::Machine::host_errors).
    Select,
    /// `(x) -> y`: the nearest value of another dtype. Float to integer truncates and saturates, NaN becomes 0. Integer
    /// to narrower integer wraps. Anything to `bool` is whether it differs from 0.
    Cast(DType),
    /// `(x) -> y`: the same bits reinterpreted as another dtype of the same size. Neither is `bool`.
    Bitcast(DType),

    // Views and data movement: free on engines with strides, where possible.
    /// `(x) -> y`: the same elements in row-major order, in another shape with as many elements.
    Reshape(Shape),
    /// `(x) -> y`: axis `i` of the result is axis `axes[i]` of the operand.
    Permute(Axes),
    /// `(x) -> y`: repeats axes of length 1 and adds axes in front, by NumPy's broadcasting rule.
    Broadcast(Shape),
    /// `(x) -> y`: a strided range of each axis; one entry per axis.
    Slice(Vec<SliceAxis>),
    /// `(x, scalar) -> y`: puts the scalar before, after and between the elements; one entry per axis.
    Pad(Vec<PadAxis>),
    /// `(x, …) -> y`: concatenates one or more operands along an axis.
    Concat {
        /// The axis along which lengths add up.
        axis: usize,
    },
    /// `(x) -> y`: sliding windows along one axis. That axis becomes the number of windows,
    /// `(length - dilation * (size - 1) - 1) / step + 1`, and a last axis of length `size` is added:
    /// `y[.., i, .., k] = x[.., i * step + k * dilation, ..]`.
    Windows {
        /// The axis that is windowed.
        axis: usize,
        /// Elements per window.
        size: usize,
        /// Distance between the starts of neighbouring windows.
        step: usize,
        /// Distance between neighbouring elements of a window.
        dilation: usize,
    },
    /// `(x) -> y`: the same values; on engines with strides the result is contiguous, row-major.
    Copy,

    // Reductions and sorting.
    /// `(x) -> y`: reduces along the axes, which keep length 1. Over no elements: the identity of the reduction. `Min`
    /// and `Max` over a NaN return NaN.
    Reduce {
        /// The reduction operator.
        reduction: Reduction,
        /// The axes, ascending.
        axes: Axes,
    },
    /// `(x) -> index`: the index of the extreme element along `axis`, which keeps length 1. The first of equal
    /// elements; a NaN counts as extreme. The axis must not be empty.
    ArgReduce {
        /// Minimum or maximum.
        extremum: Extremum,
        /// The searched axis.
        axis: usize,
        /// The dtype of the result: an integer.
        index: DType,
    },
    /// `(x) -> y`: running reduction along `axis`, of the same shape.
    Scan {
        /// The reduction operator.
        reduction: Reduction,
        /// The axis along which the scan runs.
        axis: usize,
        /// Whether it runs from the last element to the first.
        reverse: bool,
        /// Whether element `i` excludes `x[i]` (exclusive scan); the first is then the identity.
        exclusive: bool,
    },
    /// `(x) -> (values, index)`: sorts along `axis`, stably. NaN is greater than every number.
    Sort {
        /// The axis along which values are ordered.
        axis: usize,
        /// Whether the greatest element comes first.
        descending: bool,
        /// The dtype of the second result: an integer.
        index: DType,
    },
    /// `(x) -> (values, index)`: the first `k` entries of a stable sort along `axis`, in its order.
    TopK {
        /// The searched axis.
        axis: usize,
        /// The number of entries.
        k: usize,
        /// Whether to return the greatest entries (descending) instead of the least (ascending).
        largest: bool,
        /// The dtype of the second result: an integer.
        index: DType,
    },

    // Indexing. Indices are integers in `0..length`; one out of range is an error of the value.
    /// `(x, index) -> y`: replaces `axis` by the axes of the index: `y[a.., i.., b..] = x[a.., index[i..], b..]`.
    Take {
        /// The indexed axis.
        axis: usize,
    },
    /// `(x, index) -> y`: `y[.., i, ..] = x[.., index[.., i, ..], ..]`. The index has the rank of `x` and the
    /// lengths of `x` outside `axis`.
    Gather {
        /// The indexed axis.
        axis: usize,
    },
    /// `(base, index, source) -> y`: the inverse of [`Op::Take`]; writes each slice of the source at its index. The
    /// source has the type that `Take` of the base would have. Entries are written in order.
    Put {
        /// The indexed axis.
        axis: usize,
        /// The combination of written and existing elements.
        mode: UpdateMode,
    },
    /// `(base, index, source) -> y`: the inverse of [`Op::Gather`]. Index and source have the same shape.
    Scatter {
        /// The indexed axis.
        axis: usize,
        /// The combination of written and existing elements.
        mode: UpdateMode,
    },
    /// `(base, source) -> y`: writes the source over the range of the base that [`Op::Slice`] would read.
    SliceUpdate {
        /// The range, one entry per axis.
        slices: Vec<SliceAxis>,
        /// The combination of written and existing elements.
        mode: UpdateMode,
    },
    /// `(x) -> index`: the positions of the non-zero elements in row-major order, `[count, rank]`. The only op whose
    /// result shape depends on data: [`infer`](mod@crate::infer) returns the greatest possible shape, and the value has
    /// the actual one.
    NonZero {
        /// The dtype of the result: an integer.
        index: DType,
    },

    /// `(index) -> index`: the same integers, all of which must be in `0..length`. An integer out of range is an error
    /// of the value. The error names the function that the user called instead of the op that uses the index.
    CheckIndex {
        /// The length of the indexed axis.
        length: usize,
        /// The function that the user called.
        user: IndexUser,
    },

    // Validity.
    /// `(x, …, w, …) -> (x, …, ok, cause)`: the first operands without their poison, like LLVM's `freeze`. A poisoned
    /// operand becomes zeros or any other numbers. The last `watched` operands are only checked for poison. `ok`,
    /// `bool[1]`, is false if any operand was poisoned. `cause`, `bool[1]`, is `ok` with the poison of all operands:
    /// reading it returns the error. The op is not differentiable.
    Recover {
        /// The number of operands without a result.
        watched: usize,
    },

    // Contractions.
    /// `(a, b) -> y`: batched matmul over the last two axes, `[.., m, k] x [.., k, n] -> [.., m, n]`; the leading axes
    /// are equal. 8-bit integers return `i32`; 16-bit floats accumulate in `f32`.
    MatMul,
    /// `(a, b, scale_a, scale_b) -> y`: batched matmul of 8-bit floats, `[.., m, k] x [.., k, n] -> [.., m, n]`, whose
    /// bits are stored in `u8` tensors: `y = (a b) scale_a scale_b`. Scales are rank-0 `f32` tensors. Accumulation and
    /// scaling are in `f32`. Bits have no gradient, scales have one.
    MatMulFloat8 {
        /// The dtype of the result: `f32`, `f16` or `bf16`.
        dtype: DType,
        /// The formats of `a` and `b`.
        #[serde(with = "sides")]
        formats: [Float8; 2],
    },
    /// `(x, w) -> y`: matmul with the transpose of a weight in quantized blocks, `[.., m, k] x [n, bytes] -> [.., m, n]`:
    /// `y = x · dequantize(w)ᵀ`, in the dtype of `x`. `w` is `u8`; a row consists of whole blocks of `k` elements.
    ///
    /// An engine may round `x`, except in `f64`, to two bytes: the error of an element is then at most 1/64,516 of the
    /// greatest magnitude of its 32. Where the user asks for it, it may round to one byte, like llama.cpp, with errors of
    /// 1/254. Results of a row do not depend on other rows, up to the rounding of sums. In 16 bits an engine may round the
    /// dequantized weight to the dtype of `x`. Blocks have no gradient, `x` has one.
    MatMulBlocks {
        /// The format of the blocks of `w`.
        format: BlockFormat,
    },
    /// A convolution (cross-correlation), or one of its gradients, which are closed under differentiation. `x` is
    /// `[batch, channels_in, space..]`, `w` is `[channels_out, channels_in / groups, kernel..]`, `y` is
    /// `[batch, channels_out, space..]`: forward `(x, w) -> y`, input `(y, w) -> x` (transposed convolution), weight
    /// `(x, y) -> w`. A product of padding with an infinity or a NaN is either skipped or NaN.
    Conv {
        /// Strides, padding, dilation and groups.
        spec: ConvSpec,
        /// Forward, input gradient or weight gradient.
        pass: ConvPass,
    },
    /// `(x) -> y`: pooling over the last `n` axes of `[batch, channels, space..]` for a spec of `n` axes.
    Pool(PoolSpec),
    /// The gradient of [`Op::Pool`] for its operand: `(grad) -> x` for averages. `(grad, x) -> x` for the maximum,
    /// which adds each window's gradient to its first maximum.
    PoolGrad {
        /// The spec of the pooling.
        spec: PoolSpec,
        /// The lengths of the pooled axes of the operand of the pooling.
        size: Vec<usize>,
    },

    // Named composites, each with an expansion.
    /// `(x) -> y`: `exp(x) / sum(exp(x))` along `axis`, or its logarithm.
    Softmax {
        /// The normalized axis.
        axis: usize,
        /// Whether to return the logarithm.
        log: bool,
    },
    /// `(x) -> y`: `ln(Σ eˣ)` along `axis`, which keeps length 1. `-inf` over no elements, or over `-inf` alone.
    LogSumExp {
        /// The axis that is summed.
        axis: usize,
    },
    /// `(x)`, `(x, weight)` or `(x, weight, bias) -> y`: normalises over the last `axes` axes, then scales and
    /// shifts. Weight and bias have the shape of those axes.
    Norm {
        /// The kind of normalization.
        kind: NormKind,
        /// The number of trailing axes that form a row.
        axes: usize,
        /// Added to the variance or mean square.
        epsilon: Real,
    },
    /// `(q, k, v)` or `(q, k, v, mask) -> (y, lse)`: scaled dot-product attention. `q` is
    /// `[batch, heads, queries, dim]`, `k` `[batch, kv_heads, keys, dim]`, `v` `[batch, kv_heads, keys, dim_v]`;
    /// `heads` is a multiple of `kv_heads` (grouped-query attention). The mask, of shape
    /// `[batch, heads, queries, keys]` (axes of length 1 broadcast), is `bool` (true: visible) or is added to the
    /// scores. `y` is `[batch, heads, queries, dim_v]`. `lse` is the log-sum-exp of each query's scores,
    /// `[batch, heads, queries]`, in the accumulator dtype. A fully masked query returns zeros and `-inf`. An infinity
    /// or a NaN in a masked key or value may still cause a NaN.
    Attention(AttentionSpec),
    /// `(grad, q, k, v, y, lse)` or with `mask` last, `-> (q, k, v)`: the gradients of [`Op::Attention`].
    AttentionGrad(AttentionSpec),
    /// `(x) -> y`: interpolates the last `size.len()` axes of `[batch, channels, space..]` to another size. An infinity
    /// or a NaN with weight 0 is either skipped or returns NaN.
    Resize {
        /// The interpolation mode.
        mode: ResizeMode,
        /// The new lengths.
        size: Vec<usize>,
        /// Whether first and last samples of both grids coincide (otherwise their outer edges do).
        align_corners: bool,
    },
    /// `(re, im) -> (re, im)`, `(x) -> (re, im)` or `(re, im) -> (x)`: the discrete Fourier transform along `axis`, without a
    /// scaling factor: `Y[k] = Σ x[n] exp(∓2πi k n / N)`, minus forward, plus inverse. Any number of points.
    Fft {
        /// The transformed axis.
        axis: usize,
        /// Whether the exponent is positive.
        inverse: bool,
        /// Complex to complex, real to half a spectrum, or half a spectrum to real.
        kind: FftKind,
    },
    /// `(x, scale)` or `(x, scale, zero) -> q`: `clamp(round(x / scale) + zero)` in the range of `dtype`, ties to even.
    /// The lengths of scale and zero divide those of `x`: each entry applies to a block. Zero has the result's dtype.
    Quantize {
        /// The dtype of the result: `i8`, `u8`, `i16`, `u16` or `i32`.
        dtype: DType,
    },
    /// `(q, scale)` or `(q, scale, zero) -> x`: `(q - zero) * scale` in the dtype of the scale.
    Dequantize,
    /// `(blocks) -> x`: the elements of quantized blocks, `u8 [.., bytes] -> [.., elements]`. A row consists of whole
    /// blocks. Elements are decoded in `f32` ([`BlockFormat::decode`]), and rounded to the dtype.
    DequantizeBlocks {
        /// The dtype of the result: a float.
        dtype: DType,
        /// The format of the blocks.
        format: BlockFormat,
    },

    // Extensions.
    /// Communication between the members of a group; see [`CollectiveKind`].
    Collective(Collective),
    /// An operation defined outside Kiln.
    Custom(Custom),
    /// A region of ops run as one, written only by the fusion layer.
    Fused(FusedOp),
    /// `(carried, …, scanned, …, constant, …) -> (carried, …, stacked, …)`: runs a program once for each step. Its
    /// carried values are those of the step before, and it reads one slice of each scanned tensor along axis 0. See
    /// [`LoopOp`].
    Loop(LoopOp),
}

/// The serde form of the formats of two operands.
mod sides {
    use crate::Float8;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Sides {
        left: Float8,
        right: Float8,
    }

    pub(super) fn serialize<S: Serializer>(sides: &[Float8; 2], serializer: S) -> Result<S::Ok, S::Error> {
        let [left, right] = *sides;
        Sides { left, right }.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[Float8; 2], D::Error> {
        Sides::deserialize(deserializer).map(|sides| [sides.left, sides.right])
    }
}

impl Op {
    /// Returns the reduction operator of a reduction or scan.
    #[inline]
    pub fn reduction(&self) -> Option<Reduction> {
        if let Op::Reduce { reduction, .. } | Op::Scan { reduction, .. } = self {
            Some(*reduction)
        } else {
            None
        }
    }

    /// Returns the mode of an indexed write.
    #[inline]
    pub fn update_mode(&self) -> Option<UpdateMode> {
        if let Op::Put { mode, .. } | Op::Scatter { mode, .. } | Op::SliceUpdate { mode, .. } = self {
            Some(*mode)
        } else {
            None
        }
    }

    /// Returns the attributes of a pooling or of its gradient.
    #[inline]
    pub fn pooling(&self) -> Option<&PoolSpec> {
        if let Op::Pool(spec) | Op::PoolGrad { spec, .. } = self { Some(spec) } else { None }
    }

    /// Returns the kinds of the ops in the program that the op holds: those of a fused region, or of the body of a
    /// loop.
    #[inline]
    pub fn kinds_inside(&self) -> OpSet {
        if let Op::Fused(region) = self {
            region.kinds()
        } else if let Op::Loop(looped) = self {
            looped.kinds()
        } else {
            OpSet::default()
        }
    }
}
