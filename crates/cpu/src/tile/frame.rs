//! The state of a task of a launch: the addresses of slots, and the interpreter of steps.

use super::code::{Action, Code, Form, Slot, SlotKind, Stage, Step};
use super::fold::Part;
use super::space::{self, Block, Moved};
use crate::contraction::scratch::Scratch;
use crate::copy::stream;
use crate::isa::Level;
use crate::reduce::order::{BLOCK, LANES};
use crate::scalar::with_number;
use core::sync::atomic::{AtomicBool, Ordering};
use kiln_ir::Element;
use smallvec::SmallVec;

/// State shared by all tasks of a launch.
pub(super) struct LaunchState<'a> {
    pub(super) code: &'a Code,
    pub(super) level: Level,
    /// The pointers to the parameters' first elements.
    pub(super) bases: &'a [*mut u8],
    pub(super) uniforms: *mut u8,
    /// Whether a checked index was out of range.
    pub(super) failed: &'a AtomicBool,
}

// SAFETY: tasks read shared data, and write different elements of results.
unsafe impl Sync for LaunchState<'_> {}

/// The state of one task.
pub(super) struct Frame<'a> {
    launched: &'a LaunchState<'a>,
    slots: SmallVec<[*mut u8; 32]>,
    /// The slots that move with the tile's columns, and their parameters.
    moving: SmallVec<[(usize, usize); 16]>,
    /// Offsets of the tile's first row in each access, in elements.
    offsets: SmallVec<[isize; 16]>,
    pub(super) block: Block,
    outer: usize,
    pub(super) totals: *mut u8,
    partials: *mut u8,
    /// The row of accumulators of [`Form::Columns`] in use.
    pub(super) column_slot: usize,
    /// The slots for the results of a row's blocks in [`Form::Parts`], as many for each reduction.
    pub(super) blocks: *mut u8,
    wide: *mut u8,
    /// The row values: shared with another frame, or its own.
    rows: *mut u8,
    _memory: Scratch<f64>,
    _wide: Option<Scratch<f64>>,
}

