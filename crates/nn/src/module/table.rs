//! The table of a module's layers.

use super::{LayerSummary, Mode, Module, ParamId, Parameter, ParameterRole, Path, Visitor};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Debug};

/// A table of a module's layers with their parameters and totals. `Display` prints it.
#[derive(Clone, Debug, Default)]
pub struct LayerTable {
    rows: Vec<Row>,
    totals: Totals,
    /// Rows of the modules that are open: entered and not yet exited.
    open: Vec<usize>,
    /// The paths of the parameters.
    names: BTreeMap<ParamId, String>,
}

/// A module.
#[derive(Clone, Debug)]
struct Row {
    path: String,
    name: String,
    depth: usize,
    /// The path relative to the enclosing module, and the name of the type.
    title: String,
    attributes: Vec<String>,
    weights: Vec<String>,
    /// Number of elements in the parameters of the module and its submodules, without buffers.
    count: usize,
}

/// Numbers of elements by role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    trainable: usize,
    frozen: usize,
    buffers: usize,
}

impl LayerTable {
    /// Returns the table of a module.
    pub fn new(module: &dyn Module) -> LayerTable {
        let mut table = LayerTable::default();
        module.visit(&mut Path::new(), &mut table);
        table
    }

    /// The index of the innermost open module's row.
    pub(super) fn innermost(&self) -> usize {
        self.open.last().copied().unwrap_or(0)
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// The modules, without outputs and operations.
    pub(super) fn summary_rows(&self) -> Vec<LayerSummary> {
        let row = |row: &Row| LayerSummary {
            path: row.path.clone(),
            name: row.name.clone(),
            depth: row.depth,
            output: None,
            parameters: row.count,
            flops: 0,
            calls: 0,
            then: None,
        };
        self.rows.iter().map(row).collect()
    }

    fn add_weight(&mut self, path: &Path, parameter: &Parameter, note: &str) {
        let row = self.current();
        let name = relative(path.as_str(), &row.path);
        row.weights.push(format!("{name} {}{note}", parameter.value.ty()));
    }

    /// The row of the innermost open module. Parameters outside any module get their own row.
    fn current(&mut self) -> &mut Row {
        if self.open.is_empty() {
            self.enter(&Path::new(), "");
        }
        let innermost = self.innermost();
        &mut self.rows[innermost]
    }
}

impl Visitor for LayerTable {
    fn enter(&mut self, path: &Path, name: &str) {
        let around = self.open.last().map_or("", |&row| &self.rows[row].path);
        let own = relative(path.as_str(), around);
        let title = if own.is_empty() { name.to_string() } else { format!("{own}: {name}") };
        self.open.push(self.rows.len());
        self.rows.push(Row {
            path: path.to_string(),
            name: name.to_string(),
            depth: self.open.len() - 1,
            title,
            attributes: Vec::new(),
            weights: Vec::new(),
            count: 0,
        });
    }

    fn exit(&mut self, _path: &Path, _name: &str) {
        self.open.pop();
    }

    fn attribute(&mut self, path: &Path, value: &dyn Debug) {
        let row = self.current();
        let text = format!("{} {value:?}", relative(path.as_str(), &row.path));
        row.attributes.push(text);
    }

    fn mode(&mut self, path: &Path, mode: Mode) {
        match mode {
            Mode::Auto => {}
            Mode::Train | Mode::Eval => self.attribute(path, &mode),
        }
    }

    fn parameter(&mut self, path: &Path, parameter: Parameter) {
        let elements = parameter.value.shape().num_elements();
        self.names.insert(parameter.id, path.to_string());
        let note = match parameter.role {
            ParameterRole::Trainable => "",
            ParameterRole::Frozen => " (frozen)",
            ParameterRole::Buffer => " (buffer)",
        };
        self.add_weight(path, &parameter, note);
        match parameter.role {
            ParameterRole::Trainable => self.totals.trainable += elements,
            ParameterRole::Frozen => self.totals.frozen += elements,
            ParameterRole::Buffer => self.totals.buffers += elements,
        }
        if !parameter.is_buffer() {
            for &row in &self.open {
                self.rows[row].count += elements;
            }
        }
    }

    /// Shows the place. Its elements are counted at the first one.
    fn tied(&mut self, path: &Path, parameter: Parameter) {
        let note = format!(" (tied to {})", self.names.get(&parameter.id).map_or("", String::as_str));
        self.add_weight(path, &parameter, &note);
    }
}

impl fmt::Display for LayerTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles: Vec<String> = self.rows.iter().map(Row::title).collect();
        let weights: Vec<String> = self.rows.iter().map(|row| row.weights.join(", ")).collect();
        let counts: Vec<String> = self.rows.iter().map(|row| grouped(row.count as u64)).collect();
        let first = width("layer", &titles);
        let second = width("weights", &weights);
        let third = width("parameters", &counts);
        writeln!(f, "{:first$}  {:second$}  {:>third$}", "layer", "weights", "parameters")?;
        for ((title, weights), count) in titles.iter().zip(&weights).zip(&counts) {
            writeln!(f, "{title:first$}  {weights:second$}  {count:>third$}")?;
        }
        write!(f, "{}", self.totals)
    }
}

impl Row {
    fn title(&self) -> String {
        let indent = "  ".repeat(self.depth);
        match self.attributes.is_empty() {
            true => format!("{indent}{}", self.title),
            false => format!("{indent}{} ({})", self.title, self.attributes.join(", ")),
        }
    }
}

impl Totals {
    /// The number of elements in parameters, without buffers.
    pub(super) fn parameters(self) -> usize {
        self.trainable + self.frozen
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} parameters", grouped(self.parameters() as u64))?;
        if self.frozen > 0 {
            write!(
                f,
                " ({} trainable, {} frozen)",
                grouped(self.trainable as u64),
                grouped(self.frozen as u64)
            )?;
        }
        if self.buffers > 0 {
            write!(f, ", {} elements in buffers", grouped(self.buffers as u64))?;
        }
        Ok(())
    }
}

/// The path relative to the path of the enclosing module.
pub(super) fn relative<'a>(path: &'a str, around: &str) -> &'a str {
    path.strip_prefix(around).map_or(path, |rest| rest.trim_start_matches('.'))
}

pub(super) fn width(heading: &str, cells: &[String]) -> usize {
    cells.iter().map(|cell| cell.chars().count()).chain([heading.len()]).max().unwrap_or(0)
}

/// Formats an integer with thousands separators: `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated_by_commas() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(1234567), "1,234,567");
    }

    #[test]
    fn paths_are_relative_to_the_parent_module() {
        assert_eq!(relative("layers.0.weight", "layers.0"), "weight");
        assert_eq!(relative("weight", ""), "weight");
    }
}
