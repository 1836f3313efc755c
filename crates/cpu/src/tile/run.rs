//! The scheduler of the tile machine: the order of tiles, and their threads.

use super::code::{Action, Code, Form, SlotKind};
use super::fold::Folding;
use super::frame::{Frame, LaunchState};
use super::layout::COLUMN_TASKS;
use super::space::Access;
use crate::copy::{Shared, stream};
use crate::isa::Level;
use crate::reduce::order::{BLOCK, ColumnStep, LANES, column_steps};
use crate::threads::Pool;
use alloc::vec::Vec;
use core::ops::Range;

/// The minimum work per task, in additions in cache.
const GRAIN: usize = 1 << 16;

/// Blocks of a long row per task.
const BLOCKS_PER_PART: usize = 16;

/// Runs code on its launch.
///
/// # Safety
/// The bases are memory of the kernel's parameters, as large as the code's kernel and launch require. Results have no
/// other writer, and overlap only the inputs that the code was compiled to overwrite.
pub(super) unsafe fn run(pool: &Pool, launched: &LaunchState<'_>) {
    // SAFETY: as the caller promises.
    unsafe {
        match launched.code.form {
            Form::Map => map(pool, launched),
            Form::Rows => rows(pool, launched),
            Form::Parts => parts(pool, launched),
            Form::Columns => columns(pool, launched),
        }
    }
}

/// The minimum elements per task.
fn grain(code: &Code, elements: usize) -> usize {
    GRAIN.div_ceil(code.cost * elements)
}

/// Ends a task: a store fence before other threads read its results.
fn finish(code: &Code) {
    if code.streams {
        stream::fence();
    }
}

unsafe fn map(pool: &Pool, launched: &LaunchState<'_>) {
    let code = launched.code;
    let chunks = code.chunks.count();
    let groups = code.rows.div_ceil(code.group);
    let stage = &code.stages[0];
    pool.parallel_for(groups * chunks, grain(code, code.group * code.chunks.size), |tiles| {
        let mut frame = Frame::new(launched);
        let (mut present, mut spread) = (usize::MAX, 0);
        frame.move_rows(0);
        frame.move_chunk(0);
        // SAFETY: as the caller of `run` promises; tiles of this range are this task's.
        unsafe {
            frame.run(&code.hoisted);
            for tile in tiles {
                let group = tile / chunks;
                if group != present {
                    present = group;
                    frame.move_rows(group);
                    frame.run(&stage.rows);
                    spread = 0;
                }
                frame.move_chunk(tile % chunks);
                // The addresses of row values depend on the rows' length.
                if frame.block.columns != spread {
                    spread = frame.block.columns;
                    frame.run(&stage.spread);
                }
                frame.run_tiles(stage);
            }
        }
        finish(code);
    });
}

unsafe fn rows(pool: &Pool, launched: &LaunchState<'_>) {
    let code = launched.code;
    let chunks = code.chunks.count();
    let groups = code.rows.div_ceil(code.group);
    pool.parallel_for(groups, grain(code, code.group * code.chunks.length), |groups| {
        let mut frame = Frame::new(launched);
        frame.move_rows(0);
        frame.move_chunk(0);
        // SAFETY: as the caller of `run` promises; rows of this range are this task's.
        unsafe {
            frame.run(&code.hoisted);
            for group in groups {
                frame.move_rows(group);
                for (number, stage) in code.stages.iter().enumerate() {
                    frame.run(&stage.rows);
                    frame.empty_totals(number);
                    if stage.tiles.is_empty() {
                        continue;
                    }
                    frame.set_columns(0, code.chunks.size);
                    frame.run(&stage.spread);
                    for chunk in 0..chunks {
                        frame.move_chunk(chunk);
                        frame.run_tiles(stage);
                    }
                }
            }
        }
        finish(code);
    });
}

