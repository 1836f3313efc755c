//! The ops, op variants and edge shapes that the tables must contain. A new op has one variant by default, and the
//! suite fails until there is a case of it.

use crate::case::Case;
use kiln_ir::{
    Binary, BlockFormat, Collective, CollectiveKind, Comparison, ConvPass, DType, Extremum, IndexUser,
    NEEDS_AXIS, NormKind, Op, OpKind, PoolKind, RandomKind, Reduction, ResizeMode, Unary, UpdateMode,
};

/// Returns the variant of an op in the completeness check: its name and the attribute that changes its semantics.
pub fn variant(op: &Op) -> String {
    let name = op.name();
    let of = |attribute: &str| format!("{name}_{attribute}");
    if let Op::Cast(dtype) | Op::Bitcast(dtype) | Op::Quantize { dtype } = op {
        of(&dtype.to_string())
    } else if let Op::Scan { reverse, exclusive, .. } = op {
        of(&format!("{reverse}_{exclusive}"))
    } else if let Op::Sort { descending: flag, .. }
    | Op::TopK { largest: flag, .. }
    | Op::Fft { inverse: flag, .. } = op
    {
        of(&flag.to_string())
    } else if let Op::Loop(looped) = op {
        of(&looped.attributes().reverse.to_string())
    } else if let Some(mode) = op.update_mode() {
        of(mode.name())
    } else if let Op::Conv { spec, pass } = op {
        conv_variant(pass, spec.stride.len())
    } else if let Some(spec) = op.pooling() {
        pool_variant(op.info().name, spec.kind, spec.window.len())
    } else if let Op::Resize { mode, align_corners, .. } = op {
        of(&format!("{}_{align_corners}", mode.name()))
    } else if let Op::Collective(Collective { kind: CollectiveKind::AllReduce(reduction), .. }) = op {
        of(reduction.name())
    } else if let Op::Custom(custom) = op {
        of(&custom.attributes().to_string())
    } else if let Op::CheckIndex { user, .. } = op {
        of(user.name())
    } else if let Op::MatMulBlocks { format } | Op::DequantizeBlocks { format, .. } = op {
        of(format.name())
    } else {
        name.into()
    }
}

/// Returns the variants of an op kind that the tables must contain: by default one, with the name of the kind.
pub fn variants(kind: OpKind) -> Vec<String> {
    let listed = listed_variants().into_iter().find(|(listed, _)| *listed == kind);
    listed.map_or_else(|| vec![kind.info().name.into()], |(_, variants)| variants)
}

/// The kinds of several variants.
fn listed_variants() -> Vec<(OpKind, Vec<String>)> {
    let modes = |name: &str| UpdateMode::ALL.iter().map(|mode| format!("{name}_{}", mode.name())).collect();
    let flags = |name: &str| vec![format!("{name}_false"), format!("{name}_true")];
    let formats = |name: &str| BlockFormat::ALL.iter().map(|f| format!("{name}_{}", f.name())).collect();
    let conv = |axes| {
        let size = || vec![1; axes];
        [ConvPass::Forward, ConvPass::Input { size: size() }, ConvPass::Weight { size: size() }]
            .map(|pass| conv_variant(&pass, axes))
    };
    let scans = Reduction::ALL.iter().flat_map(|r| {
        ["false_false", "false_true", "true_false", "true_true"].map(|f| format!("scan_{}_{f}", r.name()))
    });
    let bitcasts = DType::ALL.iter().filter(|dtype| !dtype.is_bool());
    let groups = ["all_gather", "reduce_scatter", "collective_broadcast", "send"].map(String::from);
    let all_reduces = Reduction::ALL.iter().map(|r| format!("all_reduce_{}", r.name()));
    vec![
        (OpKind::Random, RandomKind::ALL.iter().map(|kind| format!("random_{}", kind.name())).collect()),
        (OpKind::Unary, Unary::ALL.iter().map(|f| f.name().into()).collect()),
        (OpKind::Binary, Binary::ALL.iter().map(|f| f.name().into()).collect()),
        (OpKind::Compare, Comparison::ALL.iter().map(|f| f.name().into()).collect()),
        (OpKind::Cast, DType::ALL.iter().map(|dtype| format!("cast_{dtype}")).collect()),
        (OpKind::Bitcast, bitcasts.map(|dtype| format!("bitcast_{dtype}")).collect()),
        (OpKind::Reduce, Reduction::ALL.iter().map(|r| format!("reduce_{}", r.name())).collect()),
        (OpKind::ArgReduce, Extremum::ALL.iter().map(|e| format!("arg{}", e.name())).collect()),
        (OpKind::Scan, scans.collect()),
        (OpKind::Sort, flags("sort")),
        (OpKind::TopK, flags("topk")),
        (OpKind::Put, modes("put")),
        (OpKind::Scatter, modes("scatter")),
        (OpKind::SliceUpdate, modes("slice_update")),
        (
            OpKind::CheckIndex,
            IndexUser::ALL.iter().map(|user| format!("check_index_{}", user.name())).collect(),
        ),
        (OpKind::Conv, (1..=3).flat_map(conv).collect()),
        (OpKind::Pool, (1..=3).flat_map(|axes| pool_variants("pool", axes)).collect()),
        (OpKind::PoolGrad, (1..=3).flat_map(|axes| pool_variants("pool_grad", axes)).collect()),
        (OpKind::Softmax, vec!["softmax".into(), "log_softmax".into()]),
        (OpKind::Norm, NormKind::ALL.iter().map(|kind| format!("{}_norm", kind.name())).collect()),
        (
            OpKind::Resize,
            ResizeMode::ALL.iter().flat_map(|mode| flags(&format!("resize_{}", mode.name()))).collect(),
        ),
        (OpKind::Fft, ["fft", "fft_from_real", "fft_to_real"].into_iter().flat_map(flags).collect()),
        (OpKind::Quantize, ["i8", "u8", "i16", "u16", "i32"].map(|dtype| format!("quantize_{dtype}")).into()),
        (OpKind::Collective, all_reduces.chain(groups).collect()),
        (
            OpKind::Custom,
            ["suite_cubed_false", "suite_cubed_true", "suite_host_square_"].map(String::from).into(),
        ),
        (OpKind::MatMulBlocks, formats("matmul_blocks")),
        (OpKind::DequantizeBlocks, formats("dequantize_blocks")),
        (OpKind::Loop, flags("loop")),
    ]
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

    /// Returns whether a case has operands or results of this kind.
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

    /// Returns whether the op accepts tensors of this kind.
    pub fn suits(self, kind: OpKind) -> bool {
        match self {
            Edge::Empty | Edge::Large => true,
            // A block has more elements.
            Edge::One => kind != OpKind::DequantizeBlocks,
            Edge::NoAxes => !kind.info().is(NEEDS_AXIS),
        }
    }
}