impl<'a> Frame<'a> {
    /// A frame with its own memory.
    pub(super) fn new(launched: &'a LaunchState<'a>) -> Frame<'a> {
        let code = launched.code;
        let wide = (code.wide_bytes > 0).then(|| code.wide_bytes * code.chunks.length);
        let mut wide = wide.map(|bytes| Scratch::<f64>::new(bytes.div_ceil(8)));
        let address = wide.as_mut().map_or(core::ptr::null_mut(), |wide| wide.as_mut_ptr().cast());
        Frame { _wide: wide, ..Frame::within(launched, core::ptr::null_mut(), address) }
    }

    /// A frame for uniform values.
    pub(super) fn single(launched: &'a LaunchState<'a>) -> Frame<'a> {
        let mut frame = Frame::within(launched, core::ptr::null_mut(), core::ptr::null_mut());
        frame.block = Block { row: 0, rows: 1, column: 0, columns: 1 };
        frame
    }

    /// A frame for a part of another frame's row: it shares row values and values kept between stages.
    pub(super) fn part(launched: &'a LaunchState<'a>, whole: &SharedRow) -> Frame<'a> {
        let mut frame = Frame::within(launched, whole.rows, whole.wide);
        frame.set_rows(whole.row, 1);
        frame
    }

    /// The memory that is shared by the parts of this frame's row.
    pub(super) fn shared(&self) -> SharedRow {
        SharedRow { rows: self.rows, wide: self.wide, row: self.block.row }
    }

    fn within(launched: &'a LaunchState<'a>, rows: *mut u8, wide: *mut u8) -> Frame<'a> {
        let code = launched.code;
        let sizes = [code.register_bytes, code.row_bytes, code.total_bytes, code.partial_bytes];
        let mut memory = Scratch::<f64>::new(sizes.iter().sum::<usize>().div_ceil(8));
        let start: *mut u8 = memory.as_mut_ptr().cast();
        let after = |n: usize| start.wrapping_add(sizes[..n].iter().sum());
        let rows = if rows.is_null() { after(1) } else { rows };
        let row_bytes = code.group * 8;
        let slots = code.slots.iter().map(|place| match *place {
            SlotKind::Uniform(i) => launched.uniforms.wrapping_add(8 * i),
            SlotKind::Row(i) => rows.wrapping_add(i * row_bytes),
            SlotKind::Register(at) => start.wrapping_add(at),
            SlotKind::Wide(before, _) => wide.wrapping_add(before * code.chunks.length),
            SlotKind::Element(param) | SlotKind::AtRow(param) | SlotKind::AtTile(param) => {
                launched.bases[param]
            }
        });
        let moving = code.slots.iter().enumerate().filter_map(|(slot, place)| match *place {
            SlotKind::AtTile(param) => Some((slot, param)),
            SlotKind::Uniform(_)
            | SlotKind::Row(_)
            | SlotKind::Register(_)
            | SlotKind::Wide(..)
            | SlotKind::Element(_)
            | SlotKind::AtRow(_) => None,
        });
        Frame {
            slots: slots.collect(),
            moving: moving.collect(),
            offsets: smallvec::smallvec![0; code.accesses.len()],
            block: Block { row: 0, rows: code.group, column: 0, columns: code.chunks.size },
            outer: 0,
            totals: after(2),
            partials: after(3),
            column_slot: 0,
            blocks: core::ptr::null_mut(),
            wide,
            rows,
            launched,
            _memory: memory,
            _wide: None,
        }
    }

    /// Moves to another point outside of tiles.
    pub(super) fn move_outer(&mut self, outer: usize) {
        self.outer = outer;
    }

    /// Moves to a group of rows.
    pub(super) fn move_rows(&mut self, group: usize) {
        let code = self.launched.code;
        let row = group * code.group;
        self.set_rows(row, code.group.min(code.rows - row));
    }

    /// Moves to some rows.
    pub(super) fn set_rows(&mut self, row: usize, rows: usize) {
        let code = self.launched.code;
        self.block.row = row;
        self.block.rows = rows;
        for (offset, access) in self.offsets.iter_mut().zip(&code.accesses) {
            *offset = access.outer.offset(self.outer) + access.rows.offset(row);
        }
        for (slot, place) in self.slots.iter_mut().zip(&code.slots) {
            if let SlotKind::AtRow(param) = *place {
                let bytes = self.offsets[param] * code.accesses[param].size as isize;
                *slot = self.launched.bases[param].wrapping_offset(bytes);
            }
        }
    }

    /// Moves to a chunk of the rows.
    pub(super) fn move_chunk(&mut self, chunk: usize) {
        let (column, columns) = self.launched.code.chunks.at(chunk);
        self.set_columns(column, columns);
    }

    /// Moves to some columns.
    pub(super) fn set_columns(&mut self, column: usize, columns: usize) {
        let code = self.launched.code;
        self.block.column = column;
        self.block.columns = columns;
        for &(slot, param) in &self.moving {
            let access = &code.accesses[param];
            let offset = self.offsets[param] + access.inner.offset(column);
            self.slots[slot] = self.launched.bases[param].wrapping_offset(offset * access.size as isize);
        }
        if code.wide_bytes > 0 {
            for (slot, place) in self.slots.iter_mut().zip(&code.slots) {
                if let SlotKind::Wide(before, size) = *place {
                    *slot = self.wide.wrapping_add(before * code.chunks.length + column * size);
                }
            }
        }
    }

    /// The address of a slot.
    #[inline(always)]
    pub(super) fn at(&self, slot: Slot) -> *mut u8 {
        self.slots[usize::from(slot)]
    }

    /// Initializes the totals of the reductions of a stage, one for each row.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    pub(super) unsafe fn empty_totals(&mut self, stage: usize) {
        for fold in self.launched.code.folds.iter().filter(|fold| fold.stage == stage) {
            // SAFETY: the frame has room for them.
            unsafe { (fold.loops.empty)(self.totals.add(fold.total_at), self.block.rows) };
        }
    }

    /// The slots of a reduction for the results of a row's blocks.
    pub(super) fn blocks_of(&self, fold: usize) -> *mut u8 {
        let blocks = self.launched.code.chunks.length.div_ceil(BLOCK);
        self.blocks.wrapping_add(fold * blocks * size_of::<f64>())
    }

    /// The pointer to the totals of a reduction.
    pub(super) fn totals_of(&self, fold: usize) -> *mut u8 {
        let fold = &self.launched.code.folds[fold];
        self.totals.wrapping_add(fold.total_at)
    }

    /// The pointer to the partial results of a reduction: the lanes of a block, or a row of accumulators.
    pub(super) fn partials_of(&self, fold: usize, slot: usize) -> *mut u8 {
        let columns = self.block.columns;
        let fold = &self.launched.code.folds[fold];
        self.partials.wrapping_add(fold.partial_at + slot * columns * fold.loops.partial)
    }

    /// Runs steps on the current tile.
    ///
    /// # Safety
    /// The launch's parameters are memory of its kernel, and no other task writes the elements of this tile.
    pub(super) unsafe fn run(&mut self, steps: &[Step]) {
        let tile = self.block.rows * self.block.columns;
        for step in steps {
            let n = if step.by_row { self.block.rows } else { tile };
            // SAFETY: the compiler assigns slots with room for a tile, and separate slots for results.
            unsafe { self.step(step, n) };
        }
    }

    /// As [`run`](Self::run), for the tiles of a stage: prefetches the next tile's operands where they are contiguous.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    pub(super) unsafe fn run_tiles(&mut self, stage: &Stage) {
        let tile = self.block.rows * self.block.columns;
        let count = stage.tiles.len();
        for (i, step) in stage.tiles.iter().enumerate() {
            for &(slot, size) in &stage.ahead {
                let lines = (tile * size).div_ceil(stream::LINE);
                let next = self.at(slot).wrapping_add(tile * size);
                for line in lines * i / count..lines * (i + 1) / count {
                    stream::prefetch(next.wrapping_add(line * stream::LINE));
                }
            }
            let n = if step.by_row { self.block.rows } else { tile };
            // SAFETY: as in `run`.
            unsafe { self.step(step, n) };
        }
    }

    /// # Safety
    /// As [`run`](Self::run).
    #[inline(always)]
    unsafe fn step(&mut self, step: &Step, n: usize) {
        let (level, to) = (self.launched.level, self.at(step.to));
        // SAFETY: as the caller promises.
        unsafe {
            match step.action {
                Action::One(function, x) => function(level, self.at(x), to, n),
                Action::Two(function, [a, b]) => function(level, self.at(a), self.at(b), to, n),
                Action::Three(function, [a, b, c]) => {
                    function(level, self.at(a), self.at(b), self.at(c), to, n);
                }
                Action::Fold(fold, x) => self.fold(fold, self.at(x)),
                Action::Stream(size, x) => stream::copy(level, self.at(x), to, n * size),
                Action::Gather(_)
                | Action::GatherWhere(..)
                | Action::GatherAt(..)
                | Action::Scatter(..)
                | Action::Fill(..)
                | Action::Repeat(..)
                | Action::Index(..)
                | Action::Finish(_)
                | Action::Scan(..)
                | Action::Check(..) => self.rare(step, n),
            }
        }
    }

    unsafe fn fold(&self, number: usize, x: *const u8) {
        let code = self.launched.code;
        let (level, loops) = (self.launched.level, &code.folds[number].loops);
        let Block { rows, columns, column, .. } = self.block;
        let part = Part { at: column, count: columns, length: code.chunks.length };
        // SAFETY: totals of each row, lanes of a block, slots of each block, and accumulators of each column.
        unsafe {
            match code.form {
                Form::Columns => self.fold_columns(number, x),
                Form::Parts => {
                    (loops.blocks)(level, x, part, self.partials_of(number, 0), self.blocks_of(number));
                }
                Form::Map | Form::Rows if code.chunks.is_whole() => {
                    (loops.rows)(level, x, rows, columns, self.totals_of(number));
                }
                Form::Map | Form::Rows => {
                    (loops.part)(level, x, part, self.partials_of(number, 0), self.totals_of(number));
                }
            }
        }
    }

    /// Adds a tile's rows to accumulators of columns: those of their lanes if a tile has several rows.
    unsafe fn fold_columns(&self, number: usize, x: *const u8) {
        let code = self.launched.code;
        let fold = &code.folds[number];
        let Block { rows, columns, row, .. } = self.block;
        let add = |from: usize, slot: usize, count: usize| {
            let x = x.wrapping_add(from * columns * fold.element);
            // SAFETY: accumulators for that many rows.
            unsafe {
                (fold.loops.accumulate)(
                    self.launched.level,
                    x,
                    self.partials_of(number, slot),
                    count * columns,
                );
            }
        };
        if code.group == 1 {
            return add(0, self.column_slot, 1);
        }
        let mut from = 0;
        while from < rows {
            let (lane, count) = match code.rows < LANES {
                true => (0, 1),
                false => ((row + from) % LANES, (rows - from).min(LANES - (row + from) % LANES)),
            };
            add(from, lane, count);
            from += count;
        }
    }

    #[inline(never)]
    unsafe fn rare(&mut self, step: &Step, n: usize) {
        let code = self.launched.code;
        let to = self.at(step.to);
        let block = match step.by_row {
            true => Block { column: 0, columns: 1, ..self.block },
            false => self.block,
        };
        // The row is already part of the offset, unless it is part of the walk.
        let base = |param: usize| {
            let access = &code.accesses[param];
            let offset = access.outer.offset(self.outer);
            self.launched.bases[param].wrapping_offset(offset * access.size as isize)
        };
        // SAFETY: as the caller of `run` promises.
        unsafe {
            match step.action {
                Action::Gather(param) => code.accesses[param].gather(base(param), &block, to),
                Action::GatherWhere(param, condition) => {
                    code.accesses[param].gather_where(base(param), &block, self.at(condition), to);
                }
                Action::GatherAt(param, [offsets, condition], is_wide) => {
                    let moved = Moved { offsets: self.at(offsets), is_wide, condition: self.at(condition) };
                    code.accesses[param].gather_at(base(param), &block, &moved, to);
                }
                Action::Scatter(param, x) => code.accesses[param].scatter(self.at(x), &block, base(param)),
                Action::Fill(size, x) => space::repeat(size, self.at(x), to, 1, n),
                Action::Repeat(size, x) => {
                    space::repeat(size, self.at(x), to, self.block.rows, self.block.columns);
                }
                Action::Index(param, dtype) => {
                    let access = &code.accesses[param];
                    let outer = access.outer.offset(self.outer);
                    with_number!(dtype, T => {
                        access.stretches(&block, |at, len, offset, step| {
                            for i in 0..len {
                                let index = outer + offset + i as isize * step;
                                to.cast::<T>().add(at + i).write(T::from_i128(index as i128));
                            }
                        });
                    });
                }
                Action::Finish(fold) => {
                    (code.folds[fold].loops.finish)(self.totals_of(fold), to, n);
                }
                Action::Scan(function, x, [reverse, exclusive]) => {
                    function(self.at(x), to, self.block.rows, self.block.columns, reverse, exclusive);
                }
                Action::Check(dtype, [x, bound]) => {
                    let (x, bound) = (self.at(x), self.at(bound));
                    with_number!(dtype, T => {
                        let bound = (*bound.cast::<T>()).to_i128();
                        let x = core::slice::from_raw_parts(x.cast::<T>(), n);
                        if x.iter().any(|x| !(0..bound).contains(&x.to_i128())) {
                            self.launched.failed.store(true, Ordering::Relaxed);
                        }
                    });
                }
                Action::One(..)
                | Action::Two(..)
                | Action::Three(..)
                | Action::Fold(..)
                | Action::Stream(..) => {}
            }
        }
    }
}

/// Memory shared by the parts of a row.
pub(super) struct SharedRow {
    rows: *mut u8,
    wide: *mut u8,
    row: usize,
}

// SAFETY: parts read the row values, and write different elements of wide values.
unsafe impl Sync for SharedRow {}
