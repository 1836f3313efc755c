//! Tiling: the split of a kernel's index space into tiles.

use super::code::{Chunks, Form};
use super::space::Access;
use crate::reduce::order::BLOCK;
use crate::walk::Walk;
use alloc::vec::Vec;
use kiln_ir::MAX_RANK;
use kiln_kernel::{Axis, AxisSet, Kernel, KernelKind, Launch};

/// The maximum length of rows that are not split.
const WHOLE_ROW: usize = 2048;

/// The minimum length of rows that form separate tiles.
const LONG_ENOUGH: usize = 256;

/// With fewer rows than this, long rows are split between threads part by part.
const MIN_ROWS: usize = 16;
const LONG_ROW: usize = 1 << 15;

/// The wanted number of tasks of a column reduction, and the columns of which each task has a multiple.
pub(super) const COLUMN_TASKS: usize = 32;
const COLUMN_UNIT: usize = 64;

/// The sides of a tile that reads along another axis than it writes.
const ACROSS: [usize; 2] = [32, 64];

/// The axes of a kernel by their roles in tiles.
pub(super) struct Tiling {
    pub(super) form: Form,
    outer_axes: Vec<usize>,
    row_axes: Vec<usize>,
    inner_axes: Vec<usize>,
    pub(super) outer: usize,
    pub(super) rows: usize,
    pub(super) group: usize,
    pub(super) chunks: Chunks,
    extents: Vec<usize>,
}

impl Tiling {
    /// Tiles of at most about `lanes` elements. `None` for kernels that the machine does not support.
    pub(super) fn new(kernel: &Kernel, launch: &Launch, lanes: usize) -> Option<Tiling> {
        if kernel.axes.len() > MAX_RANK {
            return None;
        }
        let axes = 0..kernel.axes.len();
        let (reduced, parallel): (Vec<usize>, Vec<usize>) =
            axes.clone().partition(|&axis| kernel.axes[axis] == Axis::Reduce);
        let (form, outer_axes, mut row_axes, inner_axes) = match kernel.kind {
            KernelKind::Map | KernelKind::Transpose => {
                let mut rows = parallel;
                let inner = rows.pop().into_iter().collect();
                (Form::Map, Vec::new(), rows, inner)
            }
            KernelKind::RowReduce | KernelKind::FullReduce | KernelKind::Scan => {
                (Form::Rows, Vec::new(), parallel, reduced)
            }
            KernelKind::ColReduce => {
                let mut outer = parallel;
                let inner = outer.pop()?;
                (Form::Columns, outer, reduced, alloc::vec![inner])
            }
            KernelKind::MatMul(_) => return None,
        };
        let across =
            (kernel.kind == KernelKind::Transpose).then(|| transposed(launch, &row_axes, inner_axes[0]));
        if let Some(axis) = across.flatten() {
            row_axes.retain(|&other| other != axis);
            row_axes.push(axis);
        }
        let count = |axes: &[usize]| axes.iter().map(|&axis| launch.extents[axis]).product::<usize>();
        let (outer, rows, length) = (count(&outer_axes), count(&row_axes), count(&inner_axes));
        let lanes = if form == Form::Columns {
            lanes.min(columns_per_task(outer * rows.div_ceil(BLOCK), length))
        } else {
            lanes
        };
        let last = inner_axes.last().map_or(1, |&axis| launch.extents[axis]);
        let parts =
            form == Form::Rows && kernel.kind != KernelKind::Scan && rows < MIN_ROWS && length >= LONG_ROW;
        let form = if parts { Form::Parts } else { form };
        let whole = match form {
            Form::Rows => kernel.kind == KernelKind::Scan || length <= lanes.max(WHOLE_ROW),
            Form::Map | Form::Parts | Form::Columns => length <= lanes,
        };
        let chunks = if whole {
            Chunks { length, line: length, size: length }
        } else if last >= lanes / 2 || last == length {
            Chunks { length, line: last, size: lanes.min(last) }
        } else {
            Chunks { length, line: length, size: lanes / last * last }
        };
        // In single-row tiles, row values are plain numbers, which is worth more than a longer tile.
        let group = if whole && length < LONG_ENOUGH { (lanes / length).clamp(1, rows) } else { 1 };
        let (group, chunks) = match across.flatten() {
            Some(_) => (ACROSS[0].min(rows), Chunks { size: ACROSS[1].min(length), line: length, length }),
            None => (group, chunks),
        };
        let extents = launch.extents.clone();
        Some(Tiling { form, outer_axes, row_axes, inner_axes, outer, rows, group, chunks, extents })
    }

    /// The access with these strides along the kernel's axes.
    pub(super) fn access(&self, strides: &[isize], size: usize) -> Access {
        let walk = |axes: &[usize]| {
            let lengths: Vec<usize> = axes.iter().map(|&axis| self.extents[axis]).collect();
            let steps: Vec<isize> = axes.iter().map(|&axis| strides[axis]).collect();
            Walk::new(&lengths, [&steps])
        };
        Access {
            outer: walk(&self.outer_axes),
            rows: walk(&self.row_axes),
            inner: walk(&self.inner_axes),
            size,
        }
    }

    pub(super) fn inner_set(&self) -> AxisSet {
        set(&self.inner_axes)
    }

    /// The axes of rows, without those outside of tiles.
    pub(super) fn row_set(&self) -> AxisSet {
        set(&self.row_axes)
    }

    /// Whether a row is one chunk.
    pub(super) fn is_whole(&self) -> bool {
        self.chunks.is_whole()
    }

    /// Elements per register.
    pub(super) fn lanes(&self) -> usize {
        self.group * self.chunks.size
    }

    /// Whether a tile of an access is contiguous, with `group` rows per tile.
    pub(super) fn is_flat(&self, access: &Access, group: usize) -> bool {
        let inner = &access.inner;
        let along = match inner.rank {
            0 => self.chunks.length == 1,
            1 => inner.strides[0][0] == 1,
            rank => {
                let line = self.chunks.line;
                line < self.chunks.length
                    && inner.strides[rank - 1][0] == 1
                    && inner.lengths[rank - 1].is_multiple_of(line)
            }
        };
        let rows = &access.rows;
        let adjacent = self.is_whole()
            && match rows.rank {
                0 => true,
                1 => rows.strides[0][0] == self.chunks.length as isize,
                _ => false,
            };
        along && (group == 1 || adjacent)
    }

    /// Whether one element per row is contiguous.
    pub(super) fn is_flat_by_row(&self, access: &Access) -> bool {
        let rows = &access.rows;
        self.group == 1 || rows.rank == 0 || (rows.rank == 1 && rows.strides[0][0] == 1)
    }
}

/// The maximum columns per tile with which a column reduction has enough tasks. `tasks` counts those of a column.
fn columns_per_task(tasks: usize, columns: usize) -> usize {
    columns.div_ceil(COLUMN_TASKS.div_ceil(tasks)).next_multiple_of(COLUMN_UNIT)
}

fn set(axes: &[usize]) -> AxisSet {
    axes.iter().fold(0, |set, axis| set | 1 << axis)
}

/// The axis along which a parameter is contiguous, if its stride along the innermost axis is larger.
fn transposed(launch: &Launch, rows: &[usize], inner: usize) -> Option<usize> {
    launch.bindings.iter().filter(|binding| !binding.strides.is_empty()).find_map(|binding| {
        let step = |axis: usize| binding.strides[axis].unsigned_abs();
        rows.iter().copied().find(|&axis| step(axis) == 1 && step(inner) > 1)
    })
}
