//! The record as `docs/accuracy.md`.

use super::engine::SUBJECTS;
use super::{Row, Worst};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Returns the path of the page.
pub fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/accuracy.md")
}

const HEAD: &str = "\
# Accuracy

Written by `cargo xtask accuracy`; `cargo test -p kiln-suite --test suite accuracy` measures again and fails where a
number is greater than here.

The tables of exact values come from other projects: NumPy's validation sets with the error that NumPy allows itself, the
tables of the Boost libraries, transforms by FFTW, streams of NumPy's Philox generator.
[crates/suite/accuracy/README.md](../crates/suite/accuracy/README.md) lists the sources.

The unit of error is the *unit in the last place* (ULP): how many floats of the dtype lie between the result and the
float nearest to the true value. 0 is correctly rounded. The CPU engine computes `f32` with kernels of its own,
the same on AVX2 and AVX-512, others on processors without fused multiply-add, and calls the platform's mathematical library
for `f64`; 16-bit floats are computed in `f32` and rounded once. Functions that are no ops (`asin`, `lgamma`, `i0` and others) are expressions of ops, the same
on every engine.

The digamma function crosses zero once between any two negative integers. Next to those zeros it is the difference of two
nearly equal numbers, so that errors there are many units of a small result.
";

/// Renders the page.
pub fn print(rows: &[Row]) -> String {
    let mut page = HEAD.to_owned();
    page += &summary(rows);
    let sections = [
        (
            "numpy",
            "Against NumPy's validation sets",
            "Worst error in ULP; *NumPy allows* is the bound in the table.",
        ),
        (
            "boost",
            "Against the tables of Boost",
            "Worst error in ULP. In `f32` the points that it represents.",
        ),
        (
            "all",
            "All 16-bit floats",
            "Worst error in ULP over all 65,536 values, infinities and NaN among them.",
        ),
        (
            "fftw",
            "Fourier transforms against FFTW",
            "Cosine and sine transforms of 14 lengths from 2 to 1,024, as complex transforms of up to 8,192 points: the \
             greatest difference divided by the greatest value. *Where* is the length.",
        ),
    ];
    for (table, title, about) in sections {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.table == table).collect();
        let _ = write!(page, "\n## {title}\n\n{about}\n\n{}", section(&rows));
    }
    page
}

fn summary(rows: &[Row]) -> String {
    let points: usize = rows.iter().map(|row| row.points).sum();
    let bounded: Vec<&Row> = rows.iter().filter(|row| row.allowed.is_some()).collect();
    let set: usize = bounded.iter().map(|row| row.points).sum();
    let exceeds = |row: &&&Row| {
        let allowed = f64::from(row.allowed.unwrap_or(0));
        row.worst.iter().any(|(_, worst)| worst.error > allowed)
    };
    let beyond: Vec<String> =
        bounded.iter().filter(exceeds).map(|row| format!("`{}` in {}", row.function, row.dtype)).collect();
    let verdict = if beyond.is_empty() {
        "every engine stays within NumPy's bounds on all of them".to_owned()
    } else {
        format!("beyond NumPy's bounds: {}", beyond.join(", "))
    };
    format!(
        "\n{points} results are compared on each engine, {set} of them with NumPy's validation sets; {verdict}.\n"
    )
}

fn section(rows: &[&Row]) -> String {
    let has_bounds = rows.iter().any(|row| row.allowed.is_some());
    let mut head = vec!["function", "dtype", "points"];
    head.extend(has_bounds.then_some("NumPy allows"));
    head.extend(SUBJECTS.iter().map(|subject| subject.name));
    head.push("where");
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        let mut cells = vec![format!("`{}`", row.function), row.dtype.to_string(), row.points.to_string()];
        if has_bounds {
            cells.push(row.allowed.map_or("-".into(), |bound| bound.to_string()));
        }
        for subject in SUBJECTS {
            cells.push(row.worst(subject.name).map_or("-".into(), |worst| error(row, worst)));
        }
        cells.push(place(row));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

fn error(row: &Row, worst: Worst) -> String {
    if worst.error.is_infinite() {
        "NaN".into()
    } else if row.table == "fftw" {
        format!("{:.1e}", worst.error)
    } else {
        worst.error.to_string()
    }
}

/// The argument of the maximum error.
fn place(row: &Row) -> String {
    let greatest = row.worst.iter().map(|(_, worst)| worst).max_by(|a, b| a.error.total_cmp(&b.error));
    match greatest {
        Some(worst) if worst.error > 0.0 => number(worst.at),
        Some(_) | None => "-".into(),
    }
}

/// Formats a number in the shorter of decimal and scientific notation.
fn number(x: f64) -> String {
    let (plain, scientific) = (format!("{x}"), format!("{x:e}"));
    if plain.len() <= scientific.len() { plain } else { scientific }
}
