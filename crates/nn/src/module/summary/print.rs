//! The table of a summary.

use super::{FunctionSummary, LayerSummary, Summary};
use crate::module::table::{grouped, relative, width};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use kiln_tensor::TensorType;

const HEADINGS: [&str; 4] = ["layer", "output", "parameters", "FLOPs"];

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.lines();
        let column = |place: usize| lines.iter().map(|line| line[place].clone()).collect::<Vec<_>>();
        let [a, b, c, d]: [usize; 4] = core::array::from_fn(|place| width(HEADINGS[place], &column(place)));
        for [layer, output, parameters, flops] in [HEADINGS.map(String::from)].iter().chain(&lines) {
            writeln!(f, "{layer:a$}  {output:b$}  {parameters:>c$}  {flops:>d$}")?;
        }
        write!(f, "{}, {} FLOPs", self.totals, grouped(self.flops))
    }
}

impl Summary {
    fn lines(&self) -> Vec<[String; 4]> {
        let mut lines: Vec<[String; 4]> = Vec::new();
        let mut around: Vec<&LayerSummary> = Vec::new();
        lines.extend(self.before.as_ref().map(|before| functions(before, 0)));
        for row in &self.rows {
            around.truncate(row.depth);
            lines.push(layer(row, around.last().map_or("", |outer| &outer.path)));
            lines.extend(row.then.as_ref().map(|then| functions(then, row.depth)));
            around.push(row);
        }
        lines
    }
}

fn layer(row: &LayerSummary, around: &str) -> [String; 4] {
    let own = relative(&row.path, around);
    let title = if own.is_empty() { row.name.clone() } else { format!("{own}: {}", row.name) };
    let calls = if row.calls > 1 { format!(" ({} calls)", row.calls) } else { String::new() };
    let output = row.output.as_ref().map_or(String::new(), shape);
    [
        indented(&format!("{title}{calls}"), row.depth),
        output,
        grouped(row.parameters as u64),
        grouped(row.flops),
    ]
}

fn functions(functions: &FunctionSummary, depth: usize) -> [String; 4] {
    let title = format!("+ {}", functions.ops.join(", "));
    [indented(&title, depth), shape(&functions.output), String::new(), grouped(functions.flops)]
}

fn indented(title: &str, depth: usize) -> String {
    format!("{}{title}", "  ".repeat(depth))
}

fn shape(ty: &TensorType) -> String {
    format!("{:?}", ty.shape.iter().map(ToString::to_string).collect::<Vec<_>>()).replace('"', "")
}
