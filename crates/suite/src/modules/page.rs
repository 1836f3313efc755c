//! The table of modules in the book.
//!
//! It is derived from the rows, which the tests enforce: a mark means that a test checks the property.

use super::{GROUPS, ModuleRow, OPTIMIZERS, SCHEDULES, Twin};
use crate::goldens;
use crate::methods::Gradient;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The page: Markdown, and the names of all cells that are empty without a reason.
pub struct Page {
    /// The page.
    pub text: String,
    /// `name: column` of each empty cell.
    pub missing: Vec<String>,
}

/// The columns after the name.
const COLUMNS: [&str; 6] = ["forward", "gradient", "saved", "second order", "fused", "CUDA"];

/// A property of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cell {
    /// A test checks it.
    Checked,
    /// It is not checked, for this reason.
    Not(&'static str),
    Missing,
}

/// Cases from PyTorch by family and op: their number, and the number of those with gradients.
type Counts = BTreeMap<(String, String), (usize, usize)>;

const HEAD: &str = "\
# Modules

<!-- `cargo xtask modules` writes this page; `cargo xtask test` checks it. -->

A mark means that a test checks the property of the module:

* **forward**, **gradient**: results and gradients are those of PyTorch, for stored inputs (`crates/suite/goldens`).
* **saved**: parameters and buffers are equal after they were saved and loaded by name. An optimizer or schedule that was
  saved and loaded in the middle continues bit for bit.
* **second order**: first and second derivatives by inputs and parameters agree with finite differences.
* **fused**: values and gradients on `Cpu`, whose ops are fused, are those of the reference engine.
* **CUDA**: the same on an NVIDIA GPU. Continuous integration has none; the tests run there by `cargo xtask bundle`.

";

const NO_GRADIENT: &str = "its results have no gradients";
const NUMBERS: &str = "it computes one number for a step";

/// Reads the tables.
pub fn page() -> Page {
    let counts = counts();
    let mut text = String::from(HEAD);
    let (mut missing, mut notes, mut totals) = (Vec::new(), Notes::default(), [0; 4]);
    let mut table = |group: &str, rows: Vec<(&str, [Cell; 6])>, total: usize| {
        totals[total] += rows.len();
        write!(
            text,
            "## {group}\n\n| name | {} |\n|---|{}\n",
            COLUMNS.join(" | "),
            "---|".repeat(COLUMNS.len())
        )
        .expect("text grows");
        for (name, cells) in rows {
            let empty = cells.iter().zip(COLUMNS).filter(|(cell, _)| **cell == Cell::Missing);
            missing.extend(empty.map(|(_, column)| format!("{name}: {column}")));
            let marks: Vec<String> = cells.iter().map(|cell| notes.mark(cell)).collect();
            writeln!(text, "| `{name}` | {} |", marks.join(" | ")).expect("text grows");
        }
        text.push('\n');
    };
    for (group, rows) in GROUPS {
        let mut by_name: BTreeMap<&str, Vec<ModuleRow>> = BTreeMap::new();
        rows().into_iter().for_each(|row| by_name.entry(row.method.name).or_default().push(row));
        let rows = by_name.into_iter().map(|(name, rows)| (name, cells(&rows, &counts))).collect();
        table(group, rows, usize::from(*group == "Losses"));
    }
    let optimizer = |twin| {
        let none = || Cell::Not(NO_GRADIENT);
        [golden(twin, &counts), none(), Cell::Checked, none(), Cell::Checked, Cell::Checked]
    };
    table("Optimizers", OPTIMIZERS.iter().map(|row| (row.name, optimizer(row.twin))).collect(), 2);
    let schedule = |twin| {
        let none = || Cell::Not(NUMBERS);
        [golden(twin, &counts), none(), Cell::Checked, none(), none(), none()]
    };
    table("Schedules", SCHEDULES.iter().map(|row| (row.name, schedule(row.twin))).collect(), 3);
    notes.list(&mut text);
    let [modules, losses, optimizers, schedules] = totals;
    writeln!(
        text,
        "\n{modules} modules, {losses} losses, {optimizers} optimizers, {schedules} schedules, {} empty cells without a \
         reason",
        missing.len()
    )
    .expect("text grows");
    Page { text, missing }
}

