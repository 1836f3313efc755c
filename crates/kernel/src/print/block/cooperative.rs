//! Cooperative matrices in WGSL, by wgpu's extension of the language.

use super::walk::primary;
use super::{param_name, shared_name, variable_name};
use crate::block::{
    BlockKernel, Cooperative, Expression, MatrixMemory, MatrixPlace, MatrixRole, MatrixType, Statement,
};
use alloc::format;
use alloc::string::String;
use core::fmt::Write;
use kiln_ir::DType;

/// The directives at the start of a module. Empty for a kernel without cooperative matrices, as are the other parts.
pub(super) fn enabled(kernel: &BlockKernel) -> String {
    let mut text = String::new();
    if kernel.tiles.iter().any(|tile| tile.dtype == DType::F16) {
        text.push_str("enable f16;\n");
    }
    if kernel.is_cooperative() {
        text.push_str("enable wgpu_cooperative_matrix;\n");
    }
    text
}

/// The tiles of factors.
pub(super) fn memory(kernel: &BlockKernel) -> String {
    let mut text = String::new();
    for (number, tile) in (0..).zip(&kernel.tiles) {
        let (name, ty, len) = (tile_name(number), tile.dtype.name(), tile.len);
        let _ = writeln!(text, "var<workgroup> {name}: array<{ty}, {len}>;");
    }
    text
}

/// Further parameters of the entry point.
pub(super) fn builtins(kernel: &BlockKernel) -> &'static str {
    let mut uses_subgroup = false;
    kernel.for_each_statement(|statement| {
        uses_subgroup |= matches!(statement, Statement::Cooperative(Cooperative::Subgroup(_)));
    });
    if uses_subgroup { ", @builtin(subgroup_id) subgroup: u32" } else { "" }
}

/// A statement; `text` prints an expression.
pub(super) fn statement(
    kernel: &BlockKernel,
    statement: &Cooperative,
    text: &dyn Fn(&Expression) -> String,
) -> String {
    match statement {
        Cooperative::Subgroup(number) => format!("let {}: i32 = i32(subgroup);", variable_name(*number)),
        Cooperative::Load { matrix, ty, from } => {
            let define = if ty.role == MatrixRole::Sums { "var" } else { "let" };
            let (name, order, place) = (variable_name(*matrix), order(from), place(from, text));
            format!("{define} {name} = coopLoad{order}<{}>({place});", matrix_type(*ty))
        }
        Cooperative::MultiplyAdd { factors, sums } => {
            let ([left, right], sums) = (factors.map(variable_name), variable_name(*sums));
            format!("{sums} = coopMultiplyAdd({left}, {right}, {sums});")
        }
        Cooperative::Store { matrix, to } => {
            format!("coopStore{}({}, {});", order(to), variable_name(*matrix), place(to, text))
        }
        Cooperative::Fetch { variable, param, count, at, condition } => {
            fetch(kernel, *variable, *param, *count, [&text(at), &text(condition)])
        }
        Cooperative::Unpack { variable, tile, count, at } => {
            unpack(kernel, *variable, *tile, *count, &text(at))
        }
        Cooperative::StorePair { param, at, values: [a, b] } => {
            let (name, element) = (param_name(kernel, *param), element(kernel, *param, &text(at)));
            let (a, b) = (text(a), text(b));
            format!("atomicStore(&{name}[({element}) >> 1u], kiln_to_f16({a}) | (kiln_to_f16({b}) << 16u));")
        }
    }
}

/// Reads elements, of which two `f16` are one word.
fn fetch(
    kernel: &BlockKernel,
    variable: u32,
    param: u32,
    count: usize,
    [at, condition]: [&str; 2],
) -> String {
    let (name, variable) = (param_name(kernel, param), variable_name(variable));
    let at = element(kernel, param, at);
    let is_half = kernel.params[param as usize].dtype == DType::F16;
    let (zero, read) = match (is_half, count) {
        (true, 1) => (
            "0u",
            format!(
                "let place = {at}; {variable} = ({name}[place >> 1u] >> ((u32(place) & 1u) * 16u)) & 0xffffu;"
            ),
        ),
        (true, _) => ("0u", format!("{variable} = {name}[({at}) >> 1u];")),
        (false, _) => ("0.0f", format!("{variable} = {name}[{at}];")),
    };
    format!("{variable} = {zero}; if ({condition}) {{ {read} }}")
}

/// Stores elements to a tile. The conversion from a word of two `f16` goes through `f32`, which has all of them.
fn unpack(kernel: &BlockKernel, variable: u32, tile: u32, count: usize, at: &str) -> String {
    let (name, variable) = (tile_name(tile), variable_name(variable));
    match (kernel.tiles[tile as usize].dtype == DType::F16, count) {
        (true, 1) => format!("{name}[{at}] = f16(unpack2x16float({variable}).x);"),
        (true, _) => format!(
            "{{ let place = {at}; let pair = vec2<f16>(unpack2x16float({variable})); {name}[place] = pair.x; {name}[place + 1] = pair.y; }}"
        ),
        (false, _) => format!("{name}[{at}] = {variable};"),
    }
}

/// The index of an element in a tensor's buffer.
fn element(kernel: &BlockKernel, param: u32, at: &str) -> String {
    format!("{}_first + {}", param_name(kernel, param), primary(at.into()))
}

fn tile_name(tile: u32) -> String {
    format!("t{tile}")
}

fn matrix_type(MatrixType { role, size, dtype }: MatrixType) -> String {
    let role = match role {
        MatrixRole::Left => "A",
        MatrixRole::Right => "B",
        MatrixRole::Sums => "C",
    };
    format!("coop_mat{size}x{size}<{}, {role}>", dtype.name())
}

/// The end of a function's name for the order of elements.
fn order(place: &MatrixPlace) -> &'static str {
    if place.is_column_major { "" } else { "T" }
}

/// The arguments for a place: a pointer, and the distance of rows or columns.
fn place(place: &MatrixPlace, text: &dyn Fn(&Expression) -> String) -> String {
    let name = match place.memory {
        MatrixMemory::Tile(tile) => tile_name(tile),
        MatrixMemory::Shared(array) => shared_name(array),
    };
    format!("&{name}[{}], {}u", text(&place.at), place.pitch)
}
