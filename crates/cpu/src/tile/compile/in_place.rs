//! Results in the memory of operands.
//!
//! An operand whose memory is overwritten is read in place if each of its elements is read before the result's element
//! is written, in every tile. Otherwise it is copied into a register first.

use super::{Compiler, List};
use crate::tile::code::{Action, Code, Form, Slot, SlotKind, Step};
use crate::tile::registers;
use alloc::vec::Vec;
use kiln_kernel::{Kernel, Launch, ParamKind};

/// A result in the memory of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tile) struct Taken {
    /// The index of the result.
    pub(in crate::tile) result: usize,
    /// The parameter of the operand.
    pub(in crate::tile) param: usize,
}

/// The operands whose memory is overwritten.
pub(super) struct InPlace<'a> {
    pub(super) taken: &'a [Taken],
    /// The set of their parameters that are copied into a register first.
    copied: u64,
    /// The results of steps that read each element before they write it.
    pub(super) safe: Vec<Slot>,
}

impl InPlace<'_> {
    /// Whether a parameter is one of them.
    pub(super) fn contains(&self, param: usize) -> bool {
        self.taken.iter().any(|taken| taken.param == param)
    }
}

impl<'a> Compiler<'a> {
    /// Compiles a kernel: operands that cannot be read in place are found by compiling it as if they could.
    pub(super) fn compiled(
        kernel: &'a Kernel,
        launch: &'a Launch,
        taken: &'a [Taken],
        lanes: usize,
    ) -> Option<Code> {
        let mut copied = 0;
        loop {
            let in_place = InPlace { taken, copied, safe: Vec::new() };
            let mut compiler = Compiler::new(kernel, launch, in_place, lanes)?;
            compiler.emit_all();
            let conflicts = compiler.conflicts();
            if conflicts & !copied == 0 {
                return compiler.finish();
            }
            copied |= conflicts;
        }
    }

    /// Whether a parameter is copied into a register by that list of steps, because a result overwrites it.
    pub(super) fn is_copied_first(&self, param: usize, list: List) -> bool {
        let tiles = self.tiling.form == Form::Map && list == List::Tiles(0);
        self.in_place.contains(param) && (!tiles || self.in_place.copied >> param & 1 == 1)
    }

    /// The set of parameters that a step reads in place after an element has been overwritten.
    fn conflicts(&self) -> u64 {
        let conflicting = self.in_place.taken.iter().filter(|taken| self.conflicts_with(taken));
        conflicting.fold(0, |set, taken| set | 1 << taken.param)
    }

    fn conflicts_with(&self, &Taken { result, param }: &Taken) -> bool {
        let bindings = &self.launch.bindings;
        let is_result =
            |at: &usize| self.kernel.params[*at].kind == ParamKind::Output && bindings[*at].place == result;
        let Some(output) = (0..self.kernel.params.len()).find(is_result) else { return true };
        if bindings[output].offset != bindings[param].offset {
            return true;
        }
        let is_at = |slot: Slot, param: usize| {
            let place = self.code.slots[usize::from(slot)];
            matches!(place, SlotKind::AtTile(at) if at == param)
        };
        let reads = |step: &Step| registers::operands(step).iter().any(|&slot| is_at(slot, param));
        let writes = |step: &Step| match step.action {
            Action::Scatter(to, _) => to == output,
            // They have the slot of their operand.
            Action::Fold(..) | Action::Check(..) => false,
            Action::One(..)
            | Action::Two(..)
            | Action::Three(..)
            | Action::Gather(_)
            | Action::GatherWhere(..)
            | Action::GatherAt(..)
            | Action::Stream(..)
            | Action::Fill(..)
            | Action::Repeat(..)
            | Action::Index(..)
            | Action::Finish(_)
            | Action::Scan(..) => is_at(step.to, output),
        };
        let tiles = &self.code.stages[0].tiles;
        let (write, read) = (tiles.iter().position(writes), tiles.iter().rposition(reads));
        let (Some(write), Some(read)) = (write, read) else { return false };
        read > write || (read == write && !self.in_place.safe.contains(&tiles[write].to))
    }
}
