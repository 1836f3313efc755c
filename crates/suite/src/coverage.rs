//! The ops, op variants and edge shapes that the tables must contain. A new op has one variant by default, and the
//! suite fails until there is a case of it.

use crate::case::Case;
use kiln_ir::{
    Binary, BlockFormat, CollectiveKind, Comparison, ConvPass, DType, Extremum, IndexUser, NEEDS_AXIS,
    NormKind, Op, OpKind, PoolKind, RandomKind, Reduction, ResizeMode, Unary, UpdateMode,
};

/// The variant of an op in the completeness check: its name and the attribute that changes its semantics.
pub fn variant(op: &Op) -> String {
    let name = op.name();
    match op {
        Op::Cast(dtype) | Op::Bitcast(dtype) => format!("{name}_{dtype}"),
        Op::Quantize { dtype } => format!("{name}_{dtype}"),
        Op::Scan { reverse, exclusive, .. } => format!("{name}_{reverse}_{exclusive}"),
        Op::Sort { descending, .. } => format!("{name}_{descending}"),
        Op::TopK { largest, .. } => format!("{name}_{largest}"),
        Op::Put { mode, .. } | Op::Scatter { mode, .. } | Op::SliceUpdate { mode, .. } => {
            format!("{name}_{}", mode.name())
        }
        Op::Conv { spec, pass } => conv_variant(pass, spec.stride.len()),
        Op::Pool(spec) => pool_variant("pool", spec.kind, spec.window.len()),
        Op::PoolGrad { spec, .. } => pool_variant("pool_grad", spec.kind, spec.window.len()),
        Op::Resize { mode, align_corners, .. } => format!("{name}_{}_{align_corners}", mode.name()),
        Op::Fft { inverse, .. } => format!("{name}_{inverse}"),
        Op::Collective(collective) => match collective.kind {
            CollectiveKind::AllReduce(reduction) => format!("{name}_{}", reduction.name()),
            CollectiveKind::AllGather { .. }
            | CollectiveKind::ReduceScatter { .. }
            | CollectiveKind::Broadcast { .. }
            | CollectiveKind::Send { .. }
            | CollectiveKind::Recv { .. } => name.into(),
        },
        Op::Custom(custom) => format!("{name}_{}", custom.attributes()),
        Op::CheckIndex { user, .. } => format!("{name}_{}", user.name()),
        Op::MatMulBlocks { format } | Op::DequantizeBlocks { format, .. } => {
            format!("{name}_{}", format.name())
        }
        // The name is the variant.
        Op::Full(_)
        | Op::Iota { .. }
        | Op::Random { .. }
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Select
        | Op::Reshape(_)
        | Op::Permute(_)
        | Op::Broadcast(_)
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::Concat { .. }
        | Op::Windows { .. }
        | Op::Copy
        | Op::Reduce { .. }
        | Op::ArgReduce { .. }
        | Op::Take { .. }
        | Op::Gather { .. }
        | Op::NonZero { .. }
        | Op::Recover { .. }
        | Op::MatMul
        | Op::MatMulFloat8 { .. }
        | Op::Softmax { .. }
        | Op::LogSumExp { .. }
        | Op::Norm { .. }
        | Op::Attention(_)
        | Op::AttentionGrad(_)
        | Op::Dequantize
        | Op::Fused(_) => name.into(),
        Op::Loop(looped) => format!("{name}_{}", looped.attributes().reverse),
    }
}

