//! The coverage report: the suite's checks of each op and each method, on each engine.
//!
//! It is derived from the tables, which the tests enforce: a mark means that a test checks the property.

use crate::case::{Case, Grad};
use crate::cases;
use crate::check::differentiates;
use crate::coverage::variant;
use crate::engines::{CANDLE, CPU_ONE, LIBTORCH, Mode, REFERENCE, REMOTE, ROUTER, Subject};
use crate::goldens;
use crate::methods::{self, EXEMPT, FAMILIES, Gradient, Method};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The engines of the report. Several configurations of one engine share a column.
const COLUMNS: [Subject; 6] = [REFERENCE, CPU_ONE, ROUTER, REMOTE, CANDLE, LIBTORCH];

/// The first engines, which have a column for each mode. The others have one column: their cells are equal except for
/// the cases that they do not pass.
const DETAILED: usize = 2;

/// The status of an op or method in one mode on one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cell {
    Checked,
    /// Not checked, for this reason.
    Not(String),
    Missing,
}

/// A row of the report.
struct Row {
    name: String,
    /// Forward, gradient and second order, by engine.
    cells: Vec<[Cell; 3]>,
    /// Number of PyTorch goldens, if applicable.
    goldens: Option<usize>,
}

/// The report: Markdown, and the names of all cells that are empty without a reason.
pub struct Report {
    /// The page.
    pub page: String,
    /// `name: column` of each missing cell.
    pub missing: Vec<String>,
}

/// Reads the tables.
pub fn report() -> Report {
    let ops = op_rows();
    let counts = golden_counts();
    let mut notes = Notes::default();
    let mut page = String::from(HEAD);
    let families = FAMILIES.iter().map(|(family, rows)| {
        let rows: Vec<Row> = by_name(rows()).iter().map(|rows| method_row(rows, &counts)).collect();
        ((*family).to_owned(), rows)
    });
    let families: Vec<(String, Vec<Row>)> = families.filter(|(_, rows)| !rows.is_empty()).collect();
    let unlisted = unlisted();
    let missing = ops.iter().chain(families.iter().flat_map(|(_, rows)| rows)).chain(&unlisted);
    let missing = missing.flat_map(missing_cells).chain(unclaimed(&counts));
    let missing: Vec<String> = missing.collect();

    let methods: usize = families.iter().map(|(_, rows)| rows.len()).sum();
    let golden: usize = counts.values().sum();
    writeln!(
        page,
        "{} variants of ops, {methods} methods and functions, {golden} cases from PyTorch that call these; {} \
         empty cells without a reason.\n",
        ops.len(),
        missing.len()
    )
    .expect("text grows");
    table(&mut page, "Ops", &ops, &mut notes);
    for (family, rows) in &families {
        table(&mut page, &format!("Methods: {family}"), rows, &mut notes);
    }
    if !unlisted.is_empty() {
        table(&mut page, "Methods without a row", &unlisted, &mut notes);
    }
    exempt(&mut page);
    notes.write(&mut page);
    Report { page, missing }
}

const HEAD: &str = "\
# Operations

<!-- Written by `cargo xtask ops`; edit the tables of the suite, not this page. -->

The checks of the test suite, generated from its tables. *Forward*: values agree with the reference (and those of the
reference with PyTorch and the tables of NumPy, Boost and FFTW), in every dtype, on empty, single-element, broadcast
and non-contiguous operands, plain and recorded by automatic differentiation. *Gradient* and *second*: first and
second derivatives agree with finite differences. The engines after these have one column for all modes. A number
refers to the reason, below, why a mode is not checked.

";

#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    fn mark(&mut self, cell: &Cell) -> String {
        match cell {
            Cell::Checked => "✓".into(),
            Cell::Missing => "**missing**".into(),
            Cell::Not(reason) => {
                let known = self.0.iter().position(|note| note == reason);
                let place = known.unwrap_or_else(|| {
                    self.0.push(reason.clone());
                    self.0.len() - 1
                });
                format!("{}", place + 1)
            }
        }
    }

    fn write(&self, page: &mut String) {
        page.push_str("## Reasons\n\n");
        for (place, note) in self.0.iter().enumerate() {
            writeln!(page, "{}. {note}", place + 1).expect("text grows");
        }
    }
}

