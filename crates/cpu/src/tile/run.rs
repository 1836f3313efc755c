//! The scheduler of the tile machine: the order of tiles, and their threads.

use super::code::{Action, Code, Form, SlotKind};
use super::fold::Folding;
use super::frame::{Frame, LaunchState};
use super::space::Access;
use crate::copy::{Shared, stream};
use crate::isa::Level;
use crate::threads::Pool;
use alloc::vec::Vec;

/// The minimum work per task, in additions in cache.
const GRAIN: usize = 1 << 16;

/// Rows whose results are combined in vectors of the dtype before they are added to totals.
const ROWS_PER_TOTAL: usize = 32;

/// Chunks of a long row per task.
const CHUNKS_PER_PART: usize = 16;

/// The minimum number of tasks of a column reduction, if there is enough work.
const COLUMN_TASKS: usize = 32;

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
    let chunks = code.chunks.count();
    let tasks = chunks.div_ceil(CHUNKS_PER_PART);
    let words = code.total_bytes.div_ceil(8);
    let mut totals: Vec<u64> = alloc::vec![0; words * tasks];
    let slots = Shared::new(totals.as_mut_ptr());
    let mut frame = Frame::new(launched);
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
            pool.parallel_for(tasks, grain(code, CHUNKS_PER_PART * code.chunks.size), |range| {
                let mut frame = Frame::part(launched, &shared);
                // SAFETY: as the caller of `run` promises; chunks of this range are this task's, and so are its totals.
                unsafe {
                    frame.run(&code.hoisted);
                    frame.run(&stage.spread);
                    for task in range {
                        frame.empty_totals(number);
                        let first = task * CHUNKS_PER_PART;
                        for chunk in first..(first + CHUNKS_PER_PART).min(chunks) {
                            frame.move_chunk(chunk);
                            frame.run(&stage.tiles);
                        }
                        let slot = slots.get().add(task * words).cast::<u8>();
                        slot.copy_from_nonoverlapping(frame.totals, code.total_bytes);
                    }
                }
                finish(code);
            });
            for task in 0..tasks {
                // SAFETY: every task has finished with its totals.
                unsafe { frame.merge_totals(number, slots.get().add(task * words).cast()) };
            }
        }
    }
}

/// The split of a column reduction into tasks. It depends on the launch alone, so results do too.
struct ColumnTasks {
    chunks: usize,
    /// The number of tiles along the rows.
    tiles: usize,
    /// The number of parts of these.
    parts: usize,
}

unsafe fn columns(pool: &Pool, launched: &LaunchState<'_>) {
    let code = launched.code;
    let chunks = code.chunks.count();
    let tiles = code.rows.div_ceil(code.group);
    let results = code.outer * chunks;
    let tile = code.group * code.chunks.size * code.cost;
    let parts = COLUMN_TASKS.div_ceil(results).min((tiles * tile).div_ceil(GRAIN)).clamp(1, tiles);
    let tasks = ColumnTasks { chunks, tiles, parts };
    let words = code.total_bytes.div_ceil(8);
    let mut totals: Vec<u64> = Vec::new();
    if parts > 1 {
        totals.resize(words * results * parts, 0);
    }
    let slots = Shared::new(totals.as_mut_ptr());
    let grain = GRAIN.div_ceil(tiles.div_ceil(parts) * tile);
    pool.parallel_for(results * parts, grain, |range| {
        let mut frame = Frame::new(launched);
        for task in range {
            // SAFETY: as the caller of `run` promises; the rows of a task are its own, and so are its totals or columns.
            unsafe {
                let lanes = down(&mut frame, launched, &tasks, task);
                if parts > 1 {
                    let slot = slots.get().add(task * words).cast::<u8>();
                    slot.copy_from_nonoverlapping(frame.totals, code.total_bytes);
                } else {
                    debug_assert!(lanes > 0);
                    finish_columns(&mut frame, launched, task / chunks, task % chunks);
                }
            }
        }
        finish(code);
    });
    if parts == 1 {
        return;
    }
    pool.parallel_for(results, GRAIN.div_ceil(code.chunks.size * parts * code.cost), |range| {
        let mut frame = Frame::new(launched);
        for result in range {
            // SAFETY: every task has finished with its totals; columns of this range are this task's.
            unsafe {
                let of = |part: usize| slots.get().add((result * parts + part) * words).cast::<u8>();
                frame.totals.copy_from_nonoverlapping(of(0), code.total_bytes);
                let (_, columns) = code.chunks.at(result % chunks);
                for part in 1..parts {
                    for fold in &code.folds {
                        let into = frame.totals.add(fold.total_at);
                        (fold.loops.merge)(into, of(part).add(fold.total_at), columns);
                    }
                }
                finish_columns(&mut frame, launched, result / chunks, result % chunks);
            }
        }
        finish(code);
    });
}

