//! Shrinks failing trials.
//!
//! Changes are applied one after another, and a change is kept if the smaller trial still fails for the same reason.
//! The changes: remove outputs, ops and inputs; replace the result of an op by an input; inline fused regions; shorten
//! axes; simplify numbers.

pub(crate) mod edit;

use crate::check::{Failure, Subjects, check};
use crate::trial::Trial;
use kiln_ir::{Element, Elements, TensorData};
use std::cell::Cell;
use std::collections::BTreeSet;

/// Shrinks a trial by at most `tries` changes. The result fails for the same reason.
pub fn shrink(trial: &Trial, failure: &Failure, subjects: &Subjects, tries: usize) -> Trial {
    let shrinker = Shrinker { failure, subjects, tries: Cell::new(tries) };
    let mut best = trial.clone();
    loop {
        let before = best.clone();
        shrinker.structure(&mut best);
        shrinker.lengths(&mut best);
        shrinker.values(&mut best);
        if best == before || shrinker.tries.get() == 0 {
            return best;
        }
    }
}

struct Shrinker<'a> {
    failure: &'a Failure,
    subjects: &'a Subjects,
    /// The remaining number of tries.
    tries: Cell<usize>,
}

impl Shrinker<'_> {
    /// Accepts the candidate if it is a valid trial that fails for the same reason.
    fn adopt(&self, best: &mut Trial, candidate: Option<Trial>) -> bool {
        let Some(candidate) = candidate.and_then(|trial| edit::retyped(&edit::pruned(&trial))) else {
            return false;
        };
        if candidate == *best || self.tries.get() == 0 {
            return false;
        }
        self.tries.set(self.tries.get() - 1);
        let found = check(&candidate, self.subjects).failure;
        let fails = found.is_some_and(|failure| failure.is_like(self.failure));
        if fails {
            *best = candidate;
        }
        fails
    }

    fn structure(&self, best: &mut Trial) {
        self.end(best);
        for place in (0..best.program.outputs.len()).rev() {
            let fewer = edit::without_output(best, place);
            self.adopt(best, fewer);
        }
        let mut place = best.program.instructions.len();
        while place > 0 {
            place -= 1;
            if place >= best.program.instructions.len() {
                continue;
            }
            let opened = edit::inlined(best, place);
            if self.adopt(best, opened) {
                place = best.program.instructions.len();
                continue;
            }
            let fewer = edit::replaced(best, place, &*self.subjects.one);
            self.adopt(best, fewer);
        }
    }

    /// Removes the ops after the failing op. If the failure names none, as for gradients, it removes the ops after the
    /// first ops that fail by themselves.
    fn end(&self, best: &mut Trial) {
        let counts = match check(best, self.subjects).failure.and_then(|failure| failure.instruction) {
            Some(last) => last + 1..last + 2,
            None => 1..best.program.instructions.len(),
        };
        for count in counts {
            let cut = edit::truncated(best, count);
            if self.adopt(best, cut) {
                return;
            }
        }
    }

    fn lengths(&self, best: &mut Trial) {
        let all: BTreeSet<usize> =
            best.program.slot_types().iter().flat_map(|ty| ty.shape.to_vec()).filter(|&n| n > 1).collect();
        for from in all.into_iter().rev() {
            for to in [1, 2, from / 2, from - 1] {
                let shorter = (to < from).then(|| edit::relengthened(best, from, to, None)).flatten();
                if self.adopt(best, shorter) {
                    break;
                }
            }
        }
        for input in 0..best.inputs.len() {
            let lengths: BTreeSet<usize> = match best.program.inputs.get(input) {
                Some(ty) => ty.shape.iter().copied().filter(|&n| n > 1).collect(),
                None => BTreeSet::new(),
            };
            for from in lengths {
                for to in [1, from / 2, from - 1] {
                    let shorter = edit::relengthened(best, from, to, Some(input));
                    self.adopt(best, shorter);
                }
            }
        }
    }

    fn values(&self, best: &mut Trial) {
        for input in 0..best.inputs.len() {
            for number in [0.0, 1.0] {
                let mut plain = best.clone();
                let data = &mut plain.inputs[input];
                let numbers = vec![number; data.num_elements()];
                *data = converted(numbers, data);
                self.adopt(best, Some(plain));
            }
            let count = best.inputs.get(input).map_or(0, TensorData::num_elements);
            for element in 0..count.min(64) {
                for change in [Change::To(0.0), Change::To(1.0), Change::Rounded] {
                    let changed = changed(best, input, element, change);
                    if self.adopt(best, changed) {
                        break;
                    }
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Change {
    To(f64),
    Rounded,
}

fn converted(numbers: Vec<f64>, like: &TensorData) -> TensorData {
    TensorData::new(numbers, *like.shape()).expect("as many numbers as before").convert(like.dtype())
}

/// The trial with one element changed; `None` if it does not change. Other elements keep their bits.
fn changed(trial: &Trial, input: usize, element: usize, change: Change) -> Option<Trial> {
    fn set<E: Element>(list: &mut [E], element: usize, change: Change) -> Option<()> {
        let slot = list.get_mut(element)?;
        let before = slot.to_f64();
        let after = E::from_f64(match change {
            Change::To(number) => number,
            Change::Rounded => before.round(),
        });
        // The numbers 0 and 1 are already simple.
        let plain = before == 0.0 && before.is_sign_positive() || before == 1.0;
        if after.to_f64().to_bits() == before.to_bits() || plain {
            return None;
        }
        *slot = after;
        Some(())
    }
    let mut trial = trial.clone();
    match trial.inputs.get_mut(input)?.elements_mut() {
        Elements::F64(list) => set(list, element, change),
        Elements::F32(list) => set(list, element, change),
        Elements::F16(list) => set(list, element, change),
        Elements::BF16(list) => set(list, element, change),
        Elements::I64(list) => set(list, element, change),
        Elements::I32(list) => set(list, element, change),
        Elements::I16(list) => set(list, element, change),
        Elements::I8(list) => set(list, element, change),
        Elements::U64(list) => set(list, element, change),
        Elements::U32(list) => set(list, element, change),
        Elements::U16(list) => set(list, element, change),
        Elements::U8(list) => set(list, element, change),
        Elements::Bool(list) => set(list, element, change),
    }?;
    Some(trial)
}
