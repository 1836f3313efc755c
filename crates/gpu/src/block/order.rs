//! Block kernels that depend on the order of elements: extremes and positions.

use kiln_ir::{DType, Extremum};
use kiln_kernel::block::{BlockKernel, Buffer, Builder, Expression, Variable, index, select};

/// Threads per block.
const THREADS: usize = 256;

/// Threads that search one part of a line together.
const LANES: usize = 32;

/// The number of parts that a block searches.
pub(crate) const BLOCK_PARTS: usize = THREADS / LANES;

/// A search for the index of the extreme element of each part of each line.
pub(crate) struct Extreme {
    /// Minimum or maximum.
    pub(crate) extremum: Extremum,
    /// The dtype of elements.
    pub(crate) dtype: DType,
    /// The dtype of candidate positions. `None`: all positions are searched.
    pub(crate) candidates: Option<DType>,
    /// The dtype of results.
    pub(crate) found: DType,
    /// Whether one thread searches a part, because neighbouring threads read neighbouring lines.
    pub(crate) columns: bool,
}

/// Lines `[before, length, after]` along the second axis, each of `parts` parts of `each` elements.
struct Lines {
    extremum: Extremum,
    x: Buffer,
    candidates: Option<Buffer>,
    lines: Expression,
    length: Expression,
    after: Expression,
    count: Expression,
    each: Expression,
}

/// A part of a line.
struct Part<'a> {
    of: &'a Lines,
    line: Expression,
    start: Expression,
    first: Expression,
    end: Expression,
}

/// An element and its position.
struct Found {
    value: Variable,
    at: Variable,
}

/// Searches with one thread per part for columns, else with 32 threads per part, [`BLOCK_PARTS`] parts in a block.
pub(crate) fn extreme(search: &Extreme) -> BlockKernel {
    let k = Builder::new("extreme", THREADS as u32);
    // WGSL does not order booleans.
    let dtype = if search.dtype.is_bool() { DType::U8 } else { search.dtype };
    let x = k.input("x", dtype);
    let candidates = search.candidates.map(|dtype| k.input("candidates", dtype));
    let y = k.output("y", search.found);
    let [lines, length, after] = k.lengths(["lines", "length", "after"]);
    let [count, parts, each] = k.lengths(["count", "parts", "each"]);
    let units = k.bind(&(&lines * &parts));
    let lines = Lines { extremum: search.extremum, x, candidates, lines, length, after, count, each };
    if search.columns {
        k.for_points(&units, |unit| {
            let found = lines.part(&k, &unit).search(&k, &index(0), &index(1));
            k.store(&y, &unit, &found.at.get().cast(search.found));
        });
    } else {
        search_rows(&k, &lines, &y, &units);
    }
    k.finish()
}

/// Searches with 32 threads per part, which combine their results in shared memory.
fn search_rows(k: &Builder, lines: &Lines, y: &Buffer, units: &Expression) {
    let thread = k.bind(&k.thread());
    let lane = k.bind(&(&thread % index(LANES)));
    let unit = k.bind(&(k.block() * index(BLOCK_PARTS) + &thread / index(LANES)));
    // Threads without a part search the last one: barriers need all threads.
    let part = lines.part(k, &unit.min(&(units - index(1))));
    let best = part.search(k, &lane, &index(LANES));
    let values = k.shared(lines.x.dtype(), THREADS);
    let places = k.shared_indices(THREADS);
    let share = || {
        k.put(&values, &thread, &best.value.get());
        k.put(&places, &thread, &best.at.get());
    };
    share();
    k.barrier();
    let mut distance = LANES / 2;
    while distance > 0 {
        k.when(&lane.lt(&index(distance)), || {
            let other = k.bind(&(&thread + index(distance)));
            let (value, at) = (k.bind(&values.at(&other)), k.bind(&places.at(&other)));
            lines.update(k, &best, &value, &at);
            share();
        });
        k.barrier();
        distance /= 2;
    }
    let is_first = lane.eq(&index(0)) & unit.lt(units);
    k.when(&is_first, || k.store(y, &unit, &best.at.get().cast(y.dtype())));
}