fn table(page: &mut String, title: &str, rows: &[Row], notes: &mut Notes) {
    write!(page, "## {title}\n\n|").expect("text grows");
    let (detailed, others) = COLUMNS.split_at(DETAILED);
    for engine in detailed {
        write!(page, " | {}: forward | gradient | second", short(engine)).expect("text grows");
    }
    for engine in others {
        write!(page, " | {}", short(engine)).expect("text grows");
    }
    page.push_str(" | PyTorch cases |\n|---");
    page.push_str(&"|---".repeat(detailed.len() * 3 + others.len() + 1));
    page.push_str("|\n");
    for row in rows {
        write!(page, "| `{}`", row.name).expect("text grows");
        let (detailed, others) = row.cells.split_at(DETAILED);
        for cell in detailed.iter().flatten().chain(others.iter().map(worst)) {
            write!(page, " | {}", notes.mark(cell)).expect("text grows");
        }
        let goldens = row.goldens.map_or(String::new(), |count| count.to_string());
        writeln!(page, " | {goldens} |").expect("text grows");
    }
    page.push('\n');
}

/// A missing cell if there is one; else that of the values.
fn worst(cells: &[Cell; 3]) -> &Cell {
    cells.iter().find(|cell| **cell == Cell::Missing).unwrap_or(&cells[0])
}

fn short(subject: &Subject) -> &'static str {
    subject.name.split(',').next().unwrap_or(subject.name)
}

fn missing_cells(row: &Row) -> Vec<String> {
    let modes = ["forward", "gradient", "second"];
    let cells = row.cells.iter().zip(&COLUMNS).flat_map(|(cells, engine)| {
        let missing = cells.iter().zip(modes).filter(|(cell, _)| **cell == Cell::Missing);
        missing.map(move |(_, mode)| format!("{}: {mode} on {}", row.name, short(engine)))
    });
    cells.collect()
}

fn exempt(page: &mut String) {
    page.push_str("## Methods that need no row\n\n| method | why |\n|---|---|\n");
    for (name, why) in EXEMPT {
        writeln!(page, "| `{name}` | {why} |").expect("text grows");
    }
    page.push('\n');
}

// Ops.

fn op_rows() -> Vec<Row> {
    let mut order: Vec<String> = Vec::new();
    let mut of: BTreeMap<String, Vec<Case>> = BTreeMap::new();
    for case in cases::all() {
        let name = variant(&case.op);
        if !of.contains_key(&name) {
            order.push(name.clone());
        }
        of.entry(name).or_default().push(case);
    }
    order.iter().map(|name| op_row(name, &of[name])).collect()
}

fn op_row(name: &str, cases: &[Case]) -> Row {
    let cells = COLUMNS.iter().map(|engine| {
        let passes = |mode: Mode, case: &&Case| engine.ignored(mode, &case.name).is_none();
        let forward =
            if cases.iter().any(|case| passes(Mode::Value, &case)) { Cell::Checked } else { Cell::Missing };
        let differentiated: Vec<&Case> =
            cases.iter().filter(|case| differentiates(case) && passes(Mode::Grad, case)).collect();
        let smooth = differentiated.iter().any(|case| case.grad == Grad::Smooth);
        let second = match (differentiated.is_empty(), smooth) {
            (_, true) => Cell::Checked,
            (false, false) => {
                Cell::Not("differentiable once: it has kinks or jumps, or is linear between them".into())
            }
            (true, false) => no_gradient(cases),
        };
        let gradient = if differentiated.is_empty() { no_gradient(cases) } else { Cell::Checked };
        [forward, gradient, second]
    });
    Row { name: name.into(), cells: cells.collect(), goldens: None }
}

