//! Reductions.
//!
//! If the contiguous elements belong to one result, it is computed from *runs* of neighbours. If they belong to
//! different results, whole rows are added to a row of accumulators. Both ways, and the tile machine, combine the elements
//! of a result in the same [order], so that results are the same for all layouts, regions and numbers of threads.

pub(crate) mod order;

use crate::Cpu;
use crate::array::Array;
use crate::contraction::scratch::{Plain, Scratch};
use crate::copy::Shared;
use crate::fill;
use crate::half_float::HalfFloat;
use crate::lane::Lane;
use crate::walk::Walk;
use alloc::vec::Vec;
use core::mem::MaybeUninit;
use core::ops::Range;
use half::{bf16, f16};
use kiln_ir::{Axes, DType, Operand, Operands, Reduction, Result, TensorType, Values};
use order::{BLOCK, Blocks, COLUMN_SLOTS, LANES, combine_columns, combine_part};
use smallvec::smallvec;

/// The minimum number of elements per task.
const CHUNK: usize = 1 << 15;

/// Bytes of the accumulators of columns that are added side by side: as many as the L1 cache holds beside the rows,
/// since rows are far apart.
const ACCUMULATORS: usize = 16 << 10;

/// The wanted number of tasks of a column reduction for each thread, if there is enough work, and the minimum columns of
/// each task. More columns read memory in longer pieces.
const TASKS_PER_THREAD: usize = 4;
const MIN_COLUMNS: usize = 64;

/// Columns per task that merges blocks of rows.
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