unsafe fn parts(pool: &Pool, launched: &LaunchState<'_>) {
    let code = launched.code;
    let length = code.chunks.length;
    let blocks = length.div_ceil(BLOCK);
    let tasks = blocks.div_ceil(BLOCKS_PER_PART);
    let mut slots: Vec<f64> = alloc::vec![0.0; blocks * code.folds.len()];
    let slots = Shared::new(slots.as_mut_ptr().cast::<u8>());
    let mut frame = Frame::new(launched);
    frame.blocks = slots.get();
    for row in 0..code.rows {
        frame.set_rows(row, 1);
        for (number, stage) in code.stages.iter().enumerate() {
            // SAFETY: as the caller of `run` promises.
            unsafe {
                frame.run(&stage.rows);
                frame.empty_totals(number);
            }
            if stage.tiles.is_empty() {
                continue;
            }
            let shared = frame.shared();
            pool.parallel_for(tasks, grain(code, BLOCKS_PER_PART * BLOCK), |range| {
                let mut frame = Frame::part(launched, &shared);
                frame.blocks = slots.get();
                let (mut at, end) =
                    (range.start * BLOCKS_PER_PART * BLOCK, range.end * BLOCKS_PER_PART * BLOCK);
                let end = end.min(length);
                // SAFETY: as the caller of `run` promises; the elements of this range are this task's, and so are the slots
                // of their blocks.
                unsafe {
                    frame.run(&code.hoisted);
                    frame.run(&stage.spread);
                    while at < end {
                        let (first, columns) = code.chunks.containing(at);
                        let stop = (first + columns).min(end);
                        frame.set_columns(at, stop - at);
                        frame.run(&stage.tiles);
                        at = stop;
                    }
                }
                finish(code);
            });
            for (fold, _) in code.folds.iter().enumerate().filter(|(_, fold)| fold.stage == number) {
                // SAFETY: every task has finished with its blocks.
                unsafe {
                    (code.folds[fold].loops.add_blocks)(frame.blocks_of(fold), blocks, frame.totals_of(fold));
                }
            }
        }
    }
}

/// The split of a column reduction into tasks.
struct ColumnTasks {
    /// The number of blocks of rows.
    blocks: usize,
    /// The number of parts of these.
    parts: usize,
}

unsafe fn columns(pool: &Pool, launched: &LaunchState<'_>) {
    let code = launched.code;
    let chunks = code.chunks.count();
    let blocks = code.rows.div_ceil(BLOCK);
    let results = code.outer * chunks;
    let block = BLOCK.min(code.rows) * code.chunks.size * code.cost;
    let parts = COLUMN_TASKS.div_ceil(results).clamp(1, blocks);
    let tasks = ColumnTasks { blocks, parts };
    // The results of a block: one row of partial results for each reduction.
    let width = code.chunks.size * size_of::<f64>();
    let slot_bytes = width * code.folds.len();
    let mut slots: Vec<f64> = Vec::new();
    if parts > 1 {
        slots.resize(slot_bytes / size_of::<f64>() * results * blocks, 0.0);
    }
    let slots = Shared::new(slots.as_mut_ptr().cast::<u8>());
    let slot = |result: usize, block: usize, fold: usize| {
        slots.get().wrapping_add((result * blocks + block) * slot_bytes + fold * width)
    };
    let grain = GRAIN.div_ceil(blocks.div_ceil(parts) * block);
    pool.parallel_for(results * parts, grain, |range| {
        let mut frame = Frame::new(launched);
        for task in range {
            let (result, part) = (task / parts, task % parts);
            let columns = code.chunks.at(result % chunks).1;
            // SAFETY: as the caller of `run` promises; the rows of a task are its own, and so are its slots or columns.
            unsafe {
                start_columns(&mut frame, launched, result / chunks, result % chunks);
                for block in tasks.blocks_of(part) {
                    combine_block(&mut frame, launched, block, result % chunks);
                    for (fold, of) in code.folds.iter().enumerate() {
                        let partials = frame.partials_of(fold, 0);
                        if parts > 1 {
                            let bytes = columns * of.loops.partial;
                            slot(result, block, fold).copy_from_nonoverlapping(partials, bytes);
                        } else {
                            (of.loops.join)(launched.level, partials, frame.totals_of(fold), columns);
                        }
                    }
                }
                if parts == 1 {
                    finish_columns(&mut frame, launched, result / chunks, result % chunks);
                }
            }
        }
        finish(code);
    });
    if parts == 1 {
        return;
    }
    pool.parallel_for(results, GRAIN.div_ceil(code.chunks.size * blocks), |range| {
        let mut frame = Frame::new(launched);
        for result in range {
            let columns = code.chunks.at(result % chunks).1;
            // SAFETY: every task has finished with its slots; columns of this range are this task's.
            unsafe {
                for (fold, of) in code.folds.iter().enumerate() {
                    (of.loops.empty)(frame.totals_of(fold), columns);
                    for block in 0..blocks {
                        (of.loops.join)(
                            launched.level,
                            slot(result, block, fold),
                            frame.totals_of(fold),
                            columns,
                        );
                    }
                }
                finish_columns(&mut frame, launched, result / chunks, result % chunks);
            }
        }
        finish(code);
    });
}

