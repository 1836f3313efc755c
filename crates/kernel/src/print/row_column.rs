//! Code generation for row reductions fused with column reductions (a norm's gradient with its weight's).
//!
//! A grid-stride loop over rows: a block processes one row at a time. A thread has the same columns in each row and
//! accumulates in registers. At the end it writes these totals. A second pass combines those of all blocks in a fixed
//! order.

use super::rows::Row;
use super::writer::{Scope, Writer};
use crate::GpuSchedule;
use crate::passes::{Pass, Total};
use alloc::format;
use alloc::string::String;

/// Writes the pass over all rows of a block, and the totals of its columns.
pub(super) fn reduce(w: &mut Writer<'_>) {
    let kernel = w.kernel;
    let GpuSchedule { block: threads, splits, .. } = *w.schedule;
    let reduced = kernel.reduced();
    let parallel = kernel.all_axes() & !reduced;
    w.index("lane", "thread");
    w.index("rows", &w.extent(parallel));
    w.index("length", &w.extent(reduced));
    let (passes, totals) = (kernel.passes(), kernel.column_totals());
    let mut row = Row::new(kernel, w.schedule, threads, true);
    row.ahead = w.schedule.reads_ahead(kernel);
    let mut scope = Scope::new(kernel);
    declare(w, &totals);
    row.declare(w);
    // Loads of values that are constant across rows are hoisted.
    row.load(w, |param| kernel.crossed(param) & parallel == 0, &mut scope);
    if row.ahead {
        w.open("");
        w.index("start", &w.language.least("block", "rows - 1"));
        w.decode("start", parallel);
        row.load(w, |param| kernel.crossed(param) & parallel != 0, &mut scope);
        w.close();
    }
    w.open_loop("row", "block", "rows", &format!("row + {splits}"));
    if row.ahead {
        w.open(format!("if (row + {splits} < rows)"));
        w.index("next", &format!("row + {splits}"));
        w.decode("next", parallel);
        row.read_ahead(w);
        w.close();
    }
    w.decode("row", parallel);
    row.load(w, |param| kernel.crossed(param) & parallel != 0, &mut scope);
    row.pass_all(w, &passes, &mut scope);
    let stores = kernel.row_stores();
    if !stores.is_empty() {
        w.open("if (lane == 0)");
        w.emit(&stores, &mut scope);
        w.close();
    }
    if passes.iter().filter(|pass| exchanges_partials(w, pass, threads)).count() == 1 {
        // Otherwise the barrier of another pass separates the reads of one row from the writes of the next.
        w.barrier();
    }
    if row.ahead {
        row.take_next(w);
    }
    w.close();
    write(w, &row, &totals);
}

/// Whether the threads of a block exchange partial results of a pass through shared memory.
fn exchanges_partials(w: &Writer<'_>, pass: &Pass, threads: u32) -> bool {
    let shuffles = |total: &Total| w.language.shuffle("", total.dtype, 1).is_some();
    !pass.totals.is_empty() && (threads > 32 || !pass.totals.iter().all(shuffles))
}

/// Declares the totals of a thread's columns.
fn declare(w: &mut Writer<'_>, totals: &[Total]) {
    let resident = w.schedule.resident;
    for total in totals {
        let line = w.language.array(&format!("c{}", total.value), total.dtype, resident as usize);
        w.line(line);
    }
    if totals.is_empty() {
        return;
    }
    w.line(w.language.unroll());
    w.open_loop("place", "0", &format!("{resident}"), "place + 1");
    for total in totals {
        let identity = w.language.constant(total.reduction.identity(total.dtype), total.dtype);
        w.set(&format!("c{}[place]", total.value), total.dtype, &identity);
    }
    w.close();
}

/// Writes the totals of a block.
fn write(w: &mut Writer<'_>, row: &Row<'_>, totals: &[Total]) {
    if totals.is_empty() {
        return;
    }
    row.open(w);
    row.open_slots(w);
    let slot: String = if w.schedule.vector > 1 { " + slot".into() } else { String::new() };
    for (number, total) in totals.iter().enumerate() {
        let place = format!("block * length + j{slot}");
        let sum = w.language.element(&format!("c{}[{}]", total.value, row.place()), total.dtype);
        let store = w.language.store_scratch(number, total.dtype, &place, &sum);
        w.line(store);
    }
    row.close_slots(w);
    row.close(w);
}
