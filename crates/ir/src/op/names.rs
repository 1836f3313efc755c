//! The names of ops, where attributes decide.

use super::{CollectiveKind, ConvPass, Extremum, FftKind, NormKind, Op, PoolKind, RandomKind, Reduction};

/// The name of an op of a kind, read from its attributes.
pub type NameOf = fn(&Op) -> &str;

/// Functions that name the ops of a pattern. An op of another kind has the name of its [row](super::OpInfo::name).
macro_rules! names {
    ($($function:ident: $pattern:pat => $name:expr;)*) => {
        $(pub(super) fn $function(op: &Op) -> &str {
            if let $pattern = op { $name } else { op.info().name }
        })*
    };
}

names! {
    unary: Op::Unary(function) => function.name();
    binary: Op::Binary(function) => function.name();
    compare: Op::Compare(comparison) => comparison.name();
    random: Op::Random { distribution, .. } => match distribution {
        RandomKind::Bits => "random_bits",
        RandomKind::Uniform => "random_uniform",
        RandomKind::Normal => "random_normal",
    };
    reduce: Op::Reduce { reduction, .. } => match reduction {
        Reduction::Sum => "reduce_sum",
        Reduction::Prod => "reduce_prod",
        Reduction::Min => "reduce_min",
        Reduction::Max => "reduce_max",
    };
    arg_reduce: Op::ArgReduce { extremum, .. } => match extremum {
        Extremum::Min => "argmin",
        Extremum::Max => "argmax",
    };
    scan: Op::Scan { reduction, .. } => match reduction {
        Reduction::Sum => "scan_sum",
        Reduction::Prod => "scan_prod",
        Reduction::Min => "scan_min",
        Reduction::Max => "scan_max",
    };
    conv: Op::Conv { pass, .. } => match pass {
        ConvPass::Forward => "conv",
        ConvPass::Input { .. } => "conv_input",
        ConvPass::Weight { .. } => "conv_weight",
    };
    pool: Op::Pool(spec) => match spec.kind {
        PoolKind::Max => "max_pool",
        PoolKind::Average { .. } => "avg_pool",
    };
    pool_grad: Op::PoolGrad { spec, .. } => match spec.kind {
        PoolKind::Max => "max_pool_grad",
        PoolKind::Average { .. } => "avg_pool_grad",
    };
    softmax: Op::Softmax { log, .. } => if *log { "log_softmax" } else { "softmax" };
    norm: Op::Norm { kind, .. } => match kind {
        NormKind::Layer => "layer_norm",
        NormKind::Rms => "rms_norm",
    };
    fft: Op::Fft { kind, .. } => match kind {
        FftKind::Complex => "fft",
        FftKind::FromReal => "fft_from_real",
        FftKind::ToReal { .. } => "fft_to_real",
    };
    collective: Op::Collective(collective) => match collective.kind {
        CollectiveKind::AllReduce(_) => "all_reduce",
        CollectiveKind::AllGather { .. } => "all_gather",
        CollectiveKind::ReduceScatter { .. } => "reduce_scatter",
        CollectiveKind::Broadcast { .. } => "collective_broadcast",
        CollectiveKind::Send { .. } => "send",
        CollectiveKind::Recv { .. } => "recv",
    };
    custom: Op::Custom(op) => op.name();
}