// Totals of 16-bit floats are rounded to `f32` first, as in registers of the tile machine.
float_reducers! {
    f64, f64, |x| x, |y| y;
    f32, f32, |x| x, |y| y as f32;
    f16, f32, |x| x.widen(), |y| f16::narrow(y as f32);
    bf16, f32, |x| x.widen(), |y| bf16::narrow(y as f32);
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
    /// The walk over the elements of one result, in their order.
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
            reduced: Walk::new(&inside, [array.strides()]),
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
        let (results, length) = (self.kept.num_elements(), self.reduced.num_elements());
        let target = Shared::new(self.target.get().cast::<T>());
        self.cpu.pool.parallel_for(results, CHUNK.div_ceil(length), |range| {
            let mut place = self.kept.at(range.start);
            for result in range {
                let total = match length <= CHUNK {
                    true => self.whole::<T, R>(place.offsets[0], length),
                    false => self.in_parts::<T, R>(place.offsets[0], length),
                };
                // SAFETY: this thread's result.
                unsafe { *target.get().add(result) = R::finish(total) };
                place.advance(&self.kept, 1);
            }
        });
    }

    /// The total of the result at an offset.
    fn whole<T: Lane, R: Reducer<T>>(&self, offset: isize, length: usize) -> R::Total {
        let mut total = R::empty();
        self.part::<T, R>(offset, length, 0..length, &mut Blocks::Joined(&mut total));
        total
    }

    /// As [`whole`](Self::whole), with blocks on several threads.
    fn in_parts<T: Lane, R: Reducer<T>>(&self, offset: isize, length: usize) -> R::Total {
        let mut blocks: Vec<R::Lane> = alloc::vec![R::identity(); length.div_ceil(BLOCK)];
        let slots = Shared::new(blocks.as_mut_ptr());
        self.cpu.pool.parallel_for(blocks.len(), CHUNK / BLOCK, |range| {
            // SAFETY: the slots of this task's blocks.
            let slots = unsafe { core::slice::from_raw_parts_mut(slots.get().add(range.start), range.len()) };
            let part = range.start * BLOCK..(range.end * BLOCK).min(length);
            self.part::<T, R>(offset, length, part, &mut Blocks::Kept(slots));
        });
        blocks.into_iter().fold(R::empty(), R::join)
    }

    /// Combines a part of the elements of the result at an offset. It starts with a block.
    fn part<T: Lane, R: Reducer<T>>(
        &self,
        offset: isize,
        length: usize,
        part: Range<usize>,
        blocks: &mut Blocks<'_, T, R>,
    ) {
        let source = self.source.get().cast::<T>().wrapping_offset(offset);
        let (line, stride) = match self.reduced.rank.checked_sub(1) {
            Some(last) => (self.reduced.lengths[last], self.reduced.strides[last][0]),
            None => (1, 1),
        };
        let level = self.cpu.level;
        let mut lanes = [R::identity(); LANES];
        let mut gathered = [MaybeUninit::<T>::uninit(); BLOCK];
        let mut place = self.reduced.at(part.start);
        let mut at = part.start;
        while at < part.end {
            let rest = line - place.along(self.reduced.rank.saturating_sub(1));
            let first = source.wrapping_offset(place.offsets[0]);
            let count = rest.min(part.end - at).min(if stride == 1 { usize::MAX } else { BLOCK });
            // SAFETY: neighbours among the operand's elements, or copies of these.
            let x = unsafe {
                if stride == 1 {
                    core::slice::from_raw_parts(first, count)
                } else {
                    for (i, slot) in gathered[..count].iter_mut().enumerate() {
                        slot.write(*first.offset(i as isize * stride));
                    }
                    core::slice::from_raw_parts(gathered.as_ptr().cast::<T>(), count)
                }
            };
            combine_part::<T, R>(level, x, at, length, &mut lanes, blocks);
            place.advance(&self.reduced, count);
            at += count;
        }
    }

    /// Adds rows whose neighbouring elements belong to different results.
    #[inline(never)]
    fn columns<T: Lane, R: Reducer<T>>(&self) {
        let tasks = TASKS_PER_THREAD * self.cpu.pool.threads();
        let plan = ColumnPlan::new(self.kept, self.reduced, size_of::<R::Lane>(), tasks);
        let slot_count = if plan.shares > 1 { plan.parts() * plan.blocks } else { 0 };
        let mut slots = Scratch::<R::Lane>::new(slot_count * plan.most);
        let slots = Shared::new(slots.as_mut_ptr());
        let source = Shared::new(self.source.get().cast::<T>());
        let target = Shared::new(self.target.get().cast::<T>());
        let work = plan.share * BLOCK.min(plan.rows) * plan.most;
        self.cpu.pool.parallel_for(plan.parts() * plan.shares, CHUNK.div_ceil(work), |tasks| {
            let mut lanes = Scratch::<R::Lane>::new(COLUMN_SLOTS * plan.most);
            let mut totals = Scratch::<R::Total>::new(plan.most);
            for task in tasks {
                let (number, share) = (task / plan.shares, task % plan.shares);
                let columns = plan.columns(number);
                let lanes = &mut lanes.as_mut_slice()[..COLUMN_SLOTS * columns.len];
                let totals = &mut totals.as_mut_slice()[..columns.len];
                totals.fill(R::empty());
                for block in share * plan.share..((share + 1) * plan.share).min(plan.blocks) {
                    let mut rows = [0; BLOCK];
                    let rows = plan.rows_of(block, &columns, &mut rows);
                    combine_columns::<T, R>(self.cpu.level, source, rows, plan.rows, columns.len, lanes);
                    let block_lanes = &mut lanes[..columns.len];
                    if plan.step < 0 {
                        block_lanes.reverse();
                    }
                    if plan.shares == 1 {
                        totals
                            .iter_mut()
                            .zip(&*block_lanes)
                            .for_each(|(total, &x)| *total = R::join(*total, x));
                    } else {
                        let slot = slots.get().wrapping_add((number * plan.blocks + block) * plan.most);
                        // SAFETY: this task's slot.
                        unsafe { slot.copy_from_nonoverlapping(block_lanes.as_ptr(), columns.len) };
                    }
                }
                if plan.shares == 1 {
                    // SAFETY: this task's results.
                    unsafe { store::<T, R>(totals, target.get().add(columns.result)) };
                }
            }
        });
        if plan.shares == 1 {
            return;
        }
        let pieces = plan.most.div_ceil(MERGED);
        let grain = CHUNK.div_ceil(plan.blocks * plan.most.min(MERGED));
        self.cpu.pool.parallel_for(plan.parts() * pieces, grain, |tasks| {
            let mut totals = [R::empty(); MERGED];
            for task in tasks {
                let (number, start) = (task / pieces, task % pieces * MERGED);
                let columns = plan.columns(number);
                let len = columns.len.saturating_sub(start).min(MERGED);
                let totals = &mut totals[..len];
                totals.fill(R::empty());
                // SAFETY: all blocks of these columns are done; their results are this task's.
                unsafe {
                    for block in 0..plan.blocks {
                        let slot = (number * plan.blocks + block) * plan.most + start;
                        let lanes = core::slice::from_raw_parts(slots.get().wrapping_add(slot), len);
                        totals.iter_mut().zip(lanes).for_each(|(total, &x)| *total = R::join(*total, x));
                    }
                    store::<T, R>(totals, target.get().wrapping_add(columns.result + start));
                }
            }
        });
    }
}

