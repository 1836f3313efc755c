//! Moves narrowing casts before views, so that wide values are not stored.

use super::Rewritten;
use crate::record::{Entry, Source};
use alloc::vec::Vec;
use kiln_ir::{DType, Op, TensorType};

/// Moves casts to one narrower float from views of a result to the result itself, if all uses are such views. Removes
/// the casts after the views.
pub(super) fn before_views(given: Rewritten) -> Rewritten {
    let wanted = Wanted::of(&given);
    if wanted.roots.iter().all(Option::is_none) {
        return given;
    }
    let mut out = Rewritten::new(&given.structure.externals);
    let mut places: Vec<u32> = Vec::new();
    for entry in &given.structure.entries {
        let first = places.len();
        match wanted.narrow_operand(entry) {
            Some(x) if matches!(entry.op, Op::Cast(_)) => {
                let place = places[x];
                if given.structure.alive[first] {
                    out.structure.alive[place as usize] = true;
                    out.originals[place as usize] = given.originals[first];
                }
                places.push(place);
            }
            Some(x) => {
                let mut narrow = out.moved(entry, &places);
                narrow.results[0].dtype = out.types[places[x] as usize].dtype;
                out.add(narrow, &[(None, false)], &mut places);
            }
            None => {
                let results = first..first + entry.results.len();
                let seen: Vec<_> =
                    results.clone().map(|r| (given.originals[r], given.structure.alive[r])).collect();
                out.add(out.moved(entry, &places), &seen, &mut places);
                for result in results {
                    let Some(dtype) = wanted.roots[result] else { continue };
                    let (wide, ty) = (places[result], entry.results[result - first]);
                    let ty = TensorType { dtype, ..ty };
                    places[result] = out.push(Op::Cast(dtype), &[Source::Result(wide)], ty, None, false);
                }
            }
        }
    }
    out
}

/// The uses of each result, and the dtype that it is narrowed to.
struct Wanted {
    uses: Vec<Uses>,
    /// The dtype that each result is cast to where it is computed; `None` for most.
    roots: Vec<Option<DType>>,
    /// For each result, whether it is narrowed, or a view of a narrowed result.
    narrow: Vec<bool>,
}

/// The uses of one result.
#[derive(Clone, Copy, Default)]
struct Uses {
    /// The dtype of its casts, directly or through views.
    dtype: Option<DType>,
    casts: usize,
    views: usize,
    /// The number of elements of all its casts.
    elements: usize,
    /// Whether it has other uses.
    is_wide: bool,
}

impl Uses {
    fn add(&mut self, dtype: DType, elements: usize) {
        self.is_wide |= self.dtype.is_some_and(|other| other != dtype);
        self.dtype = Some(dtype);
        self.elements = self.elements.saturating_add(elements);
    }

    /// The dtype of all uses, if there is only one dtype and at most one direct cast. Both of two casts of one value
    /// may be results of the plan.
    fn narrowed(&self) -> Option<DType> {
        self.dtype.filter(|_| !self.is_wide && self.casts <= 1)
    }
}

impl Wanted {
    fn of(given: &Rewritten) -> Wanted {
        let structure = &given.structure;
        let uses: Vec<Uses> =
            structure.alive.iter().map(|&is_wide| Uses { is_wide, ..Uses::default() }).collect();
        let mut wanted = Wanted { uses, roots: Vec::new(), narrow: Vec::new() };
        let mut first = given.types.len();
        for entry in structure.entries.iter().rev() {
            first -= entry.results.len();
            wanted.count(entry, first, &given.types);
        }
        for entry in &structure.entries {
            let of_narrow = wanted.narrow_operand(entry).is_some();
            for ty in &entry.results {
                let uses = &wanted.uses[wanted.narrow.len()];
                let pays = uses.views > 0 && uses.elements >= ty.num_elements();
                let may_be_root = !of_narrow && !entry.op.is_view() && pays;
                let root = uses.narrowed().filter(|_| may_be_root);
                wanted.roots.push(root);
                wanted.narrow.push(root.is_some() || entry.op.is_view() && of_narrow);
            }
        }
        wanted
    }

    /// Counts the uses of an entry's operands. The uses of its own results were counted before.
    fn count(&mut self, entry: &Entry, first: usize, types: &[TensorType]) {
        for operand in &entry.operands {
            let Source::Result(x) = *operand else { continue };
            let ty = types[x as usize];
            let seen = if entry.op.is_view() {
                self.uses[x as usize].views += 1;
                self.uses[first].narrowed().map(|dtype| (dtype, self.uses[first].elements))
            } else if let Op::Cast(dtype) = entry.op
                && is_narrower(dtype, ty.dtype)
            {
                self.uses[x as usize].casts += 1;
                Some((dtype, ty.num_elements()))
            } else {
                None
            };
            let uses = &mut self.uses[x as usize];
            match seen {
                Some((dtype, elements)) => uses.add(dtype, elements),
                None => uses.is_wide = true,
            }
        }
    }

    /// The narrowed result that an entry casts or views.
    fn narrow_operand(&self, entry: &Entry) -> Option<usize> {
        let Some(&Source::Result(x)) = entry.operands.first() else { return None };
        self.narrow[x as usize].then_some(x as usize)
    }
}

fn is_narrower(dtype: DType, than: DType) -> bool {
    dtype.is_float() && than.is_float() && dtype.size() < than.size()
}