impl Lines {
    /// A part by number. Neighbouring parts belong to neighbouring lines.
    fn part(&self, k: &Builder, unit: &Expression) -> Part<'_> {
        let line = k.bind(&(unit % &self.lines));
        let start = k.bind(&(&line / &self.after * &self.length * &self.after + &line % &self.after));
        let first = k.bind(&(unit / &self.lines * &self.each));
        let end = k.bind(&(&first + &self.each).min(&self.count));
        Part { of: self, line, start, first, end }
    }

    /// Keeps the better one of two elements.
    fn update(&self, k: &Builder, best: &Found, value: &Expression, at: &Expression) {
        let wins = self.wins([value, at], [&best.value.get(), &best.at.get()]);
        k.when(&wins, || {
            k.set(&best.value, value);
            k.set(&best.at, at);
        });
    }

    /// Whether an element precedes another one: NaN before numbers, then the extreme, then the lower position.
    fn wins(&self, [x, at]: [&Expression; 2], [best, best_at]: [&Expression; 2]) -> Expression {
        let better = match self.extremum {
            Extremum::Max => x.gt(best),
            Extremum::Min => x.lt(best),
        };
        let is_before = at.lt(best_at);
        let ordered = better | (x.eq(best) & &is_before);
        if !self.x.dtype().is_float() {
            return ordered;
        }
        let (is_nan, best_is_nan) = (x.ne(x), best.ne(best));
        select(&(&is_nan | &best_is_nan), &(&is_nan & (!&best_is_nan | &is_before)), &ordered)
    }
}

impl Part<'_> {
    /// Searches every n-th element from one on. A lane beyond the end uses a copy of the first element.
    fn search(&self, k: &Builder, lane: &Expression, lanes: &Expression) -> Found {
        let own = k.bind(&(&self.first + lane));
        let first = select(&own.lt(&self.end), &own, &self.first);
        let at = k.var(&self.position(&first));
        let best = Found { value: k.var(&self.value(&at.get())), at };
        k.for_range(&(&own + lanes), &self.end, lanes, |j| {
            let at = k.bind(&self.position(&j));
            let value = k.bind(&self.value(&at));
            self.of.update(k, &best, &value, &at);
        });
        best
    }

    /// The position along the line that is searched as number `j`.
    fn position(&self, j: &Expression) -> Expression {
        match &self.of.candidates {
            Some(candidates) => candidates.at(&(j * &self.of.lines + &self.line)).to_index(),
            None => j.clone(),
        }
    }

    fn value(&self, at: &Expression) -> Expression {
        self.of.x.at(&(&self.start + at * &self.of.after))
    }
}

/// The positions at which a running count increases, as coordinates of a tensor of that rank.
pub(crate) fn positions(rank: usize, counts: DType, found: DType) -> BlockKernel {
    let k = Builder::new("positions", THREADS as u32);
    let (counts, y) = (k.input("counts", counts), k.output("y", found));
    let total = k.length("total");
    let extents: Vec<Expression> = (0..rank).map(|axis| k.length(&format!("e{axis}"))).collect();
    k.for_points(&total, |p| {
        let previous = counts.at(&(&p - index(1)).max(&index(0))).to_index();
        let before = k.bind(&select(&p.gt(&index(0)), &previous, &index(0)));
        k.when(&counts.at(&p).to_index().ne(&before), || {
            let mut rest = p.clone();
            for (axis, extent) in extents.iter().enumerate().rev() {
                let place = &before * index(rank) + index(axis);
                k.store(&y, &place, &(&rest % extent).cast(found));
                rest = k.bind(&(&rest / extent));
            }
        });
    });
    k.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::printed::assert_printed;

    const COUNTS: [DType; 2] = [DType::I64, DType::I32];

    fn indices() -> impl Iterator<Item = DType> {
        DType::ALL.into_iter().filter(|dtype| dtype.is_int())
    }

    #[test]
    fn searches_are_printed() {
        for dtype in DType::ALL {
            for found in indices() {
                for candidates in [None, Some(DType::I64), Some(DType::I32)] {
                    let extremum = if found.is_signed_int() { Extremum::Max } else { Extremum::Min };
                    for columns in [false, true] {
                        assert_printed(&extreme(&Extreme { extremum, dtype, candidates, found, columns }));
                    }
                }
            }
        }
    }

    #[test]
    fn positions_are_printed() {
        for found in indices() {
            for rank in 1..=6 {
                COUNTS.iter().for_each(|&counts| assert_printed(&positions(rank, counts, found)));
            }
        }
    }

    #[test]
    fn a_search_of_all_positions_has_no_candidates() {
        let names = |candidates| -> Vec<String> {
            let search = Extreme {
                extremum: Extremum::Max,
                dtype: DType::F32,
                candidates,
                found: DType::I32,
                columns: false,
            };
            extreme(&search).params.into_iter().map(|param| param.name).collect()
        };
        let sizes = ["lines", "length", "after", "count", "parts", "each"];
        assert_eq!(names(None)[..2], ["x", "y"]);
        assert_eq!(names(None)[2..], sizes);
        assert_eq!(names(Some(DType::I32))[..3], ["x", "candidates", "y"]);
        assert_eq!(names(Some(DType::I32))[3..], sizes);
    }
}
