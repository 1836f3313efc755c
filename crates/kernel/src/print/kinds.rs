//! Code generation for each kernel kind, in any GPU language.
//!
//! `thread` is the thread index in its block, and `block` the block index. `i0`, `i1` and so on are the indices along
//! each axis, `e0`, `e1` the extents.

use super::writer::{Language, Scope, Writer, name};
use super::{columns, row_column, rows};
use crate::passes::{Product, Total};
use crate::schedule::{PRODUCT_TILE, TILE};
use crate::{
    AxisSet, Compute, GpuSchedule, Instruction, Kernel, KernelKind, ParamKind, StrideClass, ValueId,
};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use kiln_ir::DType;

/// Statements of each entry point, and its shared-memory declarations.
pub(super) struct Function {
    pub(super) body: String,
    pub(super) shared: Vec<String>,
}

/// A function that writes the statements of an entry point.
type Write = fn(&mut Writer<'_>);

pub(super) fn entries(kernel: &Kernel, schedule: &GpuSchedule, language: &dyn Language) -> Vec<Function> {
    let mut writer = Writer::new(kernel, language, schedule);
    match kernel.kind {
        KernelKind::Map => map(&mut writer),
        KernelKind::Transpose => match kernel.tile_axes() {
            Some((outer, inner)) => transpose(&mut writer, outer, inner),
            None => map(&mut writer),
        },
        KernelKind::RowReduce | KernelKind::ColReduce | KernelKind::FullReduce => {
            let (first, second): (Write, Write) = if kernel.kind == KernelKind::ColReduce {
                (columns::reduce, columns::finish)
            } else if kernel.has_columns() {
                (row_column::reduce, columns::finish_rows)
            } else {
                (rows::reduce, rows::finish)
            };
            first(&mut writer);
            if schedule.finishes(kernel) {
                let mut last = Writer::new(kernel, language, schedule);
                second(&mut last);
                return alloc::vec![entry(writer), entry(last)];
            }
        }
        KernelKind::Scan => scan(&mut writer),
        KernelKind::MatMul(_) => matmul(&mut writer),
    }
    alloc::vec![entry(writer)]
}

fn entry(writer: Writer<'_>) -> Function {
    Function { body: writer.body, shared: writer.shared }
}

/// All values and stores, in order.
fn values_and_stores(kernel: &Kernel) -> Vec<ValueId> {
    (0..kernel.body.len() as ValueId).collect()
}

fn map(w: &mut Writer<'_>) {
    let kernel = w.kernel;
    let axes = kernel.all_axes();
    if w.schedule.vector > 1 {
        return vectors(w);
    }
    w.index("point", &format!("block * {} + thread", w.schedule.block));
    w.open(format!("if (point >= {})", w.extent(axes)));
    w.line("return;");
    w.close();
    w.decode("point", axes);
    w.emit(&values_and_stores(kernel), &mut Scope::new(kernel));
}

/// A vectorized map: elements contiguous in memory use vector loads and stores. All of a thread's loads are issued
/// before the first use; threads past the end repeat the last elements.
fn vectors(w: &mut Writer<'_>) {
    let kernel = w.kernel;
    let GpuSchedule { block, vector, unroll, .. } = *w.schedule;
    let axes = kernel.all_axes();
    let inner = kernel.axes.len() - 1;
    let mut scope = Scope::new(kernel);
    let along = |param: u32| kernel.params[param as usize].strides.get(inner) == Some(&StrideClass::One);
    let load = |(number, instruction): (usize, &Instruction)| {
        let param = instruction.compute.plain_load().filter(|&param| along(param))?;
        Some((number as ValueId, param))
    };
    let loads: Vec<(ValueId, u32)> = kernel.body.iter().enumerate().filter_map(load).collect();
    let written: Vec<(ValueId, u32)> = kernel.stores().filter(|&(_, param)| along(param)).collect();
    w.index("points", &w.extent(axes));
    for &(_, param) in &loads {
        let line = w.language.declare_loads(param, vector, unroll);
        w.line(line);
    }
    let open = |w: &mut Writer<'_>| {
        w.line(w.language.unroll());
        w.open_loop("chunk", "0", &format!("{unroll}"), "chunk + 1");
        w.index("start", &format!("((block * {unroll} + chunk) * {block} + thread) * {vector}"));
        w.index("point", &w.language.least("start", &format!("points - {vector}")));
        w.decode("point", axes);
    };
    open(w);
    for &(value, param) in &loads {
        w.take_vector(value, param, "chunk", &mut scope);
    }
    w.close();
    open(w);
    for &(_, param) in &written {
        let line = w.language.declare_stores(param, vector);
        w.line(line);
    }
    open_slots(w, vector, inner);
    for (number, instruction) in kernel.body.iter().enumerate() {
        match instruction.compute.store().filter(|&(param, _)| along(param)) {
            Some((param, stored)) => {
                let line = w.language.set_lane(param, instruction.dtype, "slot", &name(stored));
                w.line(line);
            }
            None => w.emit(&[number as ValueId], &mut scope),
        }
    }
    close_slots(w);
    w.open("if (start < points)");
    for (number, param) in written {
        let Some((_, stored)) = kernel.body[number as usize].compute.store() else { continue };
        let line = w.language.store_vector(param, vector, &w.place(param), stored);
        w.line(line);
    }
    w.close();
    w.close();
}

