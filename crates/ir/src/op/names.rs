//! The names of ops in messages and in the text form.

use super::*;

impl Op {
    /// The op's name: `exp`, `add`, `reduce_sum`, `conv_input`. It identifies the variant and the function within it;
    /// for a custom op it is the op's own name.
    pub fn name(&self) -> &str {
        match self {
            Op::Random { distribution, .. } => match distribution {
                RandomKind::Bits => "random_bits",
                RandomKind::Uniform => "random_uniform",
                RandomKind::Normal => "random_normal",
            },
            Op::Unary(function) => function.name(),
            Op::Binary(function) => function.name(),
            Op::Compare(comparison) => comparison.name(),
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
            Op::Softmax { log: true, .. } => "log_softmax",
            Op::Norm { kind: NormKind::Layer, .. } => "layer_norm",
            Op::Norm { kind: NormKind::Rms, .. } => "rms_norm",
            Op::Fft { kind: FftKind::FromReal, .. } => "fft_from_real",
            Op::Fft { kind: FftKind::ToReal { .. }, .. } => "fft_to_real",
            Op::Collective(collective) => match collective.kind {
                CollectiveKind::AllReduce(_) => "all_reduce",
                CollectiveKind::AllGather { .. } => "all_gather",
                CollectiveKind::ReduceScatter { .. } => "reduce_scatter",
                CollectiveKind::Broadcast { .. } => "collective_broadcast",
                CollectiveKind::Send { .. } => "send",
                CollectiveKind::Recv { .. } => "recv",
            },
            Op::Custom(op) => op.name(),
            Op::Full(_)
            | Op::Iota { .. }
            | Op::Select
            | Op::Cast(_)
            | Op::Bitcast(_)
            | Op::Reshape(_)
            | Op::Permute(_)
            | Op::Broadcast(_)
            | Op::Slice(_)
            | Op::Pad(_)
            | Op::Concat { .. }
            | Op::Windows { .. }
            | Op::Copy
            | Op::Sort { .. }
            | Op::TopK { .. }
            | Op::Take { .. }
            | Op::Gather { .. }
            | Op::Put { .. }
            | Op::Scatter { .. }
            | Op::SliceUpdate { .. }
            | Op::NonZero { .. }
            | Op::CheckIndex { .. }
            | Op::Recover { .. }
            | Op::MatMul
            | Op::MatMulFloat8 { .. }
            | Op::MatMulBlocks { .. }
            | Op::Softmax { .. }
            | Op::LogSumExp { .. }
            | Op::Attention(_)
            | Op::AttentionGrad(_)
            | Op::Resize { .. }
            | Op::Fft { .. }
            | Op::Quantize { .. }
            | Op::Dequantize
            | Op::DequantizeBlocks { .. }
            | Op::Fused(_)
            | Op::Loop(_) => self.info().name,
        }
    }
}