/// The cell of PyTorch's results.
fn golden(twin: Twin, counts: &Counts) -> Cell {
    match twin {
        Twin::None(reason) => Cell::Not(reason),
        Twin::Golden(family, op) | Twin::Values(family, op, _) => {
            match counts.get(&(family.into(), op.into())) {
                Some((1.., _)) => Cell::Checked,
                Some((0, _)) | None => Cell::Missing,
            }
        }
    }
}

/// The cells of a module with these rows.
fn cells(rows: &[ModuleRow], counts: &Counts) -> [Cell; 6] {
    let [forward, gradient] = goldens_of(rows, counts);
    let any = |found: fn(&ModuleRow) -> Cell| {
        let cells: Vec<Cell> = rows.iter().map(found).collect();
        cells.iter().find(|cell| **cell == Cell::Checked).or(cells.first()).cloned().unwrap_or(Cell::Missing)
    };
    let second = any(|row| match row.method.gradient {
        Gradient::Twice => Cell::Checked,
        Gradient::Once(why) | Gradient::None(why) => Cell::Not(why),
    });
    [forward, gradient, Cell::Checked, second, Cell::Checked, Cell::Checked]
}

fn goldens_of(rows: &[ModuleRow], counts: &Counts) -> [Cell; 2] {
    let (mut found, mut why) = ((0, 0), None);
    for row in rows {
        match row.twin {
            Twin::Golden(family, op) => {
                let (cases, gradients) = counts.get(&(family.into(), op.into())).copied().unwrap_or_default();
                found = (found.0 + cases, found.1 + gradients);
            }
            Twin::Values(family, op, reason) => {
                found.0 += counts.get(&(family.into(), op.into())).map_or(0, |(cases, _)| *cases);
                why = Some(reason);
            }
            Twin::None(reason) => why = Some(reason),
        }
    }
    let empty = why.map_or(Cell::Missing, Cell::Not);
    let cell = |count: usize| if count > 0 { Cell::Checked } else { empty.clone() };
    let no_gradient = rows.iter().find_map(|row| match row.method.gradient {
        Gradient::None(reason) => Some(Cell::Not(reason)),
        Gradient::Once(_) | Gradient::Twice => None,
    });
    let gradient = if found.1 == 0 { no_gradient.unwrap_or_else(|| cell(0)) } else { Cell::Checked };
    [cell(found.0), gradient]
}

fn counts() -> Counts {
    let mut counts = Counts::new();
    for family in goldens::FAMILIES.iter().chain(goldens::HOST_FAMILIES) {
        for case in goldens::read_family(family) {
            let count = counts.entry(((*family).into(), case.op.clone())).or_default();
            count.0 += 1;
            count.1 += usize::from(!case.gradients.is_empty());
        }
    }
    counts
}

/// Reasons, numbered in the order of their first use.
#[derive(Default)]
struct Notes {
    reasons: Vec<&'static str>,
    seen: BTreeSet<&'static str>,
}

impl Notes {
    fn mark(&mut self, cell: &Cell) -> String {
        match cell {
            Cell::Checked => "✓".into(),
            Cell::Missing => "**missing**".into(),
            Cell::Not(reason) => {
                if self.seen.insert(reason) {
                    self.reasons.push(reason);
                }
                let number =
                    self.reasons.iter().position(|known| known == reason).map_or(0, |place| place + 1);
                format!("[{number}](#reasons)")
            }
        }
    }

    fn list(&self, text: &mut String) {
        text.push_str("## Reasons\n\n");
        for (place, reason) in self.reasons.iter().enumerate() {
            writeln!(text, "{}. {reason}", place + 1).expect("text grows");
        }
    }
}
