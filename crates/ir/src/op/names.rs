//! The names of ops, as messages and the text form write them.

use super::*;

impl Op {
    /// The name: `exp`, `add`, `reduce_sum`, `conv_input`. It tells the variant and the function within it;
    /// for a custom op it is the op's own name.
    pub fn name(&self) -> &str {
        match self {
            Op::Full(_) => "full",
            Op::Iota { .. } => "iota",
            Op::Random { distribution, .. } => match distribution {
                RandomKind::Bits => "random_bits",
                RandomKind::Uniform => "random_uniform",
                RandomKind::Normal => "random_normal",
            },
            Op::Unary(function) => function.name(),
            Op::Binary(function) => function.name(),
            Op::Compare(comparison) => comparison.name(),
            Op::Select => "select",
            Op::Cast(_) => "cast",
            Op::Bitcast(_) => "bitcast",
            Op::Reshape(_) => "reshape",
            Op::Permute(_) => "permute",
            Op::Broadcast(_) => "broadcast",
            Op::Slice(_) => "slice",
            Op::Pad(_) => "pad",
            Op::Concat { .. } => "concat",
            Op::Windows { .. } => "windows",
            Op::Copy => "copy",
            Op::Reduce { reduction, .. } => match reduction {
                Reduction::Sum => "reduce_sum",
                Reduction::Prod => "reduce_prod",
                Reduction::Min => "reduce_min",
                Reduction::Max => "reduce_max",
            },
            Op::ArgReduce { extremum, .. } => match extremum {
                Extremum::Min => "argmin",
                Extremum::Max => "argmax",
            },
            Op::Scan { reduction, .. } => match reduction {
                Reduction::Sum => "scan_sum",
                Reduction::Prod => "scan_prod",
                Reduction::Min => "scan_min",
                Reduction::Max => "scan_max",
            },
            Op::Sort { .. } => "sort",
            Op::TopK { .. } => "topk",
            Op::Take { .. } => "take",
            Op::Gather { .. } => "gather",
            Op::Put { .. } => "put",
            Op::Scatter { .. } => "scatter",
            Op::SliceUpdate { .. } => "slice_update",
            Op::NonZero { .. } => "nonzero",
            Op::CheckIndex { .. } => "check_index",
            Op::Recover { .. } => "recover",
            Op::MatMul => "matmul",
            Op::MatMulFloat8 { .. } => "matmul_float8",
            Op::Conv { pass, .. } => match pass {
                ConvPass::Forward => "conv",
                ConvPass::Input { .. } => "conv_input",
                ConvPass::Weight { .. } => "conv_weight",
            },
            Op::Pool(spec) => match spec.kind {
                PoolKind::Max => "max_pool",
                PoolKind::Average { .. } => "avg_pool",
            },
            Op::PoolGrad { spec, .. } => match spec.kind {
                PoolKind::Max => "max_pool_grad",
                PoolKind::Average { .. } => "avg_pool_grad",
            },
            Op::Softmax { log: false, .. } => "softmax",
            Op::Softmax { log: true, .. } => "log_softmax",
            Op::Norm { kind: NormKind::Layer, .. } => "layer_norm",
            Op::Norm { kind: NormKind::Rms, .. } => "rms_norm",
            Op::Attention(_) => "attention",
            Op::AttentionGrad(_) => "attention_grad",
            Op::Resize { .. } => "resize",
            Op::Fft { kind: FftKind::Complex, .. } => "fft",
            Op::Fft { kind: FftKind::FromReal, .. } => "fft_from_real",
            Op::Fft { kind: FftKind::ToReal { .. }, .. } => "fft_to_real",
            Op::Quantize { .. } => "quantize",
            Op::Dequantize => "dequantize",
            Op::Collective(collective) => match collective.kind {
                CollectiveKind::AllReduce(_) => "all_reduce",
                CollectiveKind::AllGather { .. } => "all_gather",
                CollectiveKind::ReduceScatter { .. } => "reduce_scatter",
                CollectiveKind::Broadcast { .. } => "collective_broadcast",
                CollectiveKind::Send { .. } => "send",
                CollectiveKind::Recv { .. } => "recv",
            },
            Op::Custom(op) => op.name(),
            Op::Fused(_) => "fused",
        }
    }
}
