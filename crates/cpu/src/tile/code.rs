//! The compiled form of a kernel.

use super::fold::Folding;
use super::scan::ScanLoop;
use super::space::Access;
use crate::kernels::{Loop1, Loop2, Loop3};
use alloc::vec::Vec;
use kiln_ir::DType;

/// A list of steps for each part of a launch, with their slots.
#[derive(Clone)]
pub(super) struct Code {
    pub(super) form: Form,
    /// Points along the axes outside of tiles; 1 unless the form is [`Form::Columns`].
    pub(super) outer: usize,
    /// Rows in all.
    pub(super) rows: usize,
    /// Rows of a tile.
    pub(super) group: usize,
    /// How a row is cut.
    pub(super) chunks: Chunks,
    /// The parameters of the kernel, then the indices that it counts.
    pub(super) accesses: Vec<Access>,
    /// Where the addresses of parameters come from.
    pub(super) params: Vec<Param>,
    /// Values that are the same everywhere; constants are in place.
    pub(super) uniforms: Vec<[u8; 8]>,
    /// Numbers given with each launch: their places among the operands and in `uniforms`.
    pub(super) numbers: Vec<Number>,
    /// Computes values that are the same everywhere, once per launch.
    pub(super) once: Vec<Step>,
    /// Computes registers that are the same for all rows, once per task.
    pub(super) hoisted: Vec<Step>,
    /// One after the other for each row: a later stage needs totals of those before.
    pub(super) stages: Vec<Stage>,
    pub(super) folds: Vec<Fold>,
    /// The operands and results of steps.
    pub(super) slots: Vec<SlotKind>,
    /// Bytes of all row values.
    pub(super) row_bytes: usize,
    /// Bytes of all registers.
    pub(super) register_bytes: usize,
    /// Bytes of all values that last from one stage to the next, per element of the row.
    pub(super) wide_bytes: usize,
    /// Bytes of all totals, and of all partial results.
    pub(super) total_bytes: usize,
    pub(super) partial_bytes: usize,
    /// Whether elements of registers may have eight bytes; four otherwise.
    pub(super) wide_elements: bool,
    /// Whether results are written past the caches.
    pub(super) streams: bool,
    /// The cost of an element, in additions on cached data.
    pub(super) cost: usize,
}

/// How tiles follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// In any order.
    Map,
    /// All stages of some rows, then the next rows.
    Rows,
    /// Few long rows, whose parts are shared between threads.
    Parts,
    /// Down the rows of a stretch of columns, which are reduced.
    Columns,
}

/// The stretches of a row, counted along all its axes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunks {
    /// Of the row.
    pub(super) length: usize,
    /// Elements that a chunk may not reach across: those of the innermost axis, or of the whole row.
    pub(super) line: usize,
    /// Elements of a chunk, but for the last of a line.
    pub(super) size: usize,
}

impl Chunks {
    fn per_line(&self) -> usize {
        self.line.div_ceil(self.size)
    }

    pub(super) fn count(&self) -> usize {
        self.length / self.line * self.per_line()
    }

    /// Where a chunk starts, and its length.
    pub(super) fn at(&self, number: usize) -> (usize, usize) {
        let (line, part) = (number / self.per_line(), number % self.per_line());
        let within = part * self.size;
        (line * self.line + within, self.size.min(self.line - within))
    }
}

/// Whose memory a parameter is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Param {
    Input(usize),
    Output(usize),
    /// No memory: numbers, and indices.
    None,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Number {
    pub(super) place: usize,
    pub(super) dtype: DType,
    pub(super) uniform: usize,
}

/// The steps between two reductions.
#[derive(Clone, Default)]
pub(super) struct Stage {
    /// On one element per row.
    pub(super) rows: Vec<Step>,
    /// Repeats row values along the rows, once per group of rows.
    pub(super) spread: Vec<Step>,
    /// On tiles.
    pub(super) tiles: Vec<Step>,
    /// Slots to prefetch from memory, with their element size in bytes.
    pub(super) ahead: Vec<(Slot, usize)>,
}

/// A reduction.
#[derive(Clone, Copy)]
pub(super) struct Fold {
    /// The stage whose tiles it combines.
    pub(super) stage: usize,
    pub(super) loops: Folding,
    /// Where its totals lie among those of a task: one per row of a tile, or per element in [`Form::Columns`].
    pub(super) total_at: usize,
    /// The same of its partial results.
    pub(super) partial_at: usize,
}

/// By number.
pub(super) type Slot = u16;

/// The storage of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) enum SlotKind {
    /// One element, the same for the launch.
    Uniform(usize),
    /// One element per row of the tile, `usize` row values from the start.
    Row(usize),
    /// A register, that many bytes from the start.
    Register(usize),
    /// A value that lasts from one stage to the next for a whole row: bytes per element before it, and of it.
    Wide(usize, usize),
    /// A parameter's memory: one element.
    Element(usize),
    /// A parameter's memory from the tile's first row on.
    AtRow(usize),
    /// A parameter's memory from the tile's first element on.
    AtTile(usize),
}

/// One instruction of the machine.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) action: Action,
    pub(super) to: Slot,
    /// On one element per row, rather than all of the tile.
    pub(super) by_row: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Action {
    One(Loop1, Slot),
    Two(Loop2, [Slot; 2]),
    Three(Loop3, [Slot; 3]),
    /// From a parameter's memory.
    Gather(usize),
    /// From a parameter's memory where the condition holds; elsewhere 0.
    GatherWhere(usize, Slot),
    /// To a parameter's memory.
    Scatter(usize, Slot),
    /// Elements of that size, past the caches.
    Stream(usize, Slot),
    /// The element (of that size) everywhere.
    Fill(usize, Slot),
    /// Each row's element (of that size) all along the row.
    Repeat(usize, Slot),
    /// The offsets of an access, as elements of that dtype.
    Index(usize, DType),
    /// Into the totals.
    Fold(usize, Slot),
    /// Computes the result of a reduction from its totals.
    Finish(usize),
    Scan(ScanLoop, Slot, [bool; 2]),
    /// Whether integers of that dtype lie in `0..` the second.
    Check(DType, [Slot; 2]),
}

impl Code {
    /// The memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let of_stage = |stage: &Stage| {
            size_of::<Stage>()
                + (stage.rows.len() + stage.spread.len() + stage.tiles.len()) * size_of::<Step>()
                + size_of_val(&stage.ahead[..])
        };
        size_of::<Code>()
            + size_of_val(&self.accesses[..])
            + size_of_val(&self.params[..])
            + size_of_val(&self.uniforms[..])
            + size_of_val(&self.numbers[..])
            + (self.once.len() + self.hoisted.len()) * size_of::<Step>()
            + self.stages.iter().map(of_stage).sum::<usize>()
            + size_of_val(&self.folds[..])
            + size_of_val(&self.slots[..])
    }

    /// Whether elements are gone through more than once, after other elements were.
    pub(super) fn has_passes(&self) -> bool {
        let whole = self.chunks.size == self.chunks.length;
        self.stages.len() > 1 && !whole && self.form != Form::Columns
    }
}