/// Reduces a task's rows into totals of its columns.
///
/// # Safety
/// As [`run`]; nothing else writes results of these rows.
unsafe fn down(frame: &mut Frame<'_>, launched: &LaunchState<'_>, tasks: &ColumnTasks, task: usize) -> usize {
    let code = launched.code;
    let (result, part) = (task / tasks.parts, task % tasks.parts);
    let (outer, chunk) = (result / tasks.chunks, result % tasks.chunks);
    let per_part = tasks.tiles.div_ceil(tasks.parts);
    let stage = &code.stages[0];
    let (_, columns) = code.chunks.at(chunk);
    let lanes = code.group * columns;
    // SAFETY: as the caller promises.
    unsafe {
        frame.move_outer(outer);
        frame.move_rows(0);
        frame.move_chunk(chunk);
        frame.run(&stage.rows);
        frame.run(&code.hoisted);
        for (number, fold) in code.folds.iter().enumerate() {
            (fold.loops.empty)(frame.totals_of(number), lanes);
            (fold.loops.clear)(frame.partials_of(number), lanes);
        }
        let join = |frame: &Frame<'_>| {
            for (number, fold) in code.folds.iter().enumerate() {
                let partials = frame.partials_of(number);
                (fold.loops.join)(launched.level, partials, frame.totals_of(number), lanes);
                (fold.loops.clear)(partials, lanes);
            }
        };
        let straight = Straight::of(frame, code);
        let mut since = 0;
        for tile in part * per_part..((part + 1) * per_part).min(tasks.tiles) {
            if let Some(straight) = &straight {
                straight.accumulate(launched.level, tile, frame.partials_of(0), columns);
            } else {
                frame.move_rows(tile);
                frame.move_chunk(chunk);
                frame.run(&stage.rows);
                frame.run(&stage.spread);
                frame.run(&stage.tiles);
            }
            since += 1;
            if since == ROWS_PER_TOTAL {
                join(frame);
                since = 0;
            }
        }
        join(frame);
        for (number, fold) in code.folds.iter().enumerate() {
            let totals = frame.totals_of(number);
            for row in 1..code.group {
                (fold.loops.merge)(totals, totals.add(row * columns * fold.loops.total), columns);
            }
        }
    }
    lanes
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

    /// `None` if there is more to compute. The frame is at row 0 of the chunk.
    fn of(frame: &Frame<'_>, code: &'a Code) -> Option<Straight<'a>> {
        let (stage, [fold]) = (&code.stages[0], &code.folds[..]) else { return None };
        let ([], [], [step], 1) = (&stage.rows[..], &stage.spread[..], &stage.tiles[..], code.group) else {
            return None;
        };
        let Action::Fold(_, x) = step.action else { return None };
        let SlotKind::AtTile(param) = code.slots[usize::from(x)] else { return None };
        Some(Straight { access: &code.accesses[param], start: frame.at(x), loops: &fold.loops })
    }

    fn row(&self, row: usize) -> *const u8 {
        self.start.wrapping_offset(self.access.rows.offset(row) * self.access.size as isize)
    }

    /// Accumulates a row into partial results.
    ///
    /// # Safety
    /// The row exists, and there are as many partial results as columns.
    unsafe fn accumulate(&self, level: Level, row: usize, partials: *mut u8, columns: usize) {
        let bytes = columns * self.access.size;
        let ahead = self.row(row + (Straight::AHEAD / bytes.max(1)).clamp(1, 16));
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
