//! Checks that the page for Burn users has a row for every deliberate difference.

use super::{Finding, Tree};

const PAGE: &str = "book/src/coming-from-burn.md";

/// The first cells of the rows.
const DIFFERENCES: &[&str] = &[
    "Records",
    "Batches and data sets return `Result`",
    "The device is in the batcher",
    "Training programs",
    "`into_scalar` names its type",
    "`Device<B>` has a path",
    "`convert` takes a dtype",
    "`TensorData::new` returns a `Result`",
    "`Explicit` padding of 0.19 and 0.20",
    "One-dimensional layers take arrays",
    "Samplers return `Result`",
    "`Sampling` in place of sampler options",
    "A server is local unless told otherwise",
    "No `async` server",
    "No creation options",
    "No tensor primitives",
    "`Clone` is explicit",
    "Targets name their kind",
    "`map_parameters` in place of mappers",
];

/// Every difference has a row with a Burn form and a Kiln form.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file(PAGE) else { return Vec::new() };
    let text = page.text.as_deref().unwrap_or_default();
    let missing = DIFFERENCES.iter().filter(|difference| !text.lines().any(|line| is_row(line, difference)));
    let report = |difference: &&str| {
        page.finding(1, format!("no row says \"{difference}\""), "add it to the table of differences")
    };
    missing.map(report).collect()
}

/// Whether a line is the difference's row, with code in its two other cells.
fn is_row(line: &str, difference: &str) -> bool {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    matches!(cells[..], ["", first, burn, kiln, ""] if first == difference && burn.contains('`') && kiln.contains('`'))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, tree};
    use super::*;

    fn page(rows: &[&str]) -> String {
        rows.iter().map(|row| format!("| {row} | `a` | `b` |\n")).collect()
    }

    #[test]
    fn a_page_with_every_row_passes() {
        assert_eq!(check(&tree(&[(PAGE, &page(DIFFERENCES))])), []);
    }

    #[test]
    fn a_missing_or_empty_row_is_reported() {
        let text = page(&DIFFERENCES[1..]) + "| Records | `a` | |\n";
        assert_eq!(places(&check(&tree(&[(PAGE, &text)]))), [format!("{PAGE}:1")]);
    }
}
