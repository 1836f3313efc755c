//! Reduce: many to one.
//!
//! Where the nearest elements are combined with each other, a result is made of *runs* of neighbours; where they
//! belong to different results, whole rows are added to a row of accumulators. Both ways combine short blocks in vectors
//! of the dtype (`f32` for narrower floats) and the blocks in `f64`, always cut at the same places: results are
//! accurate, and the same for any number of threads.

use crate::Cpu;
use crate::array::Array;
use crate::copy::Shared;
use crate::fill;
use crate::isa::{Level, multiversion};
use crate::lane::Lane;
use crate::narrow::Narrow;
use crate::walk::Walk;
use alloc::vec::Vec;
use core::mem::MaybeUninit;
use half::{bf16, f16};
use kiln_ir::{Axes, DType, Element, Operand, Operands, Reduction, Result, TensorType, Values};
use smallvec::smallvec;

/// Elements combined side by side.
const LANES: usize = 32;

/// Elements combined before their sum goes to the total.
const BLOCK: usize = 1024;

/// Elements of a run that one thread combines.
const CHUNK: usize = 1 << 15;

/// Rows added up before their sums go to the totals.
const ROWS: usize = 32;

/// Columns added up side by side.
const COLUMNS: usize = 256;

/// How elements of type `T` combine.
pub(crate) trait Reducer<T>: 'static {
    /// What blocks are combined in.
    type Lane: Copy;
    /// What combined blocks are combined in.
    type Total: Copy + Send;
    fn identity() -> Self::Lane;
    fn load(x: T) -> Self::Lane;
    fn combine(a: Self::Lane, b: Self::Lane) -> Self::Lane;
    fn empty() -> Self::Total;
    fn join(total: Self::Total, block: Self::Lane) -> Self::Total;
    fn merge(a: Self::Total, b: Self::Total) -> Self::Total;
    fn finish(total: Self::Total) -> T;
}

/// Their sum.
pub(crate) struct Sum;
/// Their product.
pub(crate) struct Product;
/// The least; NaN if any is.
pub(crate) struct Least;
/// The greatest; NaN if any is.
pub(crate) struct Greatest;

macro_rules! reducer {
    ($name:ident $ty:ty, $lane:ty, $total:ty, $identity:expr, $combine:ident,
     |$x:ident| $load:expr, |$y:ident| $finish:expr) => {
        impl Reducer<$ty> for $name {
            type Lane = $lane;
            type Total = $total;
            #[inline(always)]
            fn identity() -> $lane {
                $identity
            }
            #[inline(always)]
            fn load($x: $ty) -> $lane {
                $load
            }
            #[inline(always)]
            fn combine(a: $lane, b: $lane) -> $lane {
                Lane::$combine(a, b)
            }
            #[inline(always)]
            fn empty() -> $total {
                $identity as $total
            }
            #[inline(always)]
            fn join(total: $total, block: $lane) -> $total {
                Lane::$combine(total, block as $total)
            }
            #[inline(always)]
            fn merge(a: $total, b: $total) -> $total {
                Lane::$combine(a, b)
            }
            #[inline(always)]
            fn finish($y: $total) -> $ty {
                $finish
            }
        }
    };
}

macro_rules! float_reducers {
    ($($ty:ty, $lane:ty, |$x:ident| $load:expr, |$y:ident| $finish:expr;)*) => {$(
        reducer!(Sum $ty, $lane, f64, 0.0, add, |$x| $load, |$y| $finish);
        // Products leave the range of narrow lanes long before the result does.
        reducer!(Product $ty, f64, f64, 1.0, mul, |$x| f64::from($load), |$y| $finish);
        reducer!(Least $ty, $lane, f64, <$lane>::INFINITY, min, |$x| $load, |$y| $finish);
        reducer!(Greatest $ty, $lane, f64, <$lane>::NEG_INFINITY, max, |$x| $load, |$y| $finish);
    )*};
}

float_reducers! {
    f64, f64, |x| x, |y| y;
    f32, f32, |x| x, |y| y as f32;
    f16, f32, |x| x.widen(), |y| <f16 as Element>::from_f64(y);
    bf16, f32, |x| x.widen(), |y| <bf16 as Element>::from_f64(y);
}

macro_rules! int_reducers {
    ($($ty:ty)*) => {$(
        reducer!(Sum $ty, $ty, $ty, 0, add, |x| x, |y| y);
        reducer!(Product $ty, $ty, $ty, 1, mul, |x| x, |y| y);
        reducer!(Least $ty, $ty, $ty, <$ty>::MAX, min, |x| x, |y| y);
        reducer!(Greatest $ty, $ty, $ty, <$ty>::MIN, max, |x| x, |y| y);
    )*};
}

