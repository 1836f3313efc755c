//! Properties of a program's values that decide whether its gradients can be compared.

use crate::shrink::edit::inlined_all;
use crate::trace::{Ownership, Slot, trace};
use crate::trial::Trial;
use kiln_ir::{Binary, Instruction, Op, PoolKind, ProgramOperand, Reduction, Unary};
use kiln_suite::engines::reference;

/// The values of a program on the reference, with fused regions inlined.
pub(super) struct ForwardValues {
    trial: Trial,
    slots: Vec<Slot>,
}

impl ForwardValues {
    pub(super) fn of(trial: &Trial) -> ForwardValues {
        let trial = inlined_all(trial).unwrap_or_else(|| trial.clone());
        let slots = trace(&reference(), &trial, Ownership::Kept).slots;
        ForwardValues { trial, slots }
    }

    /// Whether an op failed.
    pub(super) fn have_failed(&self) -> bool {
        self.slots.iter().any(Result::is_err)
    }

    /// The greatest finite magnitude.
    pub(super) fn largest(&self) -> f64 {
        let finite = self.slots.iter().flat_map(floats).filter(|x| x.is_finite());
        finite.fold(0.0, |most, x| x.abs().max(most))
    }

    /// Whether an op has no derivative at its operands: a value is not finite, or it is a root, logarithm or power of
    /// 0. Its derivative times a gradient of 0 is NaN, although differences may be 0.
    pub(super) fn are_singular(&self) -> bool {
        let is_root = |op: &Op| {
            matches!(
                op,
                Op::Unary(Unary::Sqrt | Unary::Rsqrt | Unary::Ln) | Op::Binary(Binary::Pow | Binary::Atan2)
            )
        };
        let of_zero = |i: &Instruction| is_root(&i.op) && self.operands(i).any(|list| list.contains(&0.0));
        self.trial.program.instructions.iter().any(of_zero)
            || self.slots.iter().flat_map(floats).any(|x| !x.is_finite())
    }

    /// Whether an op chooses between elements that are equal up to rounding. Its gradient is that of one choice. A
    /// finite difference may be that of another, even if both sides agree: the second greatest of three ones stays 1.
    pub(super) fn have_ties(&self) -> bool {
        let ties = |instruction: &Instruction| {
            let mut list: Vec<f64> = self.operands(instruction).flatten().collect();
            list.sort_by(f64::total_cmp);
            let close = |a: f64, b: f64| (b - a).abs() <= 1e-11 * a.abs().max(1.0);
            chooses(&instruction.op) && list.windows(2).any(|pair| close(pair[0], pair[1]))
        };
        self.trial.program.instructions.iter().any(ties)
    }

    /// Whether a remainder jumps within any step of a difference: its dividend is at least `times` its divisor.
    pub(super) fn have_dense_jumps(&self, times: f64) -> bool {
        let jumps = |instruction: &Instruction| {
            let mut magnitudes = self.operands(instruction).map(|list| list.into_iter().map(f64::abs));
            let greatest = magnitudes.next().and_then(|list| list.reduce(f64::max));
            let least = magnitudes.next().and_then(|list| list.reduce(f64::min));
            instruction.op == Op::Binary(Binary::Rem)
                && greatest.zip(least).is_some_and(|(greatest, least)| greatest > times * least)
        };
        self.trial.program.instructions.iter().any(jumps)
    }

    /// The float operands of an instruction.
    fn operands<'a>(&'a self, instruction: &'a Instruction) -> impl Iterator<Item = Vec<f64>> + 'a {
        instruction.operands.iter().map(|operand| match operand {
            ProgramOperand::Slot(slot) => floats(&self.slots[*slot]),
            ProgramOperand::Scalar(scalar) => vec![scalar.to_f64()],
        })
    }
}

fn floats(slot: &Slot) -> Vec<f64> {
    match slot {
        Ok(data) if data.dtype().is_float() => data.to_vec(),
        Ok(_) | Err(_) => Vec::new(),
    }
}

/// Whether the op selects one of several elements.
fn chooses(op: &Op) -> bool {
    if let Op::Pool(spec) | Op::PoolGrad { spec, .. } = op {
        return spec.kind == PoolKind::Max;
    }
    if let Op::Reduce { reduction, .. } | Op::Scan { reduction, .. } = op {
        return matches!(reduction, Reduction::Min | Reduction::Max);
    }
    if let Op::Put { mode, .. } | Op::Scatter { mode, .. } | Op::SliceUpdate { mode, .. } = op {
        return matches!(mode.binary(), Some(Binary::Min | Binary::Max));
    }
    matches!(op, Op::Sort { .. } | Op::TopK { .. } | Op::Binary(Binary::Min | Binary::Max))
}
