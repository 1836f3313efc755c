//! The list of the tensors of a file.

use kiln_store::Weights;
use serde_json::{Value, json};

use crate::table::{columns, printable};

/// The longest text of metadata in the table, in characters. JSON has the whole text.
const METADATA_CHARS: usize = 100;

/// The tensors, totals and metadata as a table.
pub(super) fn table(weights: &Weights) -> String {
    let row = ["name", "shape", "type", "bytes"].map(str::to_owned).to_vec();
    let mut rows = vec![row];
    let (mut elements, mut bytes, mut unknown) = (0u64, 0u64, 0usize);
    for name in weights.names() {
        let Some(info) = weights.info(name) else { continue };
        elements = elements.saturating_add(info.shape.checked_num_elements().unwrap_or(usize::MAX) as u64);
        let size = info.num_bytes();
        match size {
            Some(size) => bytes = bytes.saturating_add(size),
            None => unknown += 1,
        }
        let size = size.map_or("?".to_owned(), grouped);
        rows.push(vec![printable(name), info.shape.to_string(), printable(&info.dtype_name), size]);
    }
    let count = rows.len() - 1;
    let mut text = format!("{}: {}\n\n", printable(&weights.path().display().to_string()), weights.format());
    text += &columns(&rows);
    text += &format!("\n{count} tensors, {} elements, {} bytes", grouped(elements), grouped(bytes));
    if unknown > 0 {
        text += &format!(", without {unknown} tensors of unknown types");
    }
    text.push('\n');
    let metadata = weights.metadata();
    if !metadata.is_empty() {
        text += "\nmetadata\n";
        let rows = metadata.iter().map(|(key, value)| vec![printable(key), shortened(value)]);
        text += &columns(&rows.collect::<Vec<_>>());
    }
    text
}

/// The same as JSON.
pub(super) fn json(weights: &Weights) -> String {
    let tensors = weights.names().into_iter().filter_map(|name| {
        let info = weights.info(name)?;
        Some(json!({
            "name": name,
            "shape": info.shape.to_vec(),
            "dtype": info.dtype_name,
            "blocks": info.blocks.map(|format| format.name()),
            "bytes": info.num_bytes(),
        }))
    });
    let tensors: Vec<Value> = tensors.collect();
    let elements: u64 = weights
        .names()
        .into_iter()
        .filter_map(|name| weights.info(name)?.shape.checked_num_elements())
        .fold(0, |sum, count| sum.saturating_add(count as u64));
    let all = json!({
        "path": weights.path().display().to_string(),
        "format": weights.format().to_string(),
        "elements": elements,
        "tensors": tensors,
        "metadata": weights.metadata(),
    });
    format!("{all:#}\n")
}

/// A text of metadata for one line.
fn shortened(text: &str) -> String {
    let text = printable(text);
    match text.char_indices().nth(METADATA_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// A number with separators of thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
