//! Reductions.
//!
//! If the contiguous elements belong to one result, it is computed from *runs* of neighbours. If they belong to
//! different results, whole rows are added to a row of accumulators. Both ways combine short blocks in vectors of the
//! dtype (`f32` for narrower floats) and the blocks in `f64`, with fixed boundaries. Results are therefore accurate,
//! and the same for any number of threads.

use crate::Cpu;
use crate::array::Array;
use crate::contraction::scratch::{Plain, Scratch};
use crate::copy::Shared;
use crate::fill;
use crate::half_float::HalfFloat;
use crate::isa::{Level, multiversion};
use crate::lane::Lane;
use crate::walk::Walk;
use alloc::vec::Vec;
use core::mem::MaybeUninit;
use half::{bf16, f16};
use kiln_ir::{Axes, DType, Element, Operand, Operands, Reduction, Result, TensorType, Values};
use smallvec::smallvec;

/// Elements combined side by side.
const LANES: usize = 32;

/// Elements combined before their sum is added to the total.
const BLOCK: usize = 1024;

/// Elements of a run per task.
const CHUNK: usize = 1 << 15;

/// Rows added up before their sums are added to the totals.
const ROWS: usize = 32;

/// Rows added in one pass over their accumulators.
const SIDE: usize = 8;

/// Bytes of the accumulators of columns that are added side by side: as many as the L1 cache holds beside the rows,
/// since rows are far apart.
const ACCUMULATORS: usize = 16 << 10;

/// The minimum number of tasks of a column reduction, if there is enough work.
const COLUMN_TASKS: usize = 32;

/// Columns per task that merges shares.
const MERGED: usize = 256;

/// A reduction of elements of type `T`.
pub(crate) trait Reducer<T>: 'static {
    /// The accumulator type within a block.
    type Lane: Plain;
    /// The accumulator type across blocks.
    type Total: Plain + Send;
    fn identity() -> Self::Lane;
    fn load(x: T) -> Self::Lane;
    fn combine(a: Self::Lane, b: Self::Lane) -> Self::Lane;
    fn empty() -> Self::Total;
    fn join(total: Self::Total, block: Self::Lane) -> Self::Total;
    fn merge(a: Self::Total, b: Self::Total) -> Self::Total;
    fn finish(total: Self::Total) -> T;
}

/// The sum.
pub(crate) struct Sum;
/// The product.
pub(crate) struct Product;
/// The minimum; NaN if any element is NaN.
pub(crate) struct Min;
/// The maximum; NaN if any element is NaN.
pub(crate) struct Max;

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
        // Products exceed the range of narrow lanes long before the result does.
        reducer!(Product $ty, f64, f64, 1.0, mul, |$x| f64::from($load), |$y| $finish);
        reducer!(Min $ty, $lane, f64, <$lane>::INFINITY, min, |$x| $load, |$y| $finish);
        reducer!(Max $ty, $lane, f64, <$lane>::NEG_INFINITY, max, |$x| $load, |$y| $finish);
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
        reducer!(Min $ty, $ty, $ty, <$ty>::MAX, min, |x| x, |y| y);
        reducer!(Max $ty, $ty, $ty, <$ty>::MIN, max, |x| x, |y| y);
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

