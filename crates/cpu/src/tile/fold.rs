//! Reductions of tiles: into one total per row, or row by row into one total per column, in the
//! [order](crate::reduce::order) of the op alone.

use crate::isa::{Level, multiversion};
use crate::lane::Lane;
use crate::reduce::order::{BLOCK, Blocks, LANES, combine_part, combine_run};
use crate::reduce::{Max, Min, Product, Reducer, Sum};
use core::mem::MaybeUninit;
use kiln_ir::{DType, Reduction};

/// The loops of one reduction of one dtype. Pointers refer to elements (`x`, `y`), partial results (`partial`) and
/// totals.
#[derive(Clone, Copy)]
pub(super) struct Folding {
    /// Bytes of a total.
    pub(super) total: usize,
    /// Bytes of a partial result.
    pub(super) partial: usize,
    /// `(totals, n)`: initializes totals with the identity.
    pub(super) empty: unsafe fn(*mut u8, usize),
    /// `(level, x, rows, columns, totals)`: writes the total of each whole row.
    pub(super) rows: unsafe fn(Level, *const u8, usize, usize, *mut u8),
    /// `(level, x, part, lanes, total)`: combines a part of a row with its total, with the lanes of its block.
    pub(super) part: unsafe fn(Level, *const u8, Part, *mut u8, *mut u8),
    /// `(level, x, part, lanes, blocks)`: writes the results of a part's blocks. The first part of a task starts with a
    /// block.
    pub(super) blocks: unsafe fn(Level, *const u8, Part, *mut u8, *mut u8),
    /// `(blocks, n, total)`: adds the results of blocks to a total, one after another.
    pub(super) add_blocks: unsafe fn(*const u8, usize, *mut u8),
    /// `(totals, y, n)`: writes the results of the totals.
    pub(super) finish: unsafe fn(*const u8, *mut u8, usize),
    /// `(partial, n)`: initializes partial results with the identity.
    pub(super) clear: unsafe fn(*mut u8, usize),
    /// `(level, x, partial, n)`: combines elements with partial results, side by side.
    pub(super) accumulate: unsafe fn(Level, *const u8, *mut u8, usize),
    /// `(into, from, n)`: combines partial results with others.
    pub(super) combine: unsafe fn(Level, *mut u8, *const u8, usize),
    /// `(level, partial, totals, n)`: combines partial results with totals.
    pub(super) join: unsafe fn(Level, *const u8, *mut u8, usize),
}

/// A part of a row: its first element, and the lengths of the part and of the row.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) at: usize,
    pub(super) count: usize,
    pub(super) length: usize,
}

/// The loops for a register dtype.
///
/// # Panics
/// For 16-bit floats, which registers do not store.
pub(super) fn folding(reduction: Reduction, dtype: DType) -> Folding {
    match dtype {
        DType::F64 => of::<f64, f64>(reduction),
        DType::F32 => of::<f32, f32>(reduction),
        DType::F16 | DType::BF16 => unreachable!("16-bit floats are computed in f32"),
        DType::I64 => of::<i64, u64>(reduction),
        DType::I32 => of::<i32, u32>(reduction),
        DType::I16 => of::<i16, u16>(reduction),
        DType::I8 => of::<i8, u8>(reduction),
        DType::U64 => of::<u64, u64>(reduction),
        DType::U32 => of::<u32, u32>(reduction),
        DType::U16 => of::<u16, u16>(reduction),
        DType::U8 | DType::Bool => of::<u8, u8>(reduction),
    }
}

/// Sign-independent reductions are computed in the unsigned type `U`.
fn of<T: Lane, U: Lane>(reduction: Reduction) -> Folding
where
    Sum: Reducer<U>,
    Product: Reducer<U>,
    Min: Reducer<T>,
    Max: Reducer<T>,
{
    match reduction {
        Reduction::Sum => loops::<U, Sum>(),
        Reduction::Prod => loops::<U, Product>(),
        Reduction::Min => loops::<T, Min>(),
        Reduction::Max => loops::<T, Max>(),
    }
}

fn loops<T: Lane, R: Reducer<T>>() -> Folding {
    Folding {
        total: size_of::<R::Total>(),
        partial: size_of::<R::Lane>(),
        empty: empty::<T, R>,
        rows: rows::<T, R>,
        part: part::<T, R>,
        blocks: blocks::<T, R>,
        add_blocks: add_blocks::<T, R>,
        finish: finish::<T, R>,
        clear: clear::<T, R>,
        accumulate: accumulate::<T, R>,
        combine: combine::<T, R>,
        join: join::<T, R>,
    }
}

unsafe fn empty<T, R: Reducer<T>>(totals: *mut u8, n: usize) {
    // SAFETY: as `Folding` says.
    let totals = unsafe { core::slice::from_raw_parts_mut(totals.cast::<MaybeUninit<R::Total>>(), n) };
    totals.fill(MaybeUninit::new(R::empty()));
}

unsafe fn rows<T: Lane, R: Reducer<T>>(
    level: Level,
    x: *const u8,
    rows: usize,
    columns: usize,
    totals: *mut u8,
) {
    // SAFETY: as `Folding` says.
    let (x, totals) = unsafe {
        (
            core::slice::from_raw_parts(x.cast::<T>(), rows * columns),
            core::slice::from_raw_parts_mut(totals.cast::<R::Total>(), rows),
        )
    };
    each_row::<T, R>(level, x, columns, totals);
}