int_reducers!(i64 i32 i16 i8 u64 u32 u16 u8);

pub(crate) fn reduce(
    cpu: &Cpu,
    reduction: Reduction,
    axes: &Axes,
    inputs: &Operands,
    ty: &TensorType,
) -> Result<Values> {
    let Operand::Value(value) = &inputs[0] else { return Ok(Values::new()) };
    let array = Array::of(value)?;
    if array.num_elements() == 0 {
        return fill::full(cpu, ty, &smallvec![reduction.identity(ty.dtype).into()]);
    }
    let result = Array::uninit(ty)?;
    let job = Job::new(cpu, array, axes, &result);
    match ty.dtype {
        DType::F64 => job.of::<f64, f64>(reduction),
        DType::F32 => job.of::<f32, f32>(reduction),
        DType::F16 => job.of::<f16, f16>(reduction),
        DType::BF16 => job.of::<bf16, bf16>(reduction),
        DType::I64 => job.of::<i64, u64>(reduction),
        DType::I32 => job.of::<i32, u32>(reduction),
        DType::I16 => job.of::<i16, u16>(reduction),
        DType::I8 => job.of::<i8, u8>(reduction),
        DType::U64 => job.of::<u64, u64>(reduction),
        DType::U32 => job.of::<u32, u32>(reduction),
        DType::U16 => job.of::<u16, u16>(reduction),
        DType::U8 | DType::Bool => job.of::<u8, u8>(reduction),
    }
    Ok(smallvec![result.into_value(*ty)])
}

/// One reduction, with the axes that stay and those that go told apart.
struct Job<'a> {
    cpu: &'a Cpu,
    /// Over the results, in their order.
    kept: Walk<1>,
    /// Over the elements of one result, the nearest innermost.
    reduced: Walk<1>,
    source: Shared<u8>,
    target: Shared<u8>,
}

