//! Argmin and argmax: the index of the extreme element of each line.

use super::key::{Key, Ordered};
use super::lines::{Lines, TILE, Tile};
use crate::Cpu;
use crate::array::Array;
use crate::contraction::tensor;
use crate::copy::Shared;
use crate::index::store_index;
use crate::isa::multiversion;
use crate::scalar::with_number;
use kiln_ir::{DType, Extremum, Operands, Result, TensorType, Values};
use smallvec::smallvec;

/// Elements per block, whose extreme is found before its index is.
const BLOCK: usize = 512;

/// Elements that are ranked side by side.
const LANES: usize = 32;

/// Elements of a single line per task.
const PART: usize = 1 << 15;

pub(crate) fn arg_reduce(
    cpu: &Cpu,
    extremum: Extremum,
    axis: usize,
    index: DType,
    inputs: Operands,
) -> Result<Values> {
    let (x, ty) = tensor(&inputs, 0)?;
    let result_ty = TensorType::new(ty.shape.with(axis, 1), index);
    let result = Array::uninit(&result_ty)?;
    if ty.num_elements() > 0 {
        let search = Search {
            cpu,
            lines: Lines::new(&ty.shape, axis, [x.strides(), result.strides()]),
            target: Shared::new(result.as_mut_ptr()),
            size: index.size(),
        };
        // SAFETY: the lines are those of `x` and of the result, which is fresh.
        with_number!(ty.dtype, T => unsafe {
            match extremum {
                Extremum::Min => search.run::<T, Min>(x.as_ptr()),
                Extremum::Max => search.run::<T, Max>(x.as_ptr()),
            }
        });
    }
    Ok(smallvec![result.into_value(result_ty)])
}

/// The direction of the extreme: the element with the greatest rank.
trait Extreme {
    fn rank<T: Ordered>(x: T) -> T::Key;
}

struct Min;
struct Max;

impl Extreme for Max {
    #[inline(always)]
    fn rank<T: Ordered>(x: T) -> T::Key {
        x.key()
    }
}

impl Extreme for Min {
    #[inline(always)]
    fn rank<T: Ordered>(x: T) -> T::Key {
        let rank = x.key().complement();
        if x.is_nan() { T::Key::MAX } else { rank }
    }
}

/// The greatest rank of the elements, or `least` if all are less.
#[inline(always)]
fn greatest_rank<T: Ordered, E: Extreme>(x: &[T], least: T::Key) -> T::Key {
    let Some(last) = x.last_chunk::<LANES>() else { return greatest_rank_of_few::<T, E>(x, least) };
    let mut ranks = [least; LANES];
    for chunk in x.as_chunks::<LANES>().0 {
        rank_all::<T, E>(&mut ranks, chunk);
    }
    // It overlaps the chunk before it, unless the length is a multiple.
    rank_all::<T, E>(&mut ranks, last);
    greatest(&ranks)
}

/// The greatest of all lanes. Not inlined: the compiler would unroll it in each caller.
#[inline(never)]
fn greatest<K: Ord + Copy>(ranks: &[K; LANES]) -> K {
    ranks.iter().fold(ranks[0], |best, &rank| best.max(rank))
}

/// Replaces the ranks that are less than those of a chunk.
#[inline(always)]
fn rank_all<T: Ordered, E: Extreme>(ranks: &mut [T::Key; LANES], chunk: &[T; LANES]) {
    for lane in 0..LANES {
        let rank = E::rank(chunk[lane]);
        ranks[lane] = if rank > ranks[lane] { rank } else { ranks[lane] };
    }
}

/// As [`greatest_rank`], one element after another.
#[inline(never)]
fn greatest_rank_of_few<T: Ordered, E: Extreme>(x: &[T], least: T::Key) -> T::Key {
    x.iter().fold(least, |best, &x| Ord::max(best, E::rank(x)))
}

multiversion! {
    /// The first element (of at least one) with the greatest rank, block by block: only one block is searched for its
    /// index.
    fn first_extreme[T: Ordered, E: Extreme]<T, E> in { T::WIDEST } (x: &[T]) -> usize {
        let mut best = E::rank(x[0]);
        let mut start = 0;
        for (i, block) in x.chunks(BLOCK).enumerate() {
            let rank = greatest_rank::<T, E>(block, best);
            if rank > best {
                (best, start) = (rank, i * BLOCK);
            }
        }
        while x.len() - start > LANES && greatest_rank::<T, E>(&x[start..start + LANES], T::Key::MIN) != best {
            start += LANES;
        }
        let found = x[start..].iter().position(|&x| E::rank(x) == best);
        start + found.unwrap_or(0)
    }
}

/// Some adjacent lines of that length.
struct Table<T> {
    x: *const T,
    len: usize,
    along: isize,
    across: isize,
}

impl<T: Ordered> Table<T> {
    /// The greatest ranks of the first `TILE` lines among some rows, and the first rows that attain them; both as keys.
    ///
    /// # Safety
    /// The rows exist, fewer than keys can count, and adjacent lines have distance 1.
    #[inline(always)]
    unsafe fn block<E: Extreme>(&self, start: usize, rows: usize) -> [[T::Key; TILE]; 2] {
        let (mut ranks, mut places) = ([T::Key::MIN; TILE], [T::Key::MIN; TILE]);
        for row in 0..rows {
            // SAFETY: as the caller promises.
            let x = unsafe {
                let x = self.x.offset((start + row) as isize * self.along);
                x.cast::<[T; TILE]>().read_unaligned()
            };
            let place = T::Key::from_place(row);
            for line in 0..TILE {
                let rank = E::rank(x[line]);
                let is_beyond = rank > ranks[line];
                ranks[line] = if is_beyond { rank } else { ranks[line] };
                places[line] = if is_beyond { place } else { places[line] };
            }
        }
        [ranks, places]
    }
}

