//! Ops without their attributes.

use super::Op;

/// Which variant of [`Op`] it is, without attributes: what [`OpSet`](crate::OpSet) counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OpKind {
    /// [`Op::Full`].
    Full,
    /// [`Op::Iota`].
    Iota,
    /// [`Op::Random`].
    Random,
    /// [`Op::Unary`].
    Unary,
    /// [`Op::Binary`].
    Binary,
    /// [`Op::Compare`].
    Compare,
    /// [`Op::Select`].
    Select,
    /// [`Op::Cast`].
    Cast,
    /// [`Op::Bitcast`].
    Bitcast,
    /// [`Op::Reshape`].
    Reshape,
    /// [`Op::Permute`].
    Permute,
    /// [`Op::Broadcast`].
    Broadcast,
    /// [`Op::Slice`].
    Slice,
    /// [`Op::Pad`].
    Pad,
    /// [`Op::Concat`].
    Concat,
    /// [`Op::Windows`].
    Windows,
    /// [`Op::Copy`].
    Copy,
    /// [`Op::Reduce`].
    Reduce,
    /// [`Op::ArgReduce`].
    ArgReduce,
    /// [`Op::Scan`].
    Scan,
    /// [`Op::Sort`].
    Sort,
    /// [`Op::TopK`].
    TopK,
    /// [`Op::Take`].
    Take,
    /// [`Op::Gather`].
    Gather,
    /// [`Op::Put`].
    Put,
    /// [`Op::Scatter`].
    Scatter,
    /// [`Op::SliceUpdate`].
    SliceUpdate,
    /// [`Op::NonZero`].
    NonZero,
    /// [`Op::CheckIndex`].
    CheckIndex,
    /// [`Op::Recover`].
    Recover,
    /// [`Op::MatMul`].
    MatMul,
    /// [`Op::MatMulFloat8`].
    MatMulFloat8,
    /// [`Op::Conv`].
    Conv,
    /// [`Op::Pool`].
    Pool,
    /// [`Op::PoolGrad`].
    PoolGrad,
    /// [`Op::Softmax`].
    Softmax,
    /// [`Op::Norm`].
    Norm,
    /// [`Op::Attention`].
    Attention,
    /// [`Op::AttentionGrad`].
    AttentionGrad,
    /// [`Op::Resize`].
    Resize,
    /// [`Op::Fft`].
    Fft,
    /// [`Op::Quantize`].
    Quantize,
    /// [`Op::Dequantize`].
    Dequantize,
    /// [`Op::Collective`].
    Collective,
    /// [`Op::Custom`].
    Custom,
    /// [`Op::Fused`].
    Fused,
}

impl OpKind {
    /// Every kind, in declaration order.
    pub const ALL: [OpKind; 46] = [
        OpKind::Full,
        OpKind::Iota,
        OpKind::Random,
        OpKind::Unary,
        OpKind::Binary,
        OpKind::Compare,
        OpKind::Select,
        OpKind::Cast,
        OpKind::Bitcast,
        OpKind::Reshape,
        OpKind::Permute,
        OpKind::Broadcast,
        OpKind::Slice,
        OpKind::Pad,
        OpKind::Concat,
        OpKind::Windows,
        OpKind::Copy,
        OpKind::Reduce,
        OpKind::ArgReduce,
        OpKind::Scan,
        OpKind::Sort,
        OpKind::TopK,
        OpKind::Take,
        OpKind::Gather,
        OpKind::Put,
        OpKind::Scatter,
        OpKind::SliceUpdate,
        OpKind::NonZero,
        OpKind::CheckIndex,
        OpKind::Recover,
        OpKind::MatMul,
        OpKind::MatMulFloat8,
        OpKind::Conv,
        OpKind::Pool,
        OpKind::PoolGrad,
        OpKind::Softmax,
        OpKind::Norm,
        OpKind::Attention,
        OpKind::AttentionGrad,
        OpKind::Resize,
        OpKind::Fft,
        OpKind::Quantize,
        OpKind::Dequantize,
        OpKind::Collective,
        OpKind::Custom,
        OpKind::Fused,
    ];
}

impl Op {
    /// Whether poison of the operands does not pass to all results: the op must run though an operand is poisoned.
    pub fn stops_poison(&self) -> bool {
        matches!(self.kind(), OpKind::Recover | OpKind::Select)
    }

    /// Which variant this is.
    #[inline]
    pub fn kind(&self) -> OpKind {
        match self {
            Op::Full(..) => OpKind::Full,
            Op::Iota { .. } => OpKind::Iota,
            Op::Random { .. } => OpKind::Random,
            Op::Unary(..) => OpKind::Unary,
            Op::Binary(..) => OpKind::Binary,
            Op::Compare(..) => OpKind::Compare,
            Op::Select => OpKind::Select,
            Op::Cast(..) => OpKind::Cast,
            Op::Bitcast(..) => OpKind::Bitcast,
            Op::Reshape(..) => OpKind::Reshape,
            Op::Permute(..) => OpKind::Permute,
            Op::Broadcast(..) => OpKind::Broadcast,
            Op::Slice(..) => OpKind::Slice,
            Op::Pad(..) => OpKind::Pad,
            Op::Concat { .. } => OpKind::Concat,
            Op::Windows { .. } => OpKind::Windows,
            Op::Copy => OpKind::Copy,
            Op::Reduce { .. } => OpKind::Reduce,
            Op::ArgReduce { .. } => OpKind::ArgReduce,
            Op::Scan { .. } => OpKind::Scan,
            Op::Sort { .. } => OpKind::Sort,
            Op::TopK { .. } => OpKind::TopK,
            Op::Take { .. } => OpKind::Take,
            Op::Gather { .. } => OpKind::Gather,
            Op::Put { .. } => OpKind::Put,
            Op::Scatter { .. } => OpKind::Scatter,
            Op::SliceUpdate { .. } => OpKind::SliceUpdate,
            Op::NonZero { .. } => OpKind::NonZero,
            Op::CheckIndex { .. } => OpKind::CheckIndex,
            Op::Recover { .. } => OpKind::Recover,
            Op::MatMul => OpKind::MatMul,
            Op::MatMulFloat8 { .. } => OpKind::MatMulFloat8,
            Op::Conv { .. } => OpKind::Conv,
            Op::Pool(..) => OpKind::Pool,
            Op::PoolGrad { .. } => OpKind::PoolGrad,
            Op::Softmax { .. } => OpKind::Softmax,
            Op::Norm { .. } => OpKind::Norm,
            Op::Attention(..) => OpKind::Attention,
            Op::AttentionGrad(..) => OpKind::AttentionGrad,
            Op::Resize { .. } => OpKind::Resize,
            Op::Fft { .. } => OpKind::Fft,
            Op::Quantize { .. } => OpKind::Quantize,
            Op::Dequantize => OpKind::Dequantize,
            Op::Collective(..) => OpKind::Collective,
            Op::Custom(..) => OpKind::Custom,
            Op::Fused(..) => OpKind::Fused,
        }
    }
}