/// The split of a column reduction into tasks: parts of the columns and, if these are few, shares of the blocks of rows.
struct ColumnPlan {
    /// The kept axes except the last.
    outer: Walk<1>,
    /// The last kept axis: the number of columns, and their stride.
    width: usize,
    step: isize,
    /// The reduced axes.
    reduced: Walk<1>,
    /// The number of rows, and of their blocks.
    rows: usize,
    blocks: usize,
    /// The maximum columns per part.
    most: usize,
    /// Blocks of rows per share, and the number of shares.
    share: usize,
    shares: usize,
}

/// Adjacent columns.
struct Columns {
    /// The offset of the first column in memory, and the index of the first result.
    offset: isize,
    result: usize,
    len: usize,
}

impl ColumnPlan {
    fn new(mut outer: Walk<1>, reduced: Walk<1>, lane: usize, tasks: usize) -> ColumnPlan {
        let (width, [step]) = outer.remove(outer.rank - 1);
        let rows = reduced.num_elements();
        let blocks = rows.div_ceil(BLOCK);
        let tasks_of_rows = outer.num_elements() * blocks;
        let narrow = width.div_ceil(tasks.div_ceil(tasks_of_rows)).max(MIN_COLUMNS);
        let most = (ACCUMULATORS / lane).min(narrow).min(width);
        let mut plan = ColumnPlan { outer, width, step, reduced, rows, blocks, most, share: 1, shares: 1 };
        plan.share = blocks.div_ceil(tasks.div_ceil(plan.parts()));
        plan.shares = blocks.div_ceil(plan.share);
        plan
    }

    fn parts(&self) -> usize {
        self.outer.num_elements() * self.width.div_ceil(self.most)
    }

    fn columns(&self, number: usize) -> Columns {
        let across = self.width.div_ceil(self.most);
        let (place, first) = (number / across, number % across * self.most);
        let len = self.most.min(self.width - first);
        // Flipped columns are processed from the last to the first.
        let lowest = if self.step < 0 { first + len - 1 } else { first };
        Columns {
            offset: self.outer.at(place).offsets[0] + lowest as isize * self.step,
            result: place * self.width + first,
            len,
        }
    }

    /// The offsets of the rows of a block.
    fn rows_of<'a>(&self, block: usize, columns: &Columns, rows: &'a mut [isize; BLOCK]) -> &'a [isize] {
        let start = block * BLOCK;
        let rows = &mut rows[..BLOCK.min(self.rows - start)];
        let mut place = self.reduced.at(start);
        for row in rows.iter_mut() {
            *row = columns.offset + place.offsets[0];
            place.advance(&self.reduced, 1);
        }
        rows
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