/// The variants of an op kind that the tables must contain.
pub fn variants(kind: OpKind) -> Vec<String> {
    let modes = |name: &str| UpdateMode::ALL.iter().map(|mode| format!("{name}_{}", mode.name())).collect();
    let flags = |name: &str| vec![format!("{name}_false"), format!("{name}_true")];
    match kind {
        OpKind::Random => RandomKind::ALL.iter().map(|kind| format!("random_{}", kind.name())).collect(),
        OpKind::Unary => Unary::ALL.iter().map(|f| f.name().into()).collect(),
        OpKind::Binary => Binary::ALL.iter().map(|f| f.name().into()).collect(),
        OpKind::Compare => Comparison::ALL.iter().map(|f| f.name().into()).collect(),
        OpKind::Cast => DType::ALL.iter().map(|dtype| format!("cast_{dtype}")).collect(),
        OpKind::Bitcast => {
            DType::ALL.iter().filter(|d| !d.is_bool()).map(|dtype| format!("bitcast_{dtype}")).collect()
        }
        OpKind::Reduce => Reduction::ALL.iter().map(|r| format!("reduce_{}", r.name())).collect(),
        OpKind::ArgReduce => Extremum::ALL.iter().map(|e| format!("arg{}", e.name())).collect(),
        OpKind::Scan => Reduction::ALL
            .iter()
            .flat_map(|r| {
                ["false_false", "false_true", "true_false", "true_true"]
                    .map(|f| format!("scan_{}_{f}", r.name()))
            })
            .collect(),
        OpKind::Sort => flags("sort"),
        OpKind::Loop => flags("loop"),
        OpKind::TopK => flags("topk"),
        OpKind::Put => modes("put"),
        OpKind::Scatter => modes("scatter"),
        OpKind::SliceUpdate => modes("slice_update"),
        OpKind::CheckIndex => {
            IndexUser::ALL.iter().map(|user| format!("check_index_{}", user.name())).collect()
        }
        OpKind::Conv => {
            let pass = |axes| {
                let size = || vec![1; axes];
                [ConvPass::Forward, ConvPass::Input { size: size() }, ConvPass::Weight { size: size() }]
                    .map(|pass| conv_variant(&pass, axes))
            };
            (1..=3).flat_map(pass).collect()
        }
        OpKind::Pool => (1..=3).flat_map(|axes| pool_variants("pool", axes)).collect(),
        OpKind::PoolGrad => (1..=3).flat_map(|axes| pool_variants("pool_grad", axes)).collect(),
        OpKind::Softmax => vec!["softmax".into(), "log_softmax".into()],
        OpKind::Norm => NormKind::ALL.iter().map(|kind| format!("{}_norm", kind.name())).collect(),
        OpKind::Resize => {
            ResizeMode::ALL.iter().flat_map(|mode| flags(&format!("resize_{}", mode.name()))).collect()
        }
        OpKind::Fft => ["fft", "fft_from_real", "fft_to_real"].into_iter().flat_map(flags).collect(),
        OpKind::Quantize => ["i8", "u8", "i16", "u16", "i32"].map(|dtype| format!("quantize_{dtype}")).into(),
        OpKind::Collective => Reduction::ALL
            .iter()
            .map(|r| format!("all_reduce_{}", r.name()))
            .chain(["all_gather", "reduce_scatter", "collective_broadcast", "send"].map(String::from))
            .collect(),
        OpKind::Custom => {
            vec!["suite_cubed_false".into(), "suite_cubed_true".into(), "suite_host_square_".into()]
        }
        OpKind::MatMulBlocks | OpKind::DequantizeBlocks => {
            BlockFormat::ALL.iter().map(|f| format!("{}_{}", kind.info().name, f.name())).collect()
        }
        // One variant with the name of the kind.
        OpKind::Full
        | OpKind::Iota
        | OpKind::Select
        | OpKind::Reshape
        | OpKind::Permute
        | OpKind::Broadcast
        | OpKind::Slice
        | OpKind::Pad
        | OpKind::Concat
        | OpKind::Windows
        | OpKind::Copy
        | OpKind::Take
        | OpKind::Gather
        | OpKind::NonZero
        | OpKind::Recover
        | OpKind::MatMul
        | OpKind::MatMulFloat8
        | OpKind::LogSumExp
        | OpKind::Attention
        | OpKind::AttentionGrad
        | OpKind::Dequantize
        | OpKind::Fused => vec![kind.info().name.into()],
    }
}

fn conv_variant(pass: &ConvPass, axes: usize) -> String {
    let pass = match pass {
        ConvPass::Forward => "forward",
        ConvPass::Input { .. } => "input",
        ConvPass::Weight { .. } => "weight",
    };
    format!("conv{axes}d_{pass}")
}

fn pool_variant(name: &str, kind: PoolKind, axes: usize) -> String {
    let kind = match kind {
        PoolKind::Max => "max",
        PoolKind::Average { include_padding: true } => "average_with_padding",
        PoolKind::Average { include_padding: false } => "average_without_padding",
    };
    format!("{name}{axes}d_{kind}")
}

fn pool_variants(name: &str, axes: usize) -> [String; 3] {
    [PoolKind::Max, PoolKind::Average { include_padding: true }, PoolKind::Average { include_padding: false }]
        .map(|kind| pool_variant(name, kind, axes))
}

/// A kind of edge shape on which every op must be tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edge {
    /// A tensor with a length of 0.
    Empty,
    /// A scalar tensor (rank 0).
    NoAxes,
    /// A single element along at least one axis.
    One,
    /// More elements than one thread processes.
    Large,
}

impl Edge {
    /// Every edge.
    pub const ALL: [Edge; 4] = [Edge::Empty, Edge::NoAxes, Edge::One, Edge::Large];

    /// Whether a case has operands or results of this kind.
    pub fn is_in(self, case: &Case) -> bool {
        let mut types: Vec<_> =
            case.operand_types().iter().filter_map(|kind| kind.tensor().copied()).collect();
        types.extend(case.result_types().unwrap_or_default());
        types.iter().any(|ty| match self {
            Edge::Empty => ty.num_elements() == 0,
            Edge::NoAxes => ty.rank() == 0,
            Edge::One => ty.rank() > 0 && ty.num_elements() == 1,
            Edge::Large => ty.num_elements() > 4000,
        })
    }

    /// Whether the op accepts tensors of this kind.
    pub fn suits(self, kind: OpKind) -> bool {
        match self {
            Edge::Empty | Edge::Large => true,
            // A block has more elements.
            Edge::One => kind != OpKind::DequantizeBlocks,
            Edge::NoAxes => !kind.info().is(NEEDS_AXIS),
        }
    }
}
