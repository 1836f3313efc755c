//! Code generation for column reductions (along outer axes).
//!
//! Neighbouring threads process neighbouring columns, as many per thread as one access reads. Groups of such threads,
//! and blocks, split the length of the columns. A second pass combines the totals of the blocks.

use super::kinds::{close_slots, open_slots};
use super::rows::{Elements, declare, load_chunk, vector_loads};
use super::writer::{Scope, Writer, name};
use crate::passes::{Pass, Total};
use crate::{AxisSet, GpuSchedule, Kernel, ValueId};
use alloc::format;
use alloc::vec::Vec;

/// Writes one total per column, or per part of a column if blocks split it.
pub(super) fn reduce(w: &mut Writer<'_>) {
    let kernel = w.kernel;
    let GpuSchedule { block, vector, splits, row_threads: groups, .. } = *w.schedule;
    let reduced = kernel.reduced();
    let parallel = kernel.all_axes() & !reduced;
    let side = block / groups;
    let width = side * vector;
    let pass = &kernel.passes()[0];
    let mut scope = Scope::new(kernel);
    w.index("columns", &w.extent(parallel));
    w.index("length", &w.extent(reduced));
    w.index("across", &format!("(columns + {}) / {width}", width - 1));
    w.index("left", &format!("block % across * {width}"));
    w.index("split", "block / across");
    w.index("part", &format!("(length + {}) / {splits}", splits - 1));
    w.index("end", &w.language.least("length", "(split + 1) * part"));
    w.index("side", &format!("thread % {side}"));
    w.index("down", &format!("thread / {side}"));
    // Threads without columns of their own repeat the last ones, since all threads must reach the barriers.
    w.index("point", &w.language.least(&format!("left + side * {vector}"), &format!("columns - {vector}")));
    let dependence = kernel.dependence();
    let (fixed, own): (Vec<ValueId>, Vec<ValueId>) =
        pass.row.iter().partition(|&&value| dependence[value as usize] == 0);
    w.emit(&fixed, &mut scope);
    for total in &pass.totals {
        let line = w.language.array(&format!("a{}", total.value), total.dtype, vector as usize);
        w.line(line);
        let identity = w.language.constant(total.reduction.identity(total.dtype), total.dtype);
        w.open_loop("slot", "0", &format!("{vector}"), "slot + 1");
        w.set(&format!("a{}[slot]", total.value), total.dtype, &identity);
        w.close();
    }
    w.open("");
    w.decode("point", parallel);
    let along = by_element(w, pass, &own, &mut scope);
    loop_over_columns(w, pass, &along, scope);
    w.close();
    for total in &pass.totals {
        let (value, dtype) = (total.value, total.dtype);
        w.share(&format!("w{value}"), dtype, (groups * width) as usize);
        w.line(w.language.unroll());
        w.open_loop("slot", "0", &format!("{vector}"), "slot + 1");
        let sum = w.language.element(&format!("a{value}[slot]"), dtype);
        w.set(&format!("w{value}[down * {width} + side * {vector} + slot]"), dtype, &sum);
        w.close();
    }
    w.barrier();
    if width > block {
        w.open_loop("k", "thread", &format!("{width}"), &format!("k + {block}"));
    } else {
        w.open(format!("if (thread < {width})"));
        w.index("k", "thread");
    }
    gather(w, &pass.totals, "w", groups, width);
    w.index("column", "left + k");
    w.open("if (column < columns)");
    if splits > 1 {
        for (number, total) in pass.totals.iter().enumerate() {
            let sum = format!("s{}", total.value);
            let store = w.language.store_scratch(number, total.dtype, "split * columns + column", &sum);
            w.line(store);
        }
    } else {
        ColumnEpilogue::of_columns(kernel).write(w);
    }
    w.close();
    w.close();
}

