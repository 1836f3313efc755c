//! Reductions of tiles: into one total per row, or row by row into one total per column.
//!
//! As in [`reduce`](mod@crate::reduce), short runs are combined in vectors of the dtype, and their results in totals:
//! `f64` for floats.

use crate::isa::{Level, multiversion};
use crate::lane::Lane;
use crate::reduce::{Max, Min, Product, Reducer, Sum, combine_run};
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
    /// `(level, x, rows, columns, totals)`: combines each row with its total.
    pub(super) rows: unsafe fn(Level, *const u8, usize, usize, *mut u8),
    /// `(into, from, n)`: combines totals.
    pub(super) merge: unsafe fn(*mut u8, *const u8, usize),
    /// `(totals, y, n)`: writes the results of the totals.
    pub(super) finish: unsafe fn(*const u8, *mut u8, usize),
    /// `(partial, n)`: initializes partial results with the identity.
    pub(super) clear: unsafe fn(*mut u8, usize),
    /// `(level, x, partial, n)`: combines elements with partial results, side by side.
    pub(super) accumulate: unsafe fn(Level, *const u8, *mut u8, usize),
    /// `(level, partial, totals, n)`: combines partial results with totals.
    pub(super) join: unsafe fn(Level, *const u8, *mut u8, usize),
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
        merge: merge::<T, R>,
        finish: finish::<T, R>,
        clear: clear::<T, R>,
        accumulate: accumulate::<T, R>,
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

unsafe fn merge<T, R: Reducer<T>>(into: *mut u8, from: *const u8, n: usize) {
    for i in 0..n {
        // SAFETY: as `Folding` says.
        unsafe {
            let into = into.cast::<R::Total>().add(i);
            *into = R::merge(*into, *from.cast::<R::Total>().add(i));
        }
    }
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
            *total = R::merge(*total, combine_run::<T, R>(row));
        }
    }

    fn each_column[T: Lane, R: Reducer<T>]<T, R> in { T::WIDEST } (x: &[T], partial: &mut [R::Lane]) {
        for (partial, x) in partial.iter_mut().zip(x) {
            *partial = R::combine(*partial, R::load(*x));
        }
    }

    fn each_total[T: Lane, R: Reducer<T>]<T, R> in { T::WIDEST } (partial: &[R::Lane], totals: &mut [R::Total]) {
        for (total, partial) in totals.iter_mut().zip(partial) {
            *total = R::join(*total, *partial);
        }
    }
}
