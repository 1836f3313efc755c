//! A workload: its minimum costs, and Kiln's target.

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
pub(crate) fn select(rows: &'static [Row], names: &[&str]) -> Result<Vec<&'static Row>, String> {
    let known = |name: &&str| rows.iter().any(|row| row.name == *name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let all: Vec<&str> = rows.iter().map(|row| row.name).collect();
        return Err(format!(
            "no workload is called `{unknown}`\n  hint: the workloads are {}",
            all.join(", ")
        ));
    }
    Ok(rows.iter().filter(|row| names.is_empty() || names.contains(&row.name)).collect())
}

/// A name that occurs twice, if any.
#[cfg(test)]
pub(crate) fn repeated_name(rows: &[Row]) -> Option<&'static str> {
    let again =
        |(i, row): (usize, &Row)| rows[..i].iter().any(|other| other.name == row.name).then_some(row.name);
    rows.iter().enumerate().find_map(again)
}
