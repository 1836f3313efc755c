//! The operands and results that gradient rules save.

use crate::{Binary, CollectiveKind, ConvPass, Op, Operand, PoolKind, Reduction, UpdateMode};

/// The operands and results whose data a rule of [`vjp`](super::vjp) reads, one bit per place from the least
/// significant. Of the others it reads the types. Plain numbers are always known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// The operands. [`u32::MAX`] stands for all, however many.
    pub inputs: u32,
    /// The results. [`u32::MAX`] stands for all, however many.
    pub outputs: u32,
}

impl Saved {
    /// Nothing.
    pub const NONE: Saved = Saved { inputs: 0, outputs: 0 };

    /// All operands and results.
    pub const ALL: Saved = Saved { inputs: u32::MAX, outputs: u32::MAX };

    const fn inputs(inputs: u32) -> Saved {
        Saved { inputs, outputs: 0 }
    }

    /// Whether the data of the operand at a place is read.
    pub const fn input(self, place: usize) -> bool {
        has(self.inputs, place)
    }

    /// Whether the data of the result at a place is read.
    pub const fn output(self, place: usize) -> bool {
        has(self.outputs, place)
    }

    const fn and(self, other: Saved) -> Saved {
        Saved { inputs: self.inputs | other.inputs, outputs: self.outputs | other.outputs }
    }
}

const fn has(mask: u32, place: usize) -> bool {
    mask == u32::MAX || (place < 32 && mask & (1 << place) != 0)
}

const A: Saved = Saved::inputs(1);
const B: Saved = Saved::inputs(2);
const AB: Saved = Saved::inputs(3);
const Y: Saved = Saved { inputs: 0, outputs: 1 };

/// The operands and results that the rule of an op reads for the gradients of the `wanted` operands. Of `inputs`, only
/// the kind matters: tensor or plain number.
pub fn saved(op: &Op, inputs: &[Operand], wanted: &[bool]) -> Saved {
    let wants = |place: usize| wanted.get(place).copied().unwrap_or(false);
    let each = |a: Saved, b: Saved| {
        let of = |place: usize, what: Saved| if wants(place) { what } else { Saved::NONE };
        of(0, a).and(of(1, b))
    };
    match op {
        Op::Unary(function) => function.info().saved.unwrap_or(Saved::ALL),
        Op::Binary(function) => match function {
            Binary::Mul => each(B, A),
            Binary::Div => each(B, B.and(Y)),
            Binary::Rem => each(Saved::NONE, AB.and(Y)),
            Binary::Pow => each(AB, AB.and(Y)),
            Binary::Min | Binary::Max => {
                if inputs.iter().any(|input| input.scalar().is_some()) {
                    Y
                } else {
                    AB
                }
            }
            Binary::Add
            | Binary::Sub
            | Binary::Atan2
            | Binary::And
            | Binary::Or
            | Binary::Xor
            | Binary::Shl
            | Binary::Shr => function.info().saved.unwrap_or(Saved::ALL),
        },
        Op::Reduce { reduction, .. } => match reduction {
            Reduction::Sum => Saved::NONE,
            Reduction::Prod | Reduction::Min | Reduction::Max => A,
        },
        Op::Scan { reduction, exclusive, .. } => match reduction {
            Reduction::Sum => Saved::NONE,
            Reduction::Prod => A,
            Reduction::Min | Reduction::Max => {
                if *exclusive {
                    A
                } else {
                    A.and(Y)
                }
            }
        },
        Op::Put { mode, .. } | Op::Scatter { mode, .. } => {
            let (base, index, source) = (A, B, Saved::inputs(4));
            let (of_base, of_source) = match mode {
                UpdateMode::Add => (Saved::NONE, index),
                UpdateMode::Set => (index, index),
                UpdateMode::Mul => (index.and(source), base.and(index).and(source)),
                UpdateMode::Min | UpdateMode::Max => {
                    let all = base.and(index).and(source).and(Y);
                    (all, all)
                }
            };
            let of = |place: usize, what: Saved| if wants(place) { what } else { Saved::NONE };
            of(0, of_base).and(of(2, of_source))
        }
        Op::SliceUpdate { mode, .. } => match mode {
            UpdateMode::Add | UpdateMode::Set => Saved::NONE,
            UpdateMode::Mul => each(B, A),
            UpdateMode::Min | UpdateMode::Max => AB.and(Y),
        },
        Op::MatMul => each(B, A),
        Op::Conv { pass: ConvPass::Forward | ConvPass::Input { .. } | ConvPass::Weight { .. }, .. } => {
            each(B, A)
        }
        Op::Pool(spec) => match spec.kind {
            PoolKind::Max => A,
            PoolKind::Average { .. } => Saved::NONE,
        },
        Op::PoolGrad { spec, .. } => match spec.kind {
            PoolKind::Max => B,
            PoolKind::Average { .. } => Saved::NONE,
        },
        Op::Norm { .. } => each(AB, A),
        Op::Collective(collective) => match collective.kind {
            CollectiveKind::AllReduce(reduction) | CollectiveKind::ReduceScatter { reduction, .. } => {
                match reduction {
                    Reduction::Sum => Saved::NONE,
                    Reduction::Prod => A,
                    Reduction::Min | Reduction::Max => A.and(Y),
                }
            }
            CollectiveKind::AllGather { .. }
            | CollectiveKind::Broadcast { .. }
            | CollectiveKind::Send { .. }
            | CollectiveKind::Recv { .. } => Saved::NONE,
        },
        Op::Custom(custom) => custom.saved(),
        Op::Loop(op) => op.saved(wanted),
        Op::Full(_)
        | Op::Iota { .. }
        | Op::Random { .. }
        | Op::Compare(_)
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
        | Op::ArgReduce { .. }
        | Op::Sort { .. }
        | Op::TopK { .. }
        | Op::Take { .. }
        | Op::Gather { .. }
        | Op::NonZero { .. }
        | Op::CheckIndex { .. }
        | Op::Recover { .. }
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
        | Op::Fused(_) => op.row(|row| row.saved),
    }
}
