//! The compiled form of a kernel: lists of steps and their slots.

use super::fold::Folding;
use super::scan::ScanLoop;
use super::space::Access;
use crate::kernels::{Loop1, Loop2, Loop3};
use alloc::vec::Vec;
use kiln_ir::DType;

/// The code of a launch: lists of steps for its phases, and their slots.
#[derive(Clone)]
pub(super) struct Code {
    pub(super) form: Form,
    /// Points along the axes outside of tiles; 1 unless the form is [`Form::Columns`].
    pub(super) outer: usize,
    /// The total number of rows.
    pub(super) rows: usize,
    /// Rows per tile.
    pub(super) group: usize,
    /// The chunks of a row.
    pub(super) chunks: Chunks,
    /// The accesses of the kernel's parameters, then those of its index values.
    pub(super) accesses: Vec<Access>,
    /// The sources of parameter addresses.
    pub(super) params: Vec<Param>,
    /// Values that are uniform for the launch; constants are preset.
    pub(super) uniforms: Vec<[u8; 8]>,
    /// Plain numbers of each launch: their operand indices and their indices in `uniforms`.
    pub(super) numbers: Vec<Number>,
    /// Computes uniform values, once per launch.
    pub(super) once: Vec<Step>,
    /// Computes registers that are the same for all rows, once per task.
    pub(super) hoisted: Vec<Step>,
    /// The stages of each row, in order: a later stage needs totals of earlier ones.
    pub(super) stages: Vec<Stage>,
    pub(super) folds: Vec<Fold>,
    /// The storage of the operands and results of steps.
    pub(super) slots: Vec<SlotKind>,
    /// The size of all row values in bytes.
    pub(super) row_bytes: usize,
    /// The size of all registers in bytes.
    pub(super) register_bytes: usize,
    /// The size of all values that are kept between stages, in bytes per element of the row.
    pub(super) wide_bytes: usize,
    /// The size of all totals, and of all partial results, in bytes.
    pub(super) total_bytes: usize,
    pub(super) partial_bytes: usize,
    /// Whether registers may have elements of eight bytes; otherwise at most four.
    pub(super) wide_elements: bool,
    /// Whether results are written by non-temporal stores.
    pub(super) streams: bool,
    /// The cost of an element, in additions on cached data.
    pub(super) cost: usize,
}

/// The order of tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Any order.
    Map,
    /// All stages of some rows, then the next rows.
    Rows,
    /// Few long rows, whose parts are split between threads.
    Parts,
    /// Down the rows of a range of columns, which are reduced.
    Columns,
}

/// The chunks of a row, counted along all its axes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunks {
    /// The length of the row.
    pub(super) length: usize,
    /// Elements between boundaries that a chunk must not cross: those of the innermost axis, or of the whole row.
    pub(super) line: usize,
    /// Elements per chunk, except for the last of a line.
    pub(super) size: usize,
}

impl Chunks {
    fn per_line(&self) -> usize {
        self.line.div_ceil(self.size)
    }

    pub(super) fn count(&self) -> usize {
        self.length / self.line * self.per_line()
    }

    /// The start and the length of the chunk that contains an element.
    pub(super) fn containing(&self, element: usize) -> (usize, usize) {
        let (line, within) = (element / self.line, element % self.line);
        self.at(line * self.per_line() + within / self.size)
    }

    /// Whether a row is one chunk.
    pub(super) fn is_whole(&self) -> bool {
        self.size == self.length
    }

    /// The start and the length of a chunk.
    pub(super) fn at(&self, number: usize) -> (usize, usize) {
        let (line, part) = (number / self.per_line(), number % self.per_line());
        let within = part * self.size;
        (line * self.line + within, self.size.min(self.line - within))
    }
}

/// The owner of a parameter's memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Param {
    Input(usize),
    Output(usize),
    /// No memory: plain numbers, and indices.
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
    /// Steps on one element per row.
    pub(super) rows: Vec<Step>,
    /// Broadcasts row values along the rows, once per group of rows.
    pub(super) spread: Vec<Step>,
    /// Steps on tiles.
    pub(super) tiles: Vec<Step>,
    /// Slots to prefetch from memory, with their element size in bytes.
    pub(super) ahead: Vec<(Slot, usize)>,
}

/// A reduction.
#[derive(Clone, Copy)]
pub(super) struct Fold {
    /// The stage whose tiles it reduces.
    pub(super) stage: usize,
    pub(super) loops: Folding,
    /// The size of an element in bytes.
    pub(super) element: usize,
    /// The offset of its totals among those of a task: one per row of a tile, or per column in [`Form::Columns`].
    pub(super) total_at: usize,
    /// The offset of its partial results: the lanes of a row's block, or rows of accumulators in [`Form::Columns`].
    pub(super) partial_at: usize,
}

/// The index of a slot.
pub(super) type Slot = u16;

/// The storage of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) enum SlotKind {
    /// One element, uniform for the launch.
    Uniform(usize),
    /// One element per row of the tile, at this index among the row values.
    Row(usize),
    /// A register, at this byte offset.
    Register(usize),
    /// A value that is kept between stages for a whole row: the bytes per element before it, and of it.
    Wide(usize, usize),
    /// One element in a parameter's memory.
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
    /// Whether it processes one element per row instead of the whole tile.
    pub(super) by_row: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Action {
    One(Loop1, Slot),
    Two(Loop2, [Slot; 2]),
    Three(Loop3, [Slot; 3]),
    /// Loads from a parameter's memory.
    Gather(usize),
    /// Loads from a parameter's memory where the condition is true; elsewhere 0.
    GatherWhere(usize, Slot),
    /// Loads from a parameter's memory, moved by offsets, where the condition is true; elsewhere 0. Offsets have 32 bits,
    /// or 64.
    GatherAt(usize, [Slot; 2], bool),
    /// Stores to a parameter's memory.
    Scatter(usize, Slot),
    /// Stores elements of that size by non-temporal stores.
    Stream(usize, Slot),
    /// Broadcasts one element (of that size) to the tile.
    Fill(usize, Slot),
    /// Broadcasts each row's element (of that size) along the row.
    Repeat(usize, Slot),
    /// Computes the offsets of an access, as elements of that dtype.
    Index(usize, DType),
    /// Reduces into the totals.
    Fold(usize, Slot),
    /// Computes the result of a reduction from its totals.
    Finish(usize),
    Scan(ScanLoop, Slot, [bool; 2]),
    /// Checks that integers of that dtype are in `0..` the second.
    Check(DType, [Slot; 2]),
}

impl Code {
    /// The size in bytes.
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

    /// Whether elements are processed in several passes, with other elements in between.
    pub(super) fn has_passes(&self) -> bool {
        self.stages.len() > 1 && !self.chunks.is_whole() && self.form != Form::Columns
    }
}
