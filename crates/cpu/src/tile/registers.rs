//! Register allocation: the memory of registers by live ranges.

use super::code::{Action, Code, Slot, SlotKind, Step};
use alloc::vec::Vec;
use smallvec::{SmallVec, smallvec};

/// A register that has no memory yet.
pub(super) const FREE: SlotKind = SlotKind::Register(usize::MAX);

pub(super) fn is_free(place: &SlotKind) -> bool {
    matches!(place, SlotKind::Register(usize::MAX))
}

/// The slots that a step reads.
pub(super) fn operands(step: &Step) -> SmallVec<[Slot; 3]> {
    match step.action {
        Action::Gather(_) | Action::Index(..) | Action::Finish(_) => smallvec![],
        Action::One(_, x)
        | Action::GatherWhere(_, x)
        | Action::Scatter(_, x)
        | Action::Stream(_, x)
        | Action::Fill(_, x)
        | Action::Repeat(_, x)
        | Action::Fold(_, x)
        | Action::Scan(_, x, _) => smallvec![x],
        Action::Two(_, operands) | Action::Check(_, operands) | Action::GatherAt(_, operands, _) => {
            operands.into_iter().collect()
        }
        Action::Three(_, operands) => operands.into_iter().collect(),
    }
}

/// The live range of a register, in the order of the steps.
#[derive(Clone, Copy)]
struct LiveRange {
    from: usize,
    to: usize,
}

/// Assigns memory to each register, reusing memory of registers that are no longer live.
pub(super) fn allocate(code: &mut Code, lanes: usize) {
    let live_ranges = live_ranges(code);
    let widest = if code.wide_elements { 8 } else { 4 };
    let bytes = (lanes * widest).next_multiple_of(64);
    let mut slots: Vec<usize> = (0..live_ranges.len()).filter(|&slot| live_ranges[slot].is_some()).collect();
    slots.sort_by_key(|&slot| live_ranges[slot].map_or(0, |range| range.from));
    // The end of the last live range in each piece of memory.
    let mut busy: Vec<usize> = Vec::new();
    for slot in slots {
        let Some(range) = live_ranges[slot] else { continue };
        let free = (0..busy.len()).find(|&piece| busy[piece] < range.from);
        let piece = free.unwrap_or_else(|| {
            busy.push(0);
            busy.len() - 1
        });
        busy[piece] = range.to;
        code.slots[slot] = SlotKind::Register(piece * bytes);
    }
    code.register_bytes = busy.len() * bytes;
    code.row_bytes *= 8 * code.group;
}

/// The live range of each register. A value computed before a repeated sequence of steps is live to the end of the
/// sequence.
fn live_ranges(code: &Code) -> Vec<Option<LiveRange>> {
    let mut live_ranges: Vec<Option<LiveRange>> = alloc::vec![None; code.slots.len()];
    let hoisted = code.hoisted.iter().map(|step| (step, 0));
    let stages = code.stages.iter().enumerate().flat_map(|(i, stage)| {
        let spread = stage.spread.iter().map(move |step| (step, 2 * i + 1));
        spread.chain(stage.tiles.iter().map(move |step| (step, 2 * i + 2)))
    });
    let steps: Vec<(&Step, usize)> = hoisted.chain(stages).collect();
    // The last step of each list.
    let end_of = |list: usize| steps.iter().rposition(|&(_, of)| of == list).unwrap_or(0);
    let last = steps.len();
    let mut lists: Vec<usize> = alloc::vec![0; code.slots.len()];
    for (at, &(step, list)) in steps.iter().enumerate() {
        for slot in operands(step) {
            let slot = usize::from(slot);
            if let Some(range) = &mut live_ranges[slot] {
                let repeated = list != lists[slot];
                range.to = range.to.max(if repeated { end_of(list) } else { at });
            }
        }
        let to = usize::from(step.to);
        if is_free(&code.slots[to]) && live_ranges[to].is_none() {
            lists[to] = list;
            live_ranges[to] = Some(LiveRange { from: at, to: if list == 0 { last } else { at } });
        }
    }
    live_ranges
}
