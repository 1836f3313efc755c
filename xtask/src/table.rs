//! Text tables with aligned columns, for the terminal and for Markdown.

/// Columns padded to their widest cell, two spaces apart; the first row is the head.
pub(crate) fn plain(rows: &[Vec<String>]) -> String {
    let widths = widths(rows);
    let line = |cells: &Vec<String>| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// A Markdown table; the first row is the head.
pub(crate) fn markdown(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (index, cells) in rows.iter().enumerate() {
        text += &format!("| {} |\n", cells.join(" | "));
        if index == 0 {
            text += &format!("|{}\n", "---|".repeat(cells.len()));
        }
    }
    text
}

/// Owned cells from borrowed ones.
pub(crate) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|cells| cells.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    (0..columns).map(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [row(["step", "result"]), row(["documentation", "ok"])];
        assert_eq!(plain(&rows), "step           result\ndocumentation  ok\n");
        assert_eq!(markdown(&rows), "| step | result |\n|---|---|\n| documentation | ok |\n");
    }
}