impl ColumnTasks {
    /// The blocks of a part.
    fn blocks_of(&self, part: usize) -> Range<usize> {
        let share = self.blocks.div_ceil(self.parts);
        (part * share).min(self.blocks)..((part + 1) * share).min(self.blocks)
    }
}

/// Moves to a chunk of columns, and empties its totals.
///
/// # Safety
/// As [`run`].
unsafe fn start_columns(frame: &mut Frame<'_>, launched: &LaunchState<'_>, outer: usize, chunk: usize) {
    let code = launched.code;
    // SAFETY: as the caller promises.
    unsafe {
        frame.move_outer(outer);
        frame.move_rows(0);
        frame.move_chunk(chunk);
        frame.run(&code.stages[0].rows);
        frame.run(&code.hoisted);
        for (number, fold) in code.folds.iter().enumerate() {
            (fold.loops.empty)(frame.totals_of(number), frame.block.columns);
        }
    }
}

/// Combines a block of rows: the results are in the first row of partial results.
///
/// # Safety
/// As [`run`]; nothing else writes results of these rows.
unsafe fn combine_block(frame: &mut Frame<'_>, launched: &LaunchState<'_>, block: usize, chunk: usize) {
    let code = launched.code;
    let rows = block * BLOCK..((block + 1) * BLOCK).min(code.rows);
    // SAFETY: as the caller promises.
    unsafe {
        if code.group > 1 {
            combine_groups(frame, launched, rows, chunk);
            return;
        }
        for step in column_steps(code.rows) {
            match *step {
                ColumnStep::Rows { first, step, slot } => {
                    frame.column_slot = slot;
                    combine_lane(frame, launched, rows.start + first..rows.end, step, chunk);
                }
                ColumnStep::Combine { into, from } => combine_slots(frame, launched, into, from, 1),
            }
        }
    }
}

/// Combines rows of tiles with several rows: each with the accumulators of its lane, then the lanes.
///
/// # Safety
/// As [`combine_block`].
unsafe fn combine_groups(
    frame: &mut Frame<'_>,
    launched: &LaunchState<'_>,
    rows: Range<usize>,
    chunk: usize,
) {
    let code = launched.code;
    let stage = &code.stages[0];
    // SAFETY: as the caller promises.
    unsafe {
        for (number, fold) in code.folds.iter().enumerate() {
            (fold.loops.clear)(frame.partials_of(number, 0), LANES * frame.block.columns);
        }
        for row in rows.clone().step_by(code.group) {
            frame.set_rows(row, code.group.min(rows.end - row));
            frame.move_chunk(chunk);
            frame.run(&stage.rows);
            frame.run(&stage.spread);
            frame.run(&stage.tiles);
        }
        let mut width = LANES / 2;
        while width > 0 && code.rows >= LANES {
            combine_slots(frame, launched, 0, width, width);
            width /= 2;
        }
    }
}