/// Loops over the elements of a thread's columns.
fn loop_over_columns(w: &mut Writer<'_>, pass: &Pass, along: &[ValueId], mut scope: Scope) {
    let kernel = w.kernel;
    let (vector, groups, reduced) = (w.schedule.vector, w.schedule.row_threads, kernel.reduced());
    let guard = format!("left + side * {vector} < columns");
    let total = if vector > 1 { |value| format!("a{value}[slot]") } else { |value| format!("a{value}[0]") };
    let elements = Elements { vector, guard: Some(&guard), total, is_array: true, held: None };
    let loads: Vec<(ValueId, u32)> = vector_loads(kernel, vector, along, &scope).collect();
    let ahead = rows_ahead(kernel, pass, vector, &loads);
    if ahead == 1 {
        w.line(w.language.unroll_partly());
        w.open_loop("j", "split * part + down", "end", &format!("j + {groups}"));
        w.decode("j", reduced);
        load_chunk(w, vector, along, &mut scope);
        elements.write(w, pass, along, &mut scope, |_| ());
        w.close();
        return;
    }
    w.open_loop("begun", "split * part + down", "end", &format!("begun + {}", groups * ahead));
    for &(_, param) in &loads {
        let line = w.language.declare_loads(param, vector, ahead);
        w.line(line);
    }
    let each = |w: &mut Writer<'_>| {
        w.line(w.language.unroll());
        w.open_loop("chunk", "0", &format!("{ahead}"), "chunk + 1");
    };
    each(w);
    w.index("j", &w.language.least(&format!("begun + chunk * {groups}"), "end - 1"));
    w.decode("j", reduced);
    for &(value, param) in &loads {
        w.take_vector(value, param, "chunk", &mut scope);
    }
    w.close();
    each(w);
    w.index("j", &format!("begun + chunk * {groups}"));
    w.open("if (j < end)");
    w.decode("j", reduced);
    elements.write(w, pass, along, &mut scope, |_| ());
    w.close();
    w.close();
    w.close();
}

/// The number of rows that a thread loads ahead. Compilers unroll loads too, but not past a loop's stores.
fn rows_ahead(kernel: &Kernel, pass: &Pass, vector: u32, loads: &[(ValueId, u32)]) -> u32 {
    /// The maximum bytes of loads in flight per thread.
    const BYTES: usize = 128;
    const MOST: usize = 4;
    if pass.stores.is_empty() {
        return 1;
    }
    let bytes = |&(_, param): &(ValueId, u32)| kernel.params[param as usize].dtype.size() * vector as usize;
    let row: usize = loads.iter().map(bytes).sum();
    BYTES.checked_div(row).unwrap_or(1).clamp(1, MOST) as u32
}

/// The values computed for each element. A thread hoists used values that are constant along a column, if registers
/// suffice.
fn by_element(w: &mut Writer<'_>, pass: &Pass, own: &[ValueId], scope: &mut Scope) -> Vec<ValueId> {
    /// Registers for values that are constant along a column.
    const MOST: usize = 48;
    let (kernel, vector) = (w.kernel, w.schedule.vector);
    let mut kept = used(kernel, pass, own);
    if kept.len() * vector as usize <= MOST {
        keep(w, own, &kept, scope);
    } else {
        kept = own.to_vec();
    }
    let mut along: Vec<ValueId> = pass.along.iter().copied().chain(kept).collect();
    along.sort_unstable();
    along
}

/// The values among `own` that elements of a column, totals or stores use.
fn used(kernel: &Kernel, pass: &Pass, own: &[ValueId]) -> Vec<ValueId> {
    let operands = |value: &ValueId| kernel.body[*value as usize].compute.operands();
    let of_elements = pass.along.iter().chain(&pass.stores).flat_map(operands);
    let goals: Vec<ValueId> = of_elements.chain(pass.totals.iter().map(|total| total.operand)).collect();
    own.iter().copied().filter(|value| goals.contains(value)).collect()
}

/// Computes values of the thread's columns, and keeps some of them in arrays.
fn keep(w: &mut Writer<'_>, own: &[ValueId], kept: &[ValueId], scope: &mut Scope) {
    if kept.is_empty() {
        return;
    }
    let (kernel, vector) = (w.kernel, w.schedule.vector);
    for &value in kept {
        let dtype = kernel.body[value as usize].dtype;
        let line = w.language.array(&format!("r{value}"), dtype, vector as usize);
        w.line(line);
    }
    let place = if vector > 1 { "slot" } else { "0" };
    let mut inside = scope.clone();
    w.open("");
    load_chunk(w, vector, own, &mut inside);
    if vector > 1 {
        open_slots(w, vector, kernel.axes.len() - 1);
    }
    w.emit(own, &mut inside);
    for &value in kept {
        w.set(&format!("r{value}[{place}]"), kernel.body[value as usize].dtype, &name(value));
    }
    if vector > 1 {
        close_slots(w);
    }
    w.close();
    for &value in kept {
        let dtype = kernel.body[value as usize].dtype;
        scope.kept[value as usize] = Some(w.language.element(&format!("r{value}[{place}]"), dtype));
    }
}