/// Opens the loop over the elements of a vector, `slot`; within it the index along the axis is that of the element.
pub(super) fn open_slots(w: &mut Writer<'_>, vector: u32, inner: usize) {
    w.line(w.language.unroll());
    w.open_loop("slot", "0", &format!("{vector}"), "slot + 1");
    let line = w.language.index("first", &format!("i{inner}"));
    w.line(line);
    w.open("");
    w.index(&format!("i{inner}"), "first + slot");
}

pub(super) fn close_slots(w: &mut Writer<'_>) {
    w.close();
    w.close();
}

/// Tiled transpose: operands that are contiguous along another axis pass through shared memory, so that loads and
/// stores are coalesced.
fn transpose(w: &mut Writer<'_>, outer: usize, inner: usize) {
    let kernel = w.kernel;
    let rows = w.schedule.block as usize / TILE;
    let others = kernel.all_axes() & !(1 << outer) & !(1 << inner);
    w.index("across", &format!("(e{inner} + {}) / {TILE}", TILE - 1));
    w.index("down", &format!("(e{outer} + {}) / {TILE}", TILE - 1));
    w.index("x", &format!("thread % {TILE}"));
    w.index("y", &format!("thread / {TILE}"));
    w.index("left", &format!("block % across * {TILE}"));
    w.index("top", &format!("block / across % down * {TILE}"));
    w.index("point", "block / across / down");
    w.decode("point", others);
    let mut scope = Scope::new(kernel);
    let turned = |param: u32| {
        let strides = &kernel.params[param as usize].strides;
        kernel.params[param as usize].kind == ParamKind::Input
            && strides[outer] == StrideClass::One
            && strides[inner] == StrideClass::Any
    };
    for (number, instruction) in kernel.body.iter().enumerate() {
        let Some(param) = instruction.compute.plain_load().filter(|&param| turned(param)) else { continue };
        let tile = format!("w{number}");
        w.share(&tile, instruction.dtype, TILE * (TILE + 1));
        w.open_loop("row", "y", &format!("{TILE}"), &format!("row + {rows}"));
        w.index(&format!("i{outer}"), "top + x");
        w.index(&format!("i{inner}"), "left + row");
        w.open(format!("if (i{outer} < e{outer} && i{inner} < e{inner})"));
        let load = w.language.load(param, instruction.dtype, &w.place(param));
        w.set(&format!("{tile}[row * {} + x]", TILE + 1), instruction.dtype, &load);
        w.close();
        w.close();
        let element = format!("{tile}[x * {} + row]", TILE + 1);
        scope.kept[number] = Some(w.language.element(&element, instruction.dtype));
    }
    w.barrier();
    w.open_loop("row", "y", &format!("{TILE}"), &format!("row + {rows}"));
    w.index(&format!("i{outer}"), "top + row");
    w.index(&format!("i{inner}"), "left + x");
    w.open(format!("if (i{outer} < e{outer} && i{inner} < e{inner})"));
    w.emit(&values_and_stores(kernel), &mut scope);
    w.close();
    w.close();
}

