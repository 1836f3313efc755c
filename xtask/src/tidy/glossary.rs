//! Checks the glossary of `ARCHITECTURE.md`: identifiers exist, and forbidden synonyms are unused.

use super::{File, Finding, Tree, words};

const PAGE: &str = "ARCHITECTURE.md";

/// The heading of the section with the table.
const HEADING: &str = "## Glossary";

/// Maximum number of terms.
const MOST: usize = 30;

/// Pages that may use forbidden synonyms: the changelog names renamed items.
const EXEMPT: &[&str] = &["CHANGELOG.md"];

/// One row of the table: `| term | meaning | identifier in path | synonyms |`.
#[derive(Debug, PartialEq)]
struct Row<'t> {
    /// The line number, from 1.
    line: usize,
    identifier: &'t str,
    /// A file, or a folder of files.
    path: &'t str,
    synonyms: Vec<&'t str>,
}

/// Checks that each identifier occurs in the code at its path, and that forbidden synonyms occur in no code and on no
/// page.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file(PAGE) else { return Vec::new() };
    let text = page.text.as_deref().unwrap_or_default();
    let mut findings = Vec::new();
    let mut rows = Vec::new();
    for (line, cells) in table(text) {
        match Row::parse(line, &cells) {
            Some(row) => rows.push(row),
            None => findings.push(page.finding(
                line,
                "the row is not `term | meaning | identifier in path | synonyms`",
                "write the identifier and the path in backticks, each synonym too",
            )),
        }
    }
    if rows.len() > MOST {
        let problem = format!("the glossary has {} terms", rows.len());
        findings.push(page.finding(rows[MOST].line, problem, "keep at most 30"));
    }
    findings.extend(rows.iter().filter(|row| !row.exists(tree)).map(|row| {
        let problem = format!("`{}` does not occur in the code of `{}`", row.identifier, row.path);
        page.finding(row.line, problem, "name the identifier that stands for the term, and its path")
    }));
    findings.extend(rows.iter().flat_map(|row| row.uses(tree)));
    findings
}

/// The cells of the table's rows, with their lines; the two lines of its head are left out.
fn table(text: &str) -> Vec<(usize, Vec<&str>)> {
    let rows = section(text).filter(|(_, line)| line.starts_with('|')).skip(2);
    rows.map(|(index, line)| (index + 1, line.trim_matches('|').split('|').map(str::trim).collect()))
        .collect()
}

/// The lines of the section, by index.
fn section(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().skip_while(|(_, line)| *line != HEADING).skip(1);
    lines.take_while(|(_, line)| !line.starts_with("## "))
}

impl<'t> Row<'t> {
    fn parse(line: usize, cells: &[&'t str]) -> Option<Row<'t>> {
        let &[term, meaning, place, synonyms] = cells else { return None };
        let [identifier, path] = codes(place)[..] else { return None };
        let is_complete = !term.is_empty() && !meaning.is_empty();
        is_complete.then(|| Row { line, identifier, path, synonyms: codes(synonyms) })
    }

    fn exists(&self, tree: &Tree) -> bool {
        let within = |path: &str| {
            path.strip_prefix(self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut sources = tree.rust().filter(|(file, _)| within(&file.path));
        sources.any(|(_, code)| words(code, self.identifier).next().is_some())
    }

    /// The uses of its synonyms.
    fn uses(&self, tree: &Tree) -> Vec<Finding> {
        let mut findings = Vec::new();
        for file in &tree.files {
            for (index, line) in searched(file) {
                let used = self.synonyms.iter().filter(|synonym| words(line, synonym).next().is_some());
                findings.extend(used.map(|synonym| {
                    let problem = format!("`{synonym}` is not the term of the glossary");
                    file.finding(index + 1, problem, "use the term of the glossary in ARCHITECTURE.md")
                }));
            }
        }
        findings
    }
}

/// The lines of a file in which synonyms are searched, by index: the code of Rust files, and pages without the glossary.
fn searched(file: &File) -> Vec<(usize, &str)> {
    let text = file.text.as_deref().unwrap_or_default();
    if let Some(code) = &file.code {
        return code.lines().enumerate().collect();
    }
    if !file.path.ends_with(".md") || EXEMPT.contains(&file.path.as_str()) {
        return Vec::new();
    }
    let glossary = section(text).next().filter(|_| file.path == PAGE).map(|(first, _)| first);
    let glossary = glossary.map_or(0..0, |first| first..first + section(text).count());
    text.lines().enumerate().filter(|(index, _)| !glossary.contains(index)).collect()
}

/// The parts of a cell in backticks.
fn codes(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, tree};
    use super::*;

    const HEAD: &str =
        "# Architecture\n\n## Glossary\n\n| term | meaning | code | not |\n|---|---|---|---|\n";

    fn found(rows: &str, files: &[(&str, &str)]) -> Vec<String> {
        let page = format!("{HEAD}{rows}\n## Rules\n\nA plan.\n");
        let mut all = vec![(PAGE, page.as_str())];
        all.extend(files);
        places(&check(&tree(&all)))
    }

    const ROW: &str = "| plan | Steps. | `Plan` in `crates/a/src` | `Scheme`, `road map` |\n";

    #[test]
    fn an_identifier_at_its_path_passes() {
        assert_eq!(found(ROW, &[("crates/a/src/plan.rs", "pub struct Plan;\n")]), [""; 0]);
    }

    #[test]
    fn an_identifier_must_occur_at_its_path() {
        let line = [format!("{PAGE}:7")];
        assert_eq!(found(ROW, &[("crates/a/src/plan.rs", "// Plan\nstruct Planned;\n")]), line);
        assert_eq!(found(ROW, &[("crates/a/srcs/plan.rs", "struct Plan;\n")]), line);
    }

    #[test]
    fn synonyms_are_found_in_code_and_on_pages() {
        let files = [
            ("crates/a/src/plan.rs", "struct Plan;\n// Scheme\nstruct Scheme;\nstruct Schemes;\n"),
            ("book/src/a.md", "Plans.\nThe road map.\n"),
            ("CHANGELOG.md", "`Scheme` is `Plan`.\n"),
        ];
        assert_eq!(found(ROW, &files), ["crates/a/src/plan.rs:3", "book/src/a.md:2"]);
    }

    #[test]
    fn synonyms_are_found_below_the_glossary() {
        let page = format!("{HEAD}{ROW}\n## Rules\n\nNo road map.\n");
        let tree = tree(&[(PAGE, page.as_str()), ("crates/a/src/plan.rs", "struct Plan;\n")]);
        assert_eq!(places(&check(&tree)), [format!("{PAGE}:11")]);
    }

    #[test]
    fn malformed_rows_are_reported() {
        let line = [format!("{PAGE}:7")];
        assert_eq!(found("| plan | Steps. | crates/a | |\n", &[]), line);
        assert_eq!(found("| plan | Steps. |\n", &[]), line);
    }

    #[test]
    fn the_glossary_has_a_maximum_length() {
        let row = "| plan | Steps. | `Plan` in `crates/a/src/plan.rs` | |\n";
        let files = [("crates/a/src/plan.rs", "struct Plan;\n")];
        assert_eq!(found(&row.repeat(MOST), &files), [""; 0]);
        assert_eq!(found(&row.repeat(MOST + 1), &files), [format!("{PAGE}:{}", 7 + MOST)]);
    }
}