/// Combines every `step`th row with the accumulators in use.
///
/// # Safety
/// As [`combine_block`].
unsafe fn combine_lane(
    frame: &mut Frame<'_>,
    launched: &LaunchState<'_>,
    rows: Range<usize>,
    step: usize,
    chunk: usize,
) {
    let code = launched.code;
    let (stage, slot, columns) = (&code.stages[0], frame.column_slot, frame.block.columns);
    // SAFETY: as the caller promises.
    unsafe {
        for (number, fold) in code.folds.iter().enumerate() {
            (fold.loops.clear)(frame.partials_of(number, slot), columns);
        }
        let straight = Straight::of(frame, code, chunk);
        for row in rows.step_by(step) {
            if let Some(straight) = &straight {
                straight.accumulate(launched.level, row, step, frame.partials_of(0, slot), columns);
                continue;
            }
            frame.set_rows(row, 1);
            frame.move_chunk(chunk);
            frame.run(&stage.rows);
            frame.run(&stage.spread);
            frame.run(&stage.tiles);
        }
    }
}

/// Combines `count` rows of accumulators with others.
///
/// # Safety
/// As [`combine_block`].
unsafe fn combine_slots(
    frame: &Frame<'_>,
    launched: &LaunchState<'_>,
    into: usize,
    from: usize,
    count: usize,
) {
    for (number, fold) in launched.code.folds.iter().enumerate() {
        let [into, from] = [into, from].map(|slot| frame.partials_of(number, slot));
        // SAFETY: accumulators of the frame.
        unsafe { (fold.loops.combine)(launched.level, into, from, count * frame.block.columns) };
    }
}

/// The rows of a reduction that reads an operand's elements without further computation, most often a sum of gradients.
struct Straight<'a> {
    access: &'a Access,
    /// The pointer to the first row's first element.
    start: *const u8,
    loops: &'a Folding,
}

impl<'a> Straight<'a> {
    /// The prefetch distance in bytes: rows are short and far apart.
    const AHEAD: usize = 8 << 10;

    /// `None` if there is more to compute.
    fn of(frame: &mut Frame<'_>, code: &'a Code, chunk: usize) -> Option<Straight<'a>> {
        let (stage, [fold]) = (&code.stages[0], &code.folds[..]) else { return None };
        let ([], [], [step], 1) = (&stage.rows[..], &stage.spread[..], &stage.tiles[..], code.group) else {
            return None;
        };
        let Action::Fold(_, x) = step.action else { return None };
        let SlotKind::AtTile(param) = code.slots[usize::from(x)] else { return None };
        frame.set_rows(0, 1);
        frame.move_chunk(chunk);
        Some(Straight { access: &code.accesses[param], start: frame.at(x), loops: &fold.loops })
    }

    fn row(&self, row: usize) -> *const u8 {
        self.start.wrapping_offset(self.access.rows.offset(row) * self.access.size as isize)
    }

    /// Accumulates a row into partial results. The next row is `step` rows away.
    ///
    /// # Safety
    /// The row exists, and there are as many partial results as columns.
    unsafe fn accumulate(&self, level: Level, row: usize, step: usize, partials: *mut u8, columns: usize) {
        let bytes = columns * self.access.size;
        let ahead = self.row(row + step * (Straight::AHEAD / bytes.max(1)).clamp(1, 16));
        (0..bytes).step_by(64).for_each(|at| prefetch(ahead.wrapping_add(at)));
        // SAFETY: as the caller promises.
        unsafe { (self.loops.accumulate)(level, self.row(row), partials, columns) };
    }
}

/// Prefetches a cache line, which need not exist.
#[inline(always)]
fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this kind has the instruction, which has no visible effect.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Writes the results that depend on the column totals.
///
/// # Safety
/// As [`run`]; the frame contains the totals, and nothing else writes results of these columns.
unsafe fn finish_columns(frame: &mut Frame<'_>, launched: &LaunchState<'_>, outer: usize, chunk: usize) {
    let code = launched.code;
    // SAFETY: as the caller promises.
    unsafe {
        frame.move_outer(outer);
        frame.set_rows(0, 1);
        frame.move_chunk(chunk);
        frame.run(&code.stages[0].rows);
        frame.run(&code.hoisted);
        let stage = &code.stages[1];
        frame.run(&stage.rows);
        frame.run(&stage.spread);
        frame.run(&stage.tiles);
    }
}