unsafe fn part<T: Lane, R: Reducer<T>>(
    level: Level,
    x: *const u8,
    part: Part,
    lanes: *mut u8,
    total: *mut u8,
) {
    // SAFETY: as `Folding` says.
    let total = unsafe { &mut *total.cast::<R::Total>() };
    // SAFETY: as `Folding` says.
    unsafe { part_into::<T, R>(level, x, part, lanes, &mut Blocks::Joined(total)) };
}

unsafe fn blocks<T: Lane, R: Reducer<T>>(
    level: Level,
    x: *const u8,
    part: Part,
    lanes: *mut u8,
    blocks: *mut u8,
) {
    // The block that a part ends is the one of its last element.
    let (first, end) = (part.at / BLOCK, part.at + part.count);
    let done = if end == part.length { end.div_ceil(BLOCK) } else { end / BLOCK };
    // SAFETY: as `Folding` says.
    let slots = unsafe { core::slice::from_raw_parts_mut(blocks.cast::<R::Lane>().add(first), done - first) };
    // SAFETY: as `Folding` says.
    unsafe { part_into::<T, R>(level, x, part, lanes, &mut Blocks::Kept(slots)) };
}

unsafe fn part_into<T: Lane, R: Reducer<T>>(
    level: Level,
    x: *const u8,
    part: Part,
    lanes: *mut u8,
    blocks: &mut Blocks<'_, T, R>,
) {
    // SAFETY: as `Folding` says.
    let (x, lanes) = unsafe {
        (core::slice::from_raw_parts(x.cast::<T>(), part.count), &mut *lanes.cast::<[R::Lane; LANES]>())
    };
    combine_part::<T, R>(level, x, part.at, part.length, lanes, blocks);
}

unsafe fn add_blocks<T, R: Reducer<T>>(blocks: *const u8, n: usize, total: *mut u8) {
    // SAFETY: as `Folding` says.
    let (blocks, total) =
        unsafe { (core::slice::from_raw_parts(blocks.cast::<R::Lane>(), n), &mut *total.cast::<R::Total>()) };
    *total = blocks.iter().fold(*total, |total, &block| R::join(total, block));
}

unsafe fn finish<T, R: Reducer<T>>(totals: *const u8, y: *mut u8, n: usize) {
    for i in 0..n {
        // SAFETY: as `Folding` says.
        unsafe { *y.cast::<T>().add(i) = R::finish(*totals.cast::<R::Total>().add(i)) };
    }
}

unsafe fn clear<T, R: Reducer<T>>(partial: *mut u8, n: usize) {
    // SAFETY: as `Folding` says.
    let partial = unsafe { core::slice::from_raw_parts_mut(partial.cast::<MaybeUninit<R::Lane>>(), n) };
    partial.fill(MaybeUninit::new(R::identity()));
}

unsafe fn accumulate<T: Lane, R: Reducer<T>>(level: Level, x: *const u8, partial: *mut u8, n: usize) {
    // SAFETY: as `Folding` says.
    let (x, partial) = unsafe {
        (
            core::slice::from_raw_parts(x.cast::<T>(), n),
            core::slice::from_raw_parts_mut(partial.cast::<R::Lane>(), n),
        )
    };
    each_column::<T, R>(level, x, partial);
}

unsafe fn combine<T: Lane, R: Reducer<T>>(level: Level, into: *mut u8, from: *const u8, n: usize) {
    // SAFETY: as `Folding` says.
    let (into, from) = unsafe {
        (
            core::slice::from_raw_parts_mut(into.cast::<R::Lane>(), n),
            core::slice::from_raw_parts(from.cast::<R::Lane>(), n),
        )
    };
    each_pair::<T, R>(level, into, from);
}

unsafe fn join<T: Lane, R: Reducer<T>>(level: Level, partial: *const u8, totals: *mut u8, n: usize) {
    // SAFETY: as `Folding` says.
    let (partial, totals) = unsafe {
        (
            core::slice::from_raw_parts(partial.cast::<R::Lane>(), n),
            core::slice::from_raw_parts_mut(totals.cast::<R::Total>(), n),
        )
    };
    each_total::<T, R>(level, partial, totals);
}

multiversion! {
    fn each_row[T: Lane, R: Reducer<T>]<T, R> in { T::WIDEST } (x: &[T], columns: usize, totals: &mut [R::Total]) {
        for (row, total) in x.chunks_exact(columns).zip(totals) {
            *total = combine_run::<T, R>(row);
        }
    }

    fn each_column[T: Lane, R: Reducer<T>]<T, R> in { T::WIDEST } (x: &[T], partial: &mut [R::Lane]) {
        for (partial, x) in partial.iter_mut().zip(x) {
            *partial = R::combine(*partial, R::load(*x));
        }
    }

    fn each_pair[T: Lane, R: Reducer<T>]<T, R> in { T::WIDEST } (into: &mut [R::Lane], from: &[R::Lane]) {
        for (into, from) in into.iter_mut().zip(from) {
            *into = R::combine(*into, *from);
        }
    }

    fn each_total[T: Lane, R: Reducer<T>]<T, R> in { T::WIDEST } (partial: &[R::Lane], totals: &mut [R::Total]) {
        for (total, partial) in totals.iter_mut().zip(partial) {
            *total = R::join(*total, *partial);
        }
    }
}
