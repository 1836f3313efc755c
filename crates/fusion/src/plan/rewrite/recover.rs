//! Recovery without stores: [`Op::Recover`](kiln_ir::Op::Recover) checks only the inputs that can fail.
//!
//! Gradients can then be computed and used in one kernel, although all of them depend on the flag. If an op failed, the
//! engine [selects past the poison](kiln_ir::Machine::host_errors). Running out of memory is not covered: it poisons
//! the values whose allocation failed, including new values.

use super::Rewritten;
use crate::plan::Structure;
use crate::record::{Entry, Source};
use alloc::vec::Vec;
use kiln_ir::{FAILS, FAILS_BY_INDEX, Op, TensorType};
use smallvec::SmallVec;

/// Replaces the results of recoveries by their operands, if no other consumer can observe the difference.
pub(super) fn narrowed(original: &Structure) -> Rewritten {
    let mut out = Rewritten::new(&original.externals);
    let mut places: Vec<u32> = Vec::new();
    let mut graph = Graph { structure: original, makers: Vec::new(), types: Vec::new() };
    for (number, entry) in original.entries.iter().enumerate() {
        let first = places.len();
        let results = entry.results.len();
        if let Op::Recover { watched } = entry.op {
            let split = graph.split(entry, watched, first);
            let mut seen: SmallVec<[(Option<usize>, bool); 4]> = SmallVec::new();
            let mut types: SmallVec<[TensorType; 1]> = SmallVec::new();
            let mut at = out.originals.len() as u32;
            for place in 0..results {
                let is_flag = place + 2 >= results;
                if is_flag || split.kept.contains(&place) {
                    seen.push((Some(first + place), original.alive[first + place]));
                    types.push(entry.results[place]);
                    places.push(at);
                    at += 1;
                } else if let Source::Result(result) = entry.operands[place] {
                    places.push(places[result as usize]);
                }
            }
            let operands = split.kept.iter().map(|&place| entry.operands[place]);
            let operands = operands.chain(split.sources.iter().copied());
            let operands = operands.map(|source| out.source(source, &places)).collect();
            let op = Op::Recover { watched: split.sources.len() };
            out.add(Entry { op, operands, results: types }, &seen, &mut Vec::new());
        } else {
            let seen: Vec<_> =
                (first..first + results).map(|result| (Some(result), original.alive[result])).collect();
            out.add(out.moved(entry, &places), &seen, &mut places);
        }
        graph.makers.extend(core::iter::repeat_n(number, results));
        graph.types.extend(entry.results.iter().copied());
    }
    out
}

/// The entries so far.
struct Graph<'a> {
    structure: &'a Structure,
    /// The entry that produces each result.
    makers: Vec<usize>,
    types: Vec<TensorType>,
}

/// The operands of a recovery, by their treatment.
struct Split {
    /// The indices of the values that it still recovers.
    kept: SmallVec<[usize; 4]>,
    /// The inputs of the other values that can fail.
    sources: Vec<Source>,
}

impl Graph<'_> {
    fn split(&self, entry: &Entry, watched: usize, first: usize) -> Split {
        let recovered = entry.operands.len() - watched;
        let mut split = Split { kept: SmallVec::new(), sources: Vec::new() };
        let mut seen = alloc::vec![false; self.makers.len()];
        let mut seen_externals = alloc::vec![false; self.structure.externals.len()];
        let mut open = Vec::new();
        for (place, &source) in entry.operands.iter().enumerate() {
            let is_aliased = matches!(source, Source::Result(_)) && place < recovered;
            if place < recovered && (!is_aliased || self.structure.alive[first + place]) {
                split.kept.push(place);
            } else {
                open.push(source);
            }
        }
        while let Some(source) = open.pop() {
            match source {
                Source::External(external) => {
                    if !core::mem::replace(&mut seen_externals[external as usize], true) {
                        split.sources.push(source);
                    }
                }
                Source::Result(result) => {
                    if core::mem::replace(&mut seen[result as usize], true) {
                        continue;
                    }
                    let maker = &self.structure.entries[self.makers[result as usize]];
                    if self.can_fail(maker) {
                        split.sources.push(source);
                    } else {
                        open.extend(maker.operands.iter().copied());
                    }
                }
                Source::Number(_) | Source::Constant(_) => {}
            }
        }
        // In recording order, so that equal recordings have equal plans.
        split.sources.sort_unstable_by_key(|source| match *source {
            Source::External(external) => (0, external),
            Source::Result(result) => (1, result),
            Source::Number(number) => (2, number),
            Source::Constant(_) => (3, 0),
        });
        split
    }

    /// Whether an entry may fail although its operands are valid.
    fn can_fail(&self, entry: &Entry) -> bool {
        if entry.op.is(FAILS) {
            return true;
        }
        let (Op::Take { axis } | Op::Gather { axis } | Op::Put { axis, .. } | Op::Scatter { axis, .. }) =
            entry.op
        else {
            return entry.op.is(FAILS_BY_INDEX);
        };
        let length = self.ty(entry.operands[0]).map(|ty| ty.shape[axis]);
        !length.is_some_and(|length| self.is_checked(entry.operands[1], length))
    }

    /// Whether all entries of an index are known to be below a length, since it is a view of a checked index.
    fn is_checked(&self, index: Source, length: usize) -> bool {
        let mut source = index;
        while let Source::Result(result) = source {
            let maker = &self.structure.entries[self.makers[result as usize]];
            if let Op::CheckIndex { length: checked, .. } = maker.op {
                return checked <= length;
            }
            if !maker.op.is_view() {
                return false;
            }
            source = maker.operands[0];
        }
        false
    }

    fn ty(&self, source: Source) -> Option<TensorType> {
        match source {
            Source::External(external) => Some(self.structure.externals[external as usize]),
            Source::Result(result) => Some(self.types[result as usize]),
            Source::Number(_) | Source::Constant(_) => None,
        }
    }
}