impl<'a> Job<'a> {
    fn new(cpu: &'a Cpu, array: &Array, axes: &Axes, result: &Array) -> Job<'a> {
        let mut outside = array.layout.shape;
        let mut inside = array.layout.shape;
        for axis in 0..outside.rank() {
            if axes.contains(axis) { outside[axis] = 1 } else { inside[axis] = 1 }
        }
        let size = result.buffer.len() / result.num_elements().max(1);
        Job {
            cpu,
            kept: Walk::new(&outside, [array.strides()]),
            reduced: Walk::new(&inside, [array.strides()]).ordered(0),
            source: Shared::new(array.buffer.as_ptr().wrapping_add(array.layout.offset * size)),
            target: Shared::new(result.as_mut_ptr()),
        }
    }

    /// What does not look at the sign is computed in the unsigned type `U`.
    fn of<T: Lane, U: Lane>(&self, reduction: Reduction)
    where
        Sum: Reducer<U>,
        Product: Reducer<U>,
        Least: Reducer<T>,
        Greatest: Reducer<T>,
    {
        match reduction {
            Reduction::Sum => self.run::<U, Sum>(),
            Reduction::Prod => self.run::<U, Product>(),
            Reduction::Min => self.run::<T, Least>(),
            Reduction::Max => self.run::<T, Greatest>(),
        }
    }

    fn run<T: Lane, R: Reducer<T>>(&self) {
        let innermost = |walk: &Walk<1>| match walk.rank.checked_sub(1) {
            Some(last) => walk.strides[last][0].unsigned_abs(),
            None => usize::MAX,
        };
        let across = innermost(&self.kept) == 1 && innermost(&self.reduced) > 1 && self.reduced.rank > 0;
        if across { self.columns::<T, R>() } else { self.runs::<T, R>() }
    }

    /// Each result from runs of its elements.
    #[inline(never)]
    fn runs<T: Lane, R: Reducer<T>>(&self) {
        let mut outer = self.reduced;
        let (length, [stride]) = match outer.rank.checked_sub(1) {
            Some(last) => outer.remove(last),
            None => (1, [1]),
        };
        let (results, runs) = (self.kept.num_elements(), outer.num_elements());
        let source = Shared::new(self.source.get().cast::<T>());
        let target = Shared::new(self.target.get().cast::<T>());
        let grain = CHUNK.div_ceil(length.saturating_mul(runs));
        self.cpu.pool.parallel_for(results, grain, |range| {
            let mut place = self.kept.at(range.start);
            for result in range {
                let mut total = R::empty();
                let mut run = outer.at(0);
                for _ in 0..runs {
                    let first = source.get().wrapping_offset(place.offsets[0] + run.offsets[0]);
                    // SAFETY: a run of the operand's elements.
                    total = R::merge(total, unsafe { self.long_run::<T, R>(first, length, stride) });
                    run.advance(&outer, 1);
                }
                // SAFETY: this thread's result.
                unsafe { *target.get().add(result) = R::finish(total) };
                place.advance(&self.kept, 1);
            }
        });
    }

    /// # Safety
    /// `length` elements from `first` on, `stride` apart, may be read.
    unsafe fn long_run<T: Lane, R: Reducer<T>>(
        &self,
        first: *const T,
        length: usize,
        stride: isize,
    ) -> R::Total {
        if length <= CHUNK {
            // SAFETY: as the caller promises.
            return unsafe { short_run::<T, R>(self.cpu.level, first, length, stride) };
        }
        let chunks = length.div_ceil(CHUNK);
        let mut totals: Vec<R::Total> = alloc::vec![R::empty(); chunks];
        let (first, slots) = (Shared::new(first.cast_mut()), Shared::new(totals.as_mut_ptr()));
        self.cpu.pool.parallel_for(chunks, 1, |range| {
            for chunk in range {
                let start = chunk * CHUNK;
                let from = first.get().wrapping_offset(start as isize * stride);
                // SAFETY: a part of the run, and its slot.
                unsafe {
                    *slots.get().add(chunk) =
                        short_run::<T, R>(self.cpu.level, from, CHUNK.min(length - start), stride);
                }
            }
        });
        totals.into_iter().fold(R::empty(), R::merge)
    }

    /// Rows of neighbours that belong to different results, added up side by side.
    #[inline(never)]
    fn columns<T: Lane, R: Reducer<T>>(&self) {
        let mut outer = self.kept;
        let (width, [step]) = outer.remove(outer.rank - 1);
        let mut groups = self.reduced;
        let (rows, [stride]) = groups.remove(groups.rank - 1);
        let tiles = width.div_ceil(COLUMNS);
        let parts = groups.num_elements() * rows.div_ceil(ROWS);
        // Rows are shared between threads where columns are too few for that.
        let share = (CHUNK / (ROWS * width.min(COLUMNS))).max(1);
        let shares = parts.div_ceil(share);
        let results = outer.num_elements() * tiles;
        let mut totals: Vec<[R::Total; COLUMNS]> = Vec::new();
        if shares > 1 {
            totals.resize(results * shares, [R::empty(); COLUMNS]);
        }
        let slots = Shared::new(totals.as_mut_ptr());
        let grain = if shares > 1 { 1 } else { CHUNK.div_ceil(ROWS * parts * width.min(COLUMNS)) };
        let source = Shared::new(self.source.get().cast::<T>());
        let target = Shared::new(self.target.get().cast::<T>());
        let row_groups = rows.div_ceil(ROWS);
        self.cpu.pool.parallel_for(results * shares, grain, |range| {
            for task in range {
                let (result, part) = (task / shares, task % shares);
                let (place, start) = (outer.at(result / tiles), result % tiles * COLUMNS);
                let columns = COLUMNS.min(width - start);
                let mut total = [R::empty(); COLUMNS];
                for number in part * share..((part + 1) * share).min(parts) {
                    let (group, row) = (groups.at(number / row_groups), number % row_groups * ROWS);
                    let offset =
                        place.offsets[0] + group.offsets[0] + row as isize * stride + start as isize * step;
                    let first = source.get().wrapping_offset(offset);
                    let size = Rows { count: ROWS.min(rows - row), stride, columns, step };
                    // SAFETY: rows of the operand.
                    unsafe { add_rows::<T, R>(self.cpu.level, first, size, &mut total) };
                }
                if shares > 1 {
                    // SAFETY: this task's slot.
                    unsafe { *slots.get().add(task) = total };
                } else {
                    // SAFETY: this task's results.
                    unsafe {
                        store::<T, R>(&total, columns, target.get().add(result / tiles * width + start))
                    };
                }
            }
        });
        for result in 0..if shares > 1 { results } else { 0 } {
            let start = result % tiles * COLUMNS;
            let columns = COLUMNS.min(width - start);
            let mut total = [R::empty(); COLUMNS];
            for part in &totals[result * shares..(result + 1) * shares] {
                for column in 0..columns {
                    total[column] = R::merge(total[column], part[column]);
                }
            }
            // SAFETY: results that every thread is done with.
            unsafe { store::<T, R>(&total, columns, target.get().add(result / tiles * width + start)) };
        }
    }
}

/// # Safety
/// `columns` results may be written at `target`.
unsafe fn store<T, R: Reducer<T>>(totals: &[R::Total; COLUMNS], columns: usize, target: *mut T) {
    for (column, total) in totals[..columns].iter().enumerate() {
        // SAFETY: as the caller promises.
        unsafe { *target.add(column) = R::finish(*total) };
    }
}

/// # Safety
/// `length` elements from `first` on, `stride` apart, may be read.
#[inline(never)]
unsafe fn short_run<T: Lane, R: Reducer<T>>(
    level: Level,
    first: *const T,
    length: usize,
    stride: isize,
) -> R::Total {
    if stride == 1 {
        // SAFETY: as the caller promises.
        return combine_neighbours::<T, R>(level, unsafe { core::slice::from_raw_parts(first, length) });
    }
    let mut tile = [MaybeUninit::<T>::uninit(); BLOCK];
    let mut total = R::empty();
    for start in (0..length).step_by(BLOCK) {
        let len = BLOCK.min(length - start);
        for (i, slot) in tile[..len].iter_mut().enumerate() {
            // SAFETY: as the caller promises.
            slot.write(unsafe { *first.offset((start + i) as isize * stride) });
        }
        // SAFETY: just written.
        let block = unsafe { core::slice::from_raw_parts(tile.as_ptr().cast::<T>(), len) };
        total = R::merge(total, combine_neighbours::<T, R>(level, block));
    }
    total
}

/// A stretch of rows: `count` of them, `stride` elements apart, of `columns` elements, `step` (1 or -1) apart.
#[derive(Clone, Copy)]
struct Rows {
    count: usize,
    stride: isize,
    columns: usize,
    step: isize,
}

/// Combines neighbours. Compiled for the instructions of the caller.
#[inline(always)]
pub(crate) fn combine_run<T: Lane, R: Reducer<T>>(x: &[T]) -> R::Total {
    let mut total = R::empty();
    if x.len() < LANES {
        let lane = x.iter().fold(R::identity(), |lane, x| R::combine(lane, R::load(*x)));
        return R::join(total, lane);
    }
    for block in x.chunks(BLOCK) {
        let mut lanes = [R::identity(); LANES];
        let (chunks, rest) = block.as_chunks::<LANES>();
        for chunk in chunks {
            for i in 0..LANES {
                lanes[i] = R::combine(lanes[i], R::load(chunk[i]));
            }
        }
        for (lane, x) in lanes.iter_mut().zip(rest) {
            *lane = R::combine(*lane, R::load(*x));
        }
        let mut width = LANES / 2;
        while width > 0 {
            for i in 0..width {
                lanes[i] = R::combine(lanes[i], lanes[i + width]);
            }
            width /= 2;
        }
        total = R::join(total, lanes[0]);
    }
    total
}

multiversion! {
    /// Combines a run of neighbours.
    fn combine_neighbours[T: Lane, R: Reducer<T>]<T, R> in { T::WIDEST } (x: &[T]) -> R::Total {
        combine_run::<T, R>(x)
    }

    /// Combines each column of up to [`ROWS`] rows and joins it to its total.
    fn combine_rows[T: Lane, R: Reducer<T>]<T, R> in { T::WIDEST } (x: Shared<T>, rows: Rows, totals: &mut [R::Total; COLUMNS]) {
        let mut lanes = [R::identity(); COLUMNS];
        for row in 0..rows.count {
            // SAFETY: `add_rows` promises that the rows may be read.
            let x = unsafe {
                core::slice::from_raw_parts(x.get().offset(row as isize * rows.stride), rows.columns)
            };
            for (lane, x) in lanes.iter_mut().zip(x) {
                *lane = R::combine(*lane, R::load(*x));
            }
        }
        for (total, lane) in totals.iter_mut().zip(&lanes[..rows.columns]) {
            *total = R::join(*total, *lane);
        }
    }
}

/// # Safety
/// The rows may be read.
#[inline(never)]
unsafe fn add_rows<T: Lane, R: Reducer<T>>(
    level: Level,
    first: *const T,
    rows: Rows,
    totals: &mut [R::Total; COLUMNS],
) {
    let x = Shared::new(first.cast_mut());
    if rows.step == 1 {
        return combine_rows::<T, R>(level, x, rows, totals);
    }
    // Flipped: the columns are met from the last to the first.
    let last = Shared::new(x.get().wrapping_offset((rows.columns as isize - 1) * rows.step));
    totals[..rows.columns].reverse();
    combine_rows::<T, R>(level, last, Rows { step: 1, ..rows }, totals);
    totals[..rows.columns].reverse();
}
