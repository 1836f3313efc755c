//! The names of ops in messages and in the text form.

use super::*;

impl Op {
    /// The op's name: `exp`, `add`, `reduce_sum`, `conv_input`. It identifies the variant and the function within it;
    /// for a custom op it is the op's own name. A kind without several names has that of its [row](OpInfo::name).
    pub fn name(&self) -> &str {
        if let Op::Random { distribution, .. } = self {
            match distribution {
                RandomKind::Bits => "random_bits",
                RandomKind::Uniform => "random_uniform",
                RandomKind::Normal => "random_normal",
            }
        } else if let Some(function) = self.function() {
            function.name
        } else if let Op::Compare(comparison) = self {
            comparison.name()
        } else if let Op::Reduce { reduction, .. } = self {
            match reduction {
                Reduction::Sum => "reduce_sum",
                Reduction::Prod => "reduce_prod",
                Reduction::Min => "reduce_min",
                Reduction::Max => "reduce_max",
            }
        } else if let Op::ArgReduce { extremum, .. } = self {
            match extremum {
                Extremum::Min => "argmin",
                Extremum::Max => "argmax",
            }
        } else if let Op::Scan { reduction, .. } = self {
            match reduction {
                Reduction::Sum => "scan_sum",
                Reduction::Prod => "scan_prod",
                Reduction::Min => "scan_min",
                Reduction::Max => "scan_max",
            }
        } else if let Op::Conv { pass, .. } = self {
            match pass {
                ConvPass::Forward => "conv",
                ConvPass::Input { .. } => "conv_input",
                ConvPass::Weight { .. } => "conv_weight",
            }
        } else if let Op::Pool(spec) = self {
            match spec.kind {
                PoolKind::Max => "max_pool",
                PoolKind::Average { .. } => "avg_pool",
            }
        } else if let Op::PoolGrad { spec, .. } = self {
            match spec.kind {
                PoolKind::Max => "max_pool_grad",
                PoolKind::Average { .. } => "avg_pool_grad",
            }
        } else if let Op::Softmax { log: true, .. } = self {
            "log_softmax"
        } else if let Op::Norm { kind, .. } = self {
            match kind {
                NormKind::Layer => "layer_norm",
                NormKind::Rms => "rms_norm",
            }
        } else if let Op::Fft { kind, .. } = self {
            match kind {
                FftKind::Complex => "fft",
                FftKind::FromReal => "fft_from_real",
                FftKind::ToReal { .. } => "fft_to_real",
            }
        } else if let Op::Collective(collective) = self {
            match collective.kind {
                CollectiveKind::AllReduce(_) => "all_reduce",
                CollectiveKind::AllGather { .. } => "all_gather",
                CollectiveKind::ReduceScatter { .. } => "reduce_scatter",
                CollectiveKind::Broadcast { .. } => "collective_broadcast",
                CollectiveKind::Send { .. } => "send",
                CollectiveKind::Recv { .. } => "recv",
            }
        } else if let Op::Custom(op) = self {
            op.name()
        } else {
            self.info().name
        }
    }
}