/// A reduction, with its kept and reduced axes.
struct Job<'a> {
    cpu: &'a Cpu,
    /// The walk over the results, in their order.
    kept: Walk<1>,
    /// The walk over the elements of one result, the smallest stride innermost.
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

    /// Sign-independent reductions are computed in the unsigned type `U`.
    fn of<T: Lane, U: Lane>(&self, reduction: Reduction)
    where
        Sum: Reducer<U>,
        Product: Reducer<U>,
        Min: Reducer<T>,
        Max: Reducer<T>,
    {
        match reduction {
            Reduction::Sum => self.run::<U, Sum>(),
            Reduction::Prod => self.run::<U, Product>(),
            Reduction::Min => self.run::<T, Min>(),
            Reduction::Max => self.run::<T, Max>(),
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

    /// Computes each result from runs of its elements.
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

    /// Adds rows whose neighbouring elements belong to different results.
    #[inline(never)]
    fn columns<T: Lane, R: Reducer<T>>(&self) {
        let plan = ColumnPlan::new(self.kept, self.reduced, size_of::<R::Lane>());
        let slot_count = if plan.shares > 1 { plan.blocks() * plan.shares } else { 0 };
        let mut slots = Scratch::<R::Total>::new(slot_count * plan.most);
        let slots = Shared::new(slots.as_mut_ptr());
        let source = Shared::new(self.source.get().cast::<T>());
        let target = Shared::new(self.target.get().cast::<T>());
        let work = plan.share * ROWS * plan.most;
        self.cpu.pool.parallel_for(plan.blocks() * plan.shares, CHUNK.div_ceil(work), |tasks| {
            let mut lanes = Scratch::<R::Lane>::new(plan.most);
            let mut own = Scratch::<R::Total>::new(plan.most);
            for task in tasks {
                let block = plan.block(task / plan.shares);
                let totals = if plan.shares > 1 {
                    let slot = slots.get().wrapping_add(task * plan.most);
                    // SAFETY: this task's slot.
                    unsafe { core::slice::from_raw_parts_mut(slot, block.len) }
                } else {
                    &mut own.as_mut_slice()[..block.len]
                };
                totals.fill(R::empty());
                for (offset, count) in plan.rows_of(task % plan.shares) {
                    let first = source.get().wrapping_offset(block.offset + offset);
                    let rows = Rows { count, stride: plan.stride, columns: block.len, step: plan.step };
                    // SAFETY: rows of the operand.
                    unsafe { add_rows::<T, R>(self.cpu.level, first, rows, lanes.as_mut_slice(), totals) };
                }
                if plan.shares == 1 {
                    // SAFETY: this task's results.
                    unsafe { store::<T, R>(totals, target.get().add(block.result)) };
                }
            }
        });
        if plan.shares == 1 {
            return;
        }
        let pieces = plan.most.div_ceil(MERGED);
        let grain = CHUNK.div_ceil(plan.shares * plan.most.min(MERGED));
        self.cpu.pool.parallel_for(plan.blocks() * pieces, grain, |tasks| {
            for task in tasks {
                let (number, start) = (task / pieces, task % pieces * MERGED);
                let block = plan.block(number);
                let len = block.len.saturating_sub(start).min(MERGED);
                let slot = |share: usize| (number * plan.shares + share) * plan.most + start;
                // SAFETY: all shares of these columns are done; their results are this task's.
                unsafe {
                    let of = |share: usize| slots.get().wrapping_add(slot(share));
                    let totals = core::slice::from_raw_parts_mut(of(0), len);
                    for share in 1..plan.shares {
                        let more = core::slice::from_raw_parts(of(share), len);
                        totals.iter_mut().zip(more).for_each(|(total, &x)| *total = R::merge(*total, x));
                    }
                    store::<T, R>(totals, target.get().wrapping_add(block.result + start));
                }
            }
        });
    }
}

/// The split of a column reduction into tasks, which depends on shapes alone: blocks of columns and, if these are few,
/// shares of the rows.
struct ColumnPlan {
    /// The kept axes except the last.
    outer: Walk<1>,
    /// The last kept axis: the number of columns, and their stride.
    width: usize,
    step: isize,
    /// The reduced axes except the innermost.
    groups: Walk<1>,
    /// The innermost reduced axis: the number of rows, and their stride.
    rows: usize,
    stride: isize,
    /// The maximum columns per block.
    most: usize,
    /// Groups of up to [`ROWS`] rows per share, and the number of shares.
    share: usize,
    shares: usize,
}

/// Adjacent columns.
struct ColumnBlock {
    /// The offset of the first column, in the operand, and in the results.
    offset: isize,
    result: usize,
    len: usize,
}

impl ColumnPlan {
    fn new(mut outer: Walk<1>, mut groups: Walk<1>, lane: usize) -> ColumnPlan {
        let (width, [step]) = outer.remove(outer.rank - 1);
        let (rows, [stride]) = groups.remove(groups.rank - 1);
        let most = (ACCUMULATORS / lane).min(width);
        let mut plan = ColumnPlan { outer, width, step, groups, rows, stride, most, share: 1, shares: 1 };
        let stretches = groups.num_elements() * rows.div_ceil(ROWS);
        let shares = COLUMN_TASKS.div_ceil(plan.blocks());
        plan.share = stretches.div_ceil(shares).max(CHUNK.div_ceil(ROWS * most)).min(stretches);
        plan.shares = stretches.div_ceil(plan.share);
        plan
    }

    fn blocks(&self) -> usize {
        self.outer.num_elements() * self.width.div_ceil(self.most)
    }

    fn block(&self, number: usize) -> ColumnBlock {
        let across = self.width.div_ceil(self.most);
        let (place, first) = (number / across, number % across * self.most);
        ColumnBlock {
            offset: self.outer.at(place).offsets[0] + first as isize * self.step,
            result: place * self.width + first,
            len: self.most.min(self.width - first),
        }
    }

    /// The groups of rows of a share: their offsets, and numbers of rows.
    fn rows_of(&self, share: usize) -> impl Iterator<Item = (isize, usize)> {
        let per_group = self.rows.div_ceil(ROWS);
        let end = ((share + 1) * self.share).min(self.groups.num_elements() * per_group);
        (share * self.share..end).map(move |stretch| {
            let (group, row) = (self.groups.at(stretch / per_group), stretch % per_group * ROWS);
            (group.offsets[0] + row as isize * self.stride, ROWS.min(self.rows - row))
        })
    }
}

/// # Safety
/// As many results may be written at `target`.
unsafe fn store<T, R: Reducer<T>>(totals: &[R::Total], target: *mut T) {
    for (column, total) in totals.iter().enumerate() {
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

/// A group of rows: `count` of them with stride `stride`, of `columns` elements with stride `step` (1 or -1).
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
        total = R::join(total, across::<T, R>(&lanes));
    }
    total
}

/// Combines all lanes. Not inlined: its last steps on two lanes each would otherwise make the compiler keep the loop
/// before it in vectors of two.
#[inline(never)]
fn across<T, R: Reducer<T>>(lanes: &[R::Lane; LANES]) -> R::Lane {
    let mut lanes = *lanes;
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = R::combine(lanes[i], lanes[i + width]);
        }
        width /= 2;
    }
    lanes[0]
}