multiversion! {
    /// The index of the extreme of each line, and its rank.
    fn extremes_across[T: Ordered, E: Extreme]<T, E> in { T::WIDEST } (
        table: &Table<T>,
        best: &mut [(usize, T::Key)],
    ) {
        if best.len() == TILE && table.across == 1 {
            let most = if T::Key::BITS < 16 { 1 << 8 } else { 1 << 16 };
            for start in (0..table.len).step_by(most) {
                // SAFETY: the creator of the table guarantees its elements.
                let [ranks, places] = unsafe { table.block::<E>(start, most.min(table.len - start)) };
                for (line, best) in best.iter_mut().enumerate() {
                    if ranks[line] > best.1 {
                        *best = (start + places[line].wide() as usize, ranks[line]);
                    }
                }
            }
            return;
        }
        for row in 0..table.len {
            for (line, best) in best.iter_mut().enumerate() {
                let offset = row as isize * table.along + line as isize * table.across;
                // SAFETY: as above.
                let rank = E::rank(unsafe { *table.x.offset(offset) });
                if rank > best.1 {
                    *best = (row, rank);
                }
            }
        }
    }
}

struct Search<'a> {
    cpu: &'a Cpu,
    lines: Lines<2>,
    target: Shared<u8>,
    /// Bytes per index.
    size: usize,
}

impl Search<'_> {
    /// # Safety
    /// The lines stay within `x` and the target, which nothing else accesses, and are not empty.
    unsafe fn run<T: Ordered, E: Extreme>(&self, x: *const T) {
        let (lines, source) = (&self.lines, Shared::new(x.cast_mut()));
        let is_contiguous = lines.along[0] == 1 || lines.len == 1;
        if is_contiguous && lines.count() == 1 && lines.len > PART {
            // SAFETY: as the caller promises.
            return unsafe { self.one_line::<T, E>(source) };
        }
        lines.for_each(&self.cpu.pool, &|tile| {
            let x = source.get().cast_const();
            // SAFETY: as the caller promises.
            unsafe {
                if lines.is_across() {
                    return self.across::<T, E>(x, tile);
                }
                for line in 0..tile.count {
                    let [from, to] = tile.line(line);
                    let best = if is_contiguous {
                        let x = core::slice::from_raw_parts(x.offset(from), lines.len);
                        first_extreme::<T, E>(self.cpu.level, x)
                    } else {
                        self.strided::<T, E>(x.offset(from))
                    };
                    store_index(self.target.get(), self.size, to, best);
                }
            }
        });
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn strided<T: Ordered, E: Extreme>(&self, x: *const T) -> usize {
        // SAFETY: as the caller promises.
        let rank = |i: usize| unsafe { E::rank(*x.offset(i as isize * self.lines.along[0])) };
        let mut best = (rank(0), 0);
        for i in 1..self.lines.len {
            let rank = rank(i);
            if rank > best.0 {
                best = (rank, i);
            }
        }
        best.1
    }

    /// Searches adjacent lines side by side.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn across<T: Ordered, E: Extreme>(&self, x: *const T, tile: Tile<2>) {
        let mut best = [(0usize, T::Key::MIN); TILE];
        let table = Table {
            x: x.wrapping_offset(tile.start[0]),
            len: self.lines.len,
            along: self.lines.along[0],
            across: tile.across[0],
        };
        extremes_across::<T, E>(self.cpu.level, &table, &mut best[..tile.count]);
        for (line, &(place, _)) in best[..tile.count].iter().enumerate() {
            // SAFETY: as the caller promises.
            unsafe { store_index(self.target.get(), self.size, tile.line(line)[1], place) };
        }
    }

    /// Searches one long line, in parts.
    ///
    /// # Safety
    /// As [`run`](Self::run); the line is contiguous.
    unsafe fn one_line<T: Ordered, E: Extreme>(&self, x: Shared<T>) {
        let len = self.lines.len;
        let mut best = alloc::vec![0usize; len.div_ceil(PART)];
        let slots = Shared::new(best.as_mut_ptr());
        self.cpu.pool.parallel_for(best.len(), 1, |range| {
            for part in range {
                let start = part * PART;
                // SAFETY: a part of the line; each part has its own slot.
                unsafe {
                    let elements =
                        core::slice::from_raw_parts(x.get().add(start).cast_const(), PART.min(len - start));
                    *slots.get().add(part) = start + first_extreme::<T, E>(self.cpu.level, elements);
                }
            }
        });
        // SAFETY: positions in the line.
        let rank = |place: usize| unsafe { E::rank(*x.get().add(place)) };
        let first = best.into_iter().reduce(|best, next| if rank(next) > rank(best) { next } else { best });
        // SAFETY: as the caller promises.
        unsafe { store_index(self.target.get(), self.size, 0, first.unwrap_or(0)) };
    }
}
