//! A workload: its minimum costs, and Kiln's target.

use std::borrow::Borrow;

/// One workload.
#[derive(Debug)]
pub(crate) struct Row {
    /// The name for peers.
    pub(crate) name: &'static str,
    /// Sizes, as text.
    pub(crate) shape: &'static str,
    /// The target for Kiln.
    pub(crate) must: Must,
    /// The kind of workload.
    pub(crate) kind: Kind,
    /// Floating-point operations of one repeat, in millions; 0 where they are not meaningful.
    pub(crate) megaflops: f64,
    /// Bytes of operands and results, in millions: the minimum memory traffic. 0 where it is not meaningful.
    pub(crate) megabytes: f64,
    /// Items processed by one repeat, with their name: 16384 tokens.
    pub(crate) items: Option<(f64, &'static str)>,
}

/// A workload whose repeats do not count items.
pub(crate) const fn row(
    name: &'static str,
    shape: &'static str,
    must: Must,
    kind: Kind,
    megaflops: f64,
    megabytes: f64,
) -> Row {
    Row { name, shape, must, kind, megaflops, megabytes, items: None }
}

/// A target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Must {
    /// The time of the best peer divided by Kiln's.
    Ratio(f64),
    /// The time of the peer with that name divided by Kiln's.
    RatioTo(&'static str, f64),
    /// Maximum seconds per repeat.
    Seconds(f64),
    /// Maximum nanoseconds per operation.
    Nanoseconds(f64),
}

/// The kind of a workload, which determines how it is measured and shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// Matmuls and convolutions: shown as a fraction of the machine's limit.
    Contraction,
    /// Other repeated workloads.
    Plain,
    /// Training steps: the loss must fall, and memory is measured.
    Training,
    /// Inference by a model from a file; memory is measured.
    Model,
    /// The cost of one operation, shown in nanoseconds.
    Overhead,
    /// Loading of the weight file.
    Load,
    /// The first repeat of a new process, including compilation.
    FirstStep,
}

/// The workloads with these names, all if none is given.
pub(crate) fn select<T: Borrow<Row>>(rows: &'static [T], names: &[&str]) -> Result<Vec<&'static T>, String> {
    let known = |name: &&str| rows.iter().any(|row| name_of(row) == *name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let all: Vec<&str> = rows.iter().map(name_of).collect();
        return Err(format!(
            "no workload is called `{unknown}`\n  hint: the workloads are {}",
            all.join(", ")
        ));
    }
    Ok(rows.iter().filter(|row| names.is_empty() || names.contains(&name_of(*row))).collect())
}

fn name_of<T: Borrow<Row>>(row: &T) -> &'static str {
    let row: &Row = row.borrow();
    row.name
}

/// A name that occurs twice, if any.
#[cfg(test)]
pub(crate) fn repeated_name<T: Borrow<Row>>(rows: &[T]) -> Option<&'static str> {
    let names: Vec<&str> = rows.iter().map(name_of).collect();
    names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)).map(|(_, name)| *name)
}