/// The scan of a kernel, and whether it is reversed and exclusive.
fn scanned(kernel: &Kernel) -> Option<(Total, bool, bool)> {
    kernel.body.iter().enumerate().find_map(|(number, instruction)| {
        let Compute::Scan { reduction, reverse, exclusive, value: operand } = instruction.compute else {
            return None;
        };
        let total = Total { value: number as ValueId, reduction, operand, dtype: instruction.dtype };
        Some((total, reverse, exclusive))
    })
}

/// One block per row, in chunks of one element per thread.
fn scan(w: &mut Writer<'_>) {
    let kernel = w.kernel;
    let block = w.schedule.block;
    let reduced = kernel.reduced();
    let Some((total, reverse, exclusive)) = scanned(kernel) else { return };
    let Total { value, reduction, operand, dtype } = total;
    w.index("length", &w.extent(reduced));
    w.decode("block", kernel.all_axes() & !reduced);
    let identity = w.language.constant(reduction.identity(dtype), dtype);
    let shared = format!("w{value}");
    let (own, language) = (format!("{shared}[thread]"), w.language);
    let at = |place: &str| language.element(&format!("{shared}[{place}]"), dtype);
    w.share(&shared, dtype, block as usize);
    let line = w.language.variable("carry", dtype, &identity);
    w.line(line);
    w.open_loop("start", "0", "length", &format!("start + {block}"));
    w.index("j", "start + thread");
    w.set(&own, dtype, &identity);
    w.open("if (j < length)");
    w.index("position", if reverse { "length - 1 - j" } else { "j" });
    w.decode("position", reduced);
    let mut before = Scope::new(kernel);
    w.emit(&kernel.needed_for(&[operand]), &mut before);
    w.set(&own, dtype, &name(operand));
    w.close();
    w.barrier();
    w.open_loop("half", "0", &format!("{}", block.ilog2()), "half + 1");
    let shift = w.language.of_index("half", DType::U32);
    w.index("distance", &format!("1 << {shift}"));
    let line = w.language.variable("sum", dtype, &at("thread"));
    w.line(line);
    w.open("if (thread >= distance)");
    let combined = w.combined(&total, &at("thread - distance"), "sum");
    w.line(format!("sum = {combined};"));
    w.close();
    w.barrier();
    w.set(&own, dtype, "sum");
    w.barrier();
    w.close();
    w.open("if (j < length)");
    w.index("position", if reverse { "length - 1 - j" } else { "j" });
    w.decode("position", reduced);
    if exclusive {
        let line = w.language.variable("sum", dtype, "carry");
        w.line(line);
        w.open("if (thread > 0)");
        let combined = w.combined(&total, "carry", &at("thread - 1"));
        w.line(format!("sum = {combined};"));
        w.close();
        let line = w.language.value(&name(value), dtype, "sum");
        w.line(line);
    } else {
        let combined = w.combined(&total, "carry", &at("thread"));
        let line = w.language.value(&name(value), dtype, &combined);
        w.line(line);
    }
    let mut after = Scope::new(kernel);
    after.define(value);
    let row_only = kernel.row_stores();
    let goals: Vec<ValueId> =
        kernel.stores().map(|(store, _)| store).filter(|s| !row_only.contains(s)).collect();
    let needed = kernel.needed_for(&goals).into_iter().filter(|v| *v != value);
    let needed: Vec<ValueId> = needed.collect();
    w.emit(&needed, &mut after);
    w.close();
    let carried = w.combined(&total, "carry", &at(&format!("{}", block - 1)));
    w.line(format!("carry = {carried};"));
    w.barrier();
    w.close();
    if !row_only.is_empty() {
        w.open("if (thread == 0)");
        w.emit(&kernel.needed_for(&row_only), &mut Scope::new(kernel));
        w.close();
    }
}