/// Combines the partial results of the thread groups for column `k`.
fn gather(w: &mut Writer<'_>, totals: &[Total], shared: &str, groups: u32, width: u32) {
    for total in totals {
        let value = total.value;
        let first = w.language.element(&format!("{shared}{value}[k]"), total.dtype);
        let line = w.language.variable(&format!("s{value}"), total.dtype, &first);
        w.line(line);
        w.line(w.language.unroll());
        w.open_loop("other", "1", &format!("{groups}"), "other + 1");
        let other = w.language.element(&format!("{shared}{value}[other * {width} + k]"), total.dtype);
        let combined = w.combined(total, &format!("s{value}"), &other);
        w.line(format!("s{value} = {combined};"));
        w.close();
    }
}

/// The totals of columns, and the ops after them.
struct ColumnEpilogue {
    totals: Vec<Total>,
    /// The axes of the columns.
    axes: AxisSet,
    stores: Vec<ValueId>,
}

impl ColumnEpilogue {
    /// For a column reduction kernel.
    fn of_columns(kernel: &Kernel) -> ColumnEpilogue {
        let totals = kernel.passes().swap_remove(0).totals;
        ColumnEpilogue { totals, axes: kernel.all_axes() & !kernel.reduced(), stores: kernel.row_stores() }
    }

    /// For the reductions over all rows.
    fn of_rows(kernel: &Kernel) -> ColumnEpilogue {
        ColumnEpilogue {
            totals: kernel.column_totals(),
            axes: kernel.reduced(),
            stores: kernel.column_stores(),
        }
    }

    fn write(&self, w: &mut Writer<'_>) {
        let kernel = w.kernel;
        w.decode("column", self.axes);
        let mut scope = Scope::new(kernel);
        for total in &self.totals {
            let line = w.language.value(&name(total.value), total.dtype, &format!("s{}", total.value));
            w.line(line);
            scope.define(total.value);
        }
        w.emit(&kernel.needed_for(&self.stores), &mut scope);
    }
}

/// The second pass: combines the partial totals.
pub(super) fn finish(w: &mut Writer<'_>) {
    combine_parts(w, &ColumnEpilogue::of_columns(w.kernel));
}

/// The second pass after a row kernel: combines the blocks' totals of each column.
pub(super) fn finish_rows(w: &mut Writer<'_>) {
    combine_parts(w, &ColumnEpilogue::of_rows(w.kernel));
}

fn combine_parts(w: &mut Writer<'_>, end: &ColumnEpilogue) {
    let GpuSchedule { block, splits, .. } = *w.schedule;
    let side = w.schedule.columns_at_end();
    let groups = block / side;
    let totals = &end.totals;
    w.index("columns", &w.extent(end.axes));
    w.index("k", &format!("thread % {side}"));
    w.index("down", &format!("thread / {side}"));
    w.index("column", &format!("block * {side} + k"));
    w.index("point", &w.language.least("column", "columns - 1"));
    declare(w, totals);
    w.line(w.language.unroll_partly());
    w.open_loop("split", "down", &format!("{splits}"), &format!("split + {groups}"));
    for (number, total) in totals.iter().enumerate() {
        let so_far = format!("a{}", total.value);
        let scratch = w.language.load_scratch(number, total.dtype, "split * columns + point");
        let combined = w.combined(total, &so_far, &scratch);
        w.line(format!("{so_far} = {combined};"));
    }
    w.close();
    for total in totals {
        w.share(&format!("f{}", total.value), total.dtype, block as usize);
        w.set(&format!("f{}[thread]", total.value), total.dtype, &format!("a{}", total.value));
    }
    w.barrier();
    w.open("if (down == 0 && column < columns)");
    gather(w, totals, "f", groups, side);
    end.write(w);
    w.close();
}
