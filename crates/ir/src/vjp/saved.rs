//! The operands and results that gradient rules save.

use crate::{CollectiveKind, Fact, Op, Operand, PoolKind, Reduction, UpdateMode};

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

    /// Returns whether the data of the operand at a place is read.
    pub const fn input(self, place: usize) -> bool {
        has(self.inputs, place)
    }

    /// Returns whether the data of the result at a place is read.
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

/// The function that reads the attributes of an op, its operands and which gradients are wanted.
pub type SavedOf = fn(&Op, &[Operand], &[bool]) -> Saved;

/// Returns the operands and results that the rule of an op reads for the gradients of the `wanted` operands. Of
/// `inputs`, only the kind matters: tensor or plain number.
#[inline]
pub fn saved(op: &Op, inputs: &[Operand], wanted: &[bool]) -> Saved {
    match op.info().saved {
        Fact::Fixed(saved) => saved,
        Fact::By(read) => read(op, inputs, wanted),
    }
}

const A: Saved = Saved::inputs(1);
const B: Saved = Saved::inputs(2);
const AB: Saved = Saved::inputs(3);
const Y: Saved = Saved { inputs: 0, outputs: 1 };

/// The union over the wanted gradients of these operands.
fn each<const N: usize>(wanted: &[bool], reads: [(usize, Saved); N]) -> Saved {
    let wants = |place: usize| wanted.get(place).copied().unwrap_or(false);
    reads.into_iter().filter(|(place, _)| wants(*place)).fold(Saved::NONE, |all, (_, reads)| all.and(reads))
}

pub(crate) fn function(op: &Op, inputs: &[Operand], wanted: &[bool]) -> Saved {
    match op.function().map(|function| function.saved) {
        Some(Fact::Fixed(saved)) => saved,
        Some(Fact::By(read)) => read(op, inputs, wanted),
        None => Saved::ALL,
    }
}

/// Of bilinear ops.
pub(crate) fn product(_: &Op, _: &[Operand], wanted: &[bool]) -> Saved {
    each(wanted, [(0, B), (1, A)])
}

pub(crate) fn quotient(_: &Op, _: &[Operand], wanted: &[bool]) -> Saved {
    each(wanted, [(0, B), (1, B.and(Y))])
}

pub(crate) fn remainder(_: &Op, _: &[Operand], wanted: &[bool]) -> Saved {
    each(wanted, [(1, AB.and(Y))])
}

pub(crate) fn power(_: &Op, _: &[Operand], wanted: &[bool]) -> Saved {
    each(wanted, [(0, AB), (1, AB.and(Y))])
}

pub(crate) fn extreme(_: &Op, inputs: &[Operand], _: &[bool]) -> Saved {
    if inputs.iter().any(|input| input.scalar().is_some()) { Y } else { AB }
}

pub(crate) fn reduce(op: &Op, _: &[Operand], _: &[bool]) -> Saved {
    match op.reduction() {
        Some(Reduction::Sum) => Saved::NONE,
        Some(Reduction::Prod | Reduction::Min | Reduction::Max) | None => A,
    }
}

pub(crate) fn scan(op: &Op, _: &[Operand], _: &[bool]) -> Saved {
    let Op::Scan { reduction, exclusive, .. } = op else { return Saved::ALL };
    match reduction {
        Reduction::Sum => Saved::NONE,
        Reduction::Prod => A,
        Reduction::Min | Reduction::Max if *exclusive => A,
        Reduction::Min | Reduction::Max => A.and(Y),
    }
}

pub(crate) fn put(op: &Op, _: &[Operand], wanted: &[bool]) -> Saved {
    let Some(mode) = op.update_mode() else { return Saved::ALL };
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
    each(wanted, [(0, of_base), (2, of_source)])
}

pub(crate) fn slice_update(op: &Op, inputs: &[Operand], wanted: &[bool]) -> Saved {
    match op.update_mode() {
        Some(UpdateMode::Add | UpdateMode::Set) => Saved::NONE,
        Some(UpdateMode::Mul) => product(op, inputs, wanted),
        Some(UpdateMode::Min | UpdateMode::Max) | None => AB.and(Y),
    }
}

/// A maximum reads the pooled operand, which is the last one.
pub(crate) fn pool(op: &Op, _: &[Operand], _: &[bool]) -> Saved {
    match op.pooling().map(|spec| spec.kind) {
        Some(PoolKind::Average { .. }) => Saved::NONE,
        Some(PoolKind::Max) | None => {
            if let Op::Pool(_) = op {
                A
            } else {
                B
            }
        }
    }
}

pub(crate) fn norm(_: &Op, _: &[Operand], wanted: &[bool]) -> Saved {
    each(wanted, [(0, AB), (1, A)])
}

pub(crate) fn collective(op: &Op, _: &[Operand], _: &[bool]) -> Saved {
    let Op::Collective(collective) = op else { return Saved::ALL };
    match collective.kind {
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
    }
}

pub(crate) fn custom(op: &Op, _: &[Operand], _: &[bool]) -> Saved {
    if let Op::Custom(custom) = op { custom.saved() } else { Saved::ALL }
}

pub(crate) fn looped(op: &Op, _: &[Operand], wanted: &[bool]) -> Saved {
    if let Op::Loop(op) = op { op.saved(wanted) } else { Saved::ALL }
}