multiversion! {
    /// Combines a run of neighbours.
    fn combine_neighbours[T: Lane, R: Reducer<T>]<T, R> in { T::WIDEST } (x: &[T]) -> R::Total {
        combine_run::<T, R>(x)
    }

    /// Combines each column of rows, and merges it with its total.
    fn combine_rows[T: Lane, R: Reducer<T>]<T, R> in { T::WIDEST } (
        x: Shared<T>,
        rows: Rows,
        lanes: &mut [R::Lane],
        totals: &mut [R::Total],
    ) {
        // SAFETY: `add_rows` promises that the rows may be read.
        let row = |row: usize| unsafe {
            core::slice::from_raw_parts(x.get().offset(row as isize * rows.stride), rows.columns)
        };
        let lanes = &mut lanes[..rows.columns];
        lanes.fill(R::identity());
        let sides = rows.count - rows.count % SIDE;
        for first in (0..sides).step_by(SIDE) {
            let side: [&[T]; SIDE] = core::array::from_fn(|i| row(first + i));
            for (column, lane) in lanes.iter_mut().enumerate() {
                let mut sum = *lane;
                for i in 0..SIDE {
                    sum = R::combine(sum, R::load(side[i][column]));
                }
                *lane = sum;
            }
        }
        for last in sides..rows.count {
            for (lane, x) in lanes.iter_mut().zip(row(last)) {
                *lane = R::combine(*lane, R::load(*x));
            }
        }
        for (total, lane) in totals.iter_mut().zip(&*lanes) {
            *total = R::join(*total, *lane);
        }
    }
}

/// Combines each column of up to [`ROWS`] rows, and merges it with its total. `lanes` is scratch memory for at least as
/// many columns.
///
/// # Safety
/// The rows may be read.
#[inline(never)]
unsafe fn add_rows<T: Lane, R: Reducer<T>>(
    level: Level,
    first: *const T,
    rows: Rows,
    lanes: &mut [R::Lane],
    totals: &mut [R::Total],
) {
    let x = Shared::new(first.cast_mut());
    if rows.step == 1 {
        return combine_rows::<T, R>(level, x, rows, lanes, totals);
    }
    // Flipped: the columns are processed from the last to the first.
    let last = Shared::new(x.get().wrapping_offset((rows.columns as isize - 1) * rows.step));
    totals.reverse();
    combine_rows::<T, R>(level, last, Rows { step: 1, ..rows }, lanes, totals);
    totals.reverse();
}
