//! A workload: what it costs at least, and what Kiln must reach on it.

/// One workload.
#[derive(Debug)]
pub(crate) struct Row {
    /// As peers know it.
    pub(crate) name: &'static str,
    /// Sizes, for readers.
    pub(crate) shape: &'static str,
    /// What Kiln must reach.
    pub(crate) must: Must,
    /// What kind of work it is.
    pub(crate) kind: Kind,
    /// Floating-point operations of one repeat, in millions; 0 where they say little.
    pub(crate) megaflops: f64,
    /// Bytes of operands and results, in millions: the least that moves; 0 where it says little.
    pub(crate) megabytes: f64,
    /// What one repeat is through with, and how it is called: 16384 tokens.
    pub(crate) items: Option<(f64, &'static str)>,
}

/// A target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Must {
    /// The time of the best peer divided by Kiln's.
    Ratio(f64),
    /// The time of the peer with that name divided by Kiln's.
    RatioTo(&'static str, f64),
    /// The most seconds that a repeat may take.
    Seconds(f64),
    /// The most that an operation may take, in nanoseconds.
    Nanoseconds(f64),
}

/// What decides how a workload is measured and shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// Matrix products and convolutions: shown as a fraction of the machine's limit.
    Contraction,
    /// Anything else that is repeated.
    Plain,
    /// Training steps: the loss must fall, and memory is measured.
    Training,
    /// The cost of one operation, shown in nanoseconds.
    Overhead,
    /// Needs the file of weights.
    Load,
    /// The first repeat of a fresh process, compilation included.
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

/// The names that no other of these workloads has twice.
#[cfg(test)]
pub(crate) fn repeated_name(rows: &[Row]) -> Option<&'static str> {
    let again =
        |(i, row): (usize, &Row)| rows[..i].iter().any(|other| other.name == row.name).then_some(row.name);
    rows.iter().enumerate().find_map(again)
}