fn no_gradient(cases: &[Case]) -> Cell {
    let reason = cases.iter().find_map(|case| match case.grad {
        Grad::None(reason) => Some(reason.to_owned()),
        Grad::Smooth | Grad::Piecewise => None,
    });
    let has_floats = |case: &Case| {
        case.operand_types().iter().any(|kind| kind.tensor().is_some_and(|ty| ty.dtype.is_float()))
    };
    match reason {
        Some(reason) => Cell::Not(reason),
        None if !cases.iter().any(has_floats) => Cell::Not("has no float operands".into()),
        None => Cell::Missing,
    }
}

// Methods.

/// Rows of one method together, in the order of the table.
fn by_name(rows: Vec<Method>) -> Vec<Vec<Method>> {
    let mut groups: Vec<Vec<Method>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| group[0].name == row.name) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

fn method_row(rows: &[Method], goldens: &BTreeMap<String, usize>) -> Row {
    let best = |mark: fn(&Method) -> Cell| {
        let cells: Vec<Cell> = rows.iter().map(mark).collect();
        if cells.contains(&Cell::Checked) { Cell::Checked } else { cells[0].clone() }
    };
    let cells = [Cell::Checked, best(first), best(second)];
    // Goldens of functions count for all their rows.
    let keys: BTreeSet<String> = rows.iter().map(Method::key).chain([rows[0].name.into()]).collect();
    let count = keys.iter().filter_map(|key| goldens.get(key)).sum();
    Row { name: rows[0].name.into(), cells: vec![cells; COLUMNS.len()], goldens: Some(count) }
}

fn first(row: &Method) -> Cell {
    match row.gradient {
        Gradient::Twice | Gradient::Once(_) if row.cases.iter().flatten().any(|a| a.differentiated) => {
            Cell::Checked
        }
        Gradient::Twice | Gradient::Once(_) => Cell::Missing,
        Gradient::None(reason) => Cell::Not(reason.into()),
    }
}

fn second(row: &Method) -> Cell {
    match row.gradient {
        Gradient::Once(reason) => Cell::Not(reason.into()),
        Gradient::Twice | Gradient::None(_) => first(row),
    }
}

fn unlisted() -> Vec<Row> {
    let covered: BTreeSet<&str> = methods::all().iter().map(|method| method.name).collect();
    let exempt: BTreeSet<&str> = EXEMPT.iter().map(|(name, _)| *name).collect();
    let names = methods::surface().into_iter();
    let unlisted = names.filter(|name| !covered.contains(name.as_str()) && !exempt.contains(name.as_str()));
    let missing = [Cell::Missing, Cell::Missing, Cell::Missing];
    unlisted.map(|name| Row { name, cells: vec![missing.clone(); COLUMNS.len()], goldens: Some(0) }).collect()
}

/// The number of goldens per row: families `method_*` count by key and, with the feature `linalg`, the family of that
/// name by function name.
fn golden_counts() -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for family in goldens::FAMILIES.iter().filter(|family| family.starts_with("method_")) {
        for golden in goldens::read_family(family) {
            *counts.entry(golden.op).or_default() += 1;
        }
    }
    if cfg!(feature = "linalg") {
        for golden in goldens::read_family("linalg") {
            *counts.entry(function_of(&golden.op)).or_default() += 1;
        }
    }
    counts
}

/// The function of an op of the golden family `linalg`, whose names also contain the kind of matrices and the result.
fn function_of(op: &str) -> String {
    let (module, op) = match op.strip_prefix("complex_") {
        Some(op) => ("linalg::complex", op),
        None => ("linalg", op),
    };
    let op = op.strip_prefix("spd_").or(op.strip_prefix("sym_")).unwrap_or(op);
    let op = op.strip_suffix("_residuals").or(op.strip_suffix("_vectors")).unwrap_or(op);
    format!("{module}::{op}")
}

/// PyTorch goldens without a row.
fn unclaimed(counts: &BTreeMap<String, usize>) -> Vec<String> {
    let rows = methods::all();
    let known: BTreeSet<String> = rows.iter().flat_map(|row| [row.key(), row.name.to_owned()]).collect();
    let unclaimed = counts.keys().filter(|key| !known.contains(*key));
    unclaimed.map(|key| format!("{key}: PyTorch has cases, but no row has this key")).collect()
}