/// Tiled matmul: tiles of both factors in shared memory; one element of the result per thread.
fn matmul(w: &mut Writer<'_>) {
    let kernel = w.kernel;
    let (side, pitch) = (PRODUCT_TILE, PRODUCT_TILE + 1);
    let Some(Product { total, factors: [a, b] }) = kernel.product() else { return };
    let Total { value: product, reduction, operand: term, dtype } = total;
    let [batch, rows, columns] = kernel.product_axes();
    let inner = kernel.reduced();
    for (count, axes) in [("rows", rows), ("columns", columns), ("inner", inner)] {
        w.index(count, &w.extent(axes));
    }
    w.index("across", &format!("(columns + {}) / {side}", side - 1));
    w.index("down", &format!("(rows + {}) / {side}", side - 1));
    w.index("x", &format!("thread % {side}"));
    w.index("y", &format!("thread / {side}"));
    w.index("row", &format!("block / across % down * {side} + y"));
    w.index("column", &format!("block % across * {side} + x"));
    w.index("point", "block / across / down");
    w.decode("point", batch);
    let identity = w.language.constant(reduction.identity(dtype), dtype);
    let line = w.language.variable("sum", dtype, &identity);
    w.line(line);
    for shared in ["left", "right"] {
        w.share(shared, dtype, side * pitch);
    }
    w.open_loop("start", "0", "inner", &format!("start + {side}"));
    let tile = |w: &mut Writer<'_>, shared: &str, factor: ValueId, outer: (&str, AxisSet), along: &str| {
        w.set(&format!("{shared}[y * {pitch} + x]"), dtype, &identity);
        w.open(format!(
            "if ({} < {} && start + {along} < inner)",
            outer.0,
            if outer.0 == "row" { "rows" } else { "columns" }
        ));
        w.decode(outer.0, outer.1);
        w.index("step", &format!("start + {along}"));
        w.decode("step", inner);
        w.emit(&kernel.needed_for(&[factor]), &mut Scope::new(kernel));
        w.set(&format!("{shared}[y * {pitch} + x]"), dtype, &name(factor));
        w.close();
    };
    tile(w, "left", a, ("row", rows), "x");
    tile(w, "right", b, ("column", columns), "y");
    w.barrier();
    w.line(w.language.unroll());
    w.open_loop("q", "0", &format!("{side}"), "q + 1");
    let places = [format!("left[y * {pitch} + q]"), format!("right[q * {pitch} + x]")];
    let factors = places.map(|place| (w.language.element(&place, dtype), dtype));
    let multiplied = w.language.compute(&kernel.body[term as usize].compute, dtype, &factors);
    let line = w.language.value("term", dtype, &multiplied);
    w.line(line);
    let combined = w.combined(&total, "sum", "term");
    w.line(format!("sum = {combined};"));
    w.close();
    w.barrier();
    w.close();
    w.open("if (row < rows && column < columns)");
    w.decode("row", rows);
    w.decode("column", columns);
    let line = w.language.value(&name(product), dtype, "sum");
    w.line(line);
    let mut scope = Scope::new(kernel);
    scope.define(product);
    let goals: Vec<ValueId> = kernel.stores().map(|(store, _)| store).collect();
    w.emit(&kernel.needed_for(&goals), &mut scope);
    w.close();
}
