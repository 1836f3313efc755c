//! Checks that the page for PyTorch users names only existing items.

use std::collections::HashSet;

use super::{File, Finding, Tree, words};

const PAGE: &str = "book/src/pytorch.md";

/// The prefix of lists of names that PyTorch and Kiln share.
const SHARED: &str = "The same name: ";

/// Checks that every Kiln name in the page's lists and tables is public in some crate.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file(PAGE) else { return Vec::new() };
    let declared = declared_names(tree);
    let named = names(page.text.as_deref().unwrap_or_default());
    let unknown =
        named.into_iter().filter(|(_, name)| !declared.contains(name.rsplit("::").next().unwrap_or(name)));
    let report = |(line, name): (usize, &str)| {
        page.finding(line, format!("there is no `{name}`"), "name what there is, or remove the row")
    };
    unknown.map(report).collect()
}

/// The Kiln names of the page, with their lines: in the lists of shared names, in the columns headed `Kiln`, and in notes.
fn names(page: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut shared = false;
    let mut columns = Vec::new();
    for (index, line) in page.lines().enumerate() {
        shared = line.starts_with(SHARED) || (shared && !line.is_empty());
        let cells: Vec<&str> = if shared {
            vec![line]
        } else if let Some(row) = line.strip_prefix("| ") {
            let cells: Vec<&str> = row.split(" |").map(str::trim).collect();
            if columns.is_empty() {
                columns = cells.iter().map(|cell| *cell != "PyTorch").collect();
            }
            cells.into_iter().zip(&columns).filter(|(_, ours)| **ours).map(|(cell, _)| cell).collect()
        } else {
            columns.retain(|_| line.starts_with('|'));
            Vec::new()
        };
        let codes = cells.into_iter().flat_map(|cell| cell.split('`').skip(1).step_by(2));
        found.extend(codes.filter(|code| is_name(code)).map(|name| (index + 1, name)));
    }
    found
}

/// An identifier, perhaps behind a path; calls and operators are not looked up.
fn is_name(code: &str) -> bool {
    let part = |part: &str| {
        part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && part.starts_with(|c: char| c.is_ascii_alphabetic())
    };
    code.split("::").all(part)
}

/// Declarations of public items in the body of a macro.
const DECLARATIONS: [&str; 3] = ["pub fn $", "pub struct $", "pub type $"];

/// The names of the macros in a file.
fn macro_names(code: &str) -> impl Iterator<Item = &str> {
    let definition = "macro_rules!";
    code.match_indices(definition).map(move |(at, _)| identifier(code[at + definition.len()..].trim_start()))
}

/// The public names of all crates, including names in the rows of macro invocations.
fn declared_names(tree: &Tree) -> HashSet<&str> {
    let is_source = |file: &File| file.path.starts_with("crates/") && file.path.contains("/src/");
    let sources: Vec<&str> = tree.rust().filter(|(file, _)| is_source(file)).map(|(_, code)| code).collect();
    let declares = |code: &str| DECLARATIONS.iter().any(|declared| code.contains(declared));
    let declaring = sources.iter().copied().filter(|code| declares(code));
    let macros: Vec<String> = declaring.flat_map(macro_names).map(|name| format!("{name}! {{")).collect();
    let mut names = HashSet::new();
    for code in sources {
        for keyword in ["fn", "struct", "enum", "trait", "type"] {
            names.extend(words(code, keyword).filter_map(|offset| {
                let before = code[..offset].rsplit(['\n', ';', '{', '}']).next().unwrap_or_default();
                let public = before.trim_start().starts_with("pub ");
                let name = identifier(code[offset + keyword.len()..].trim_start());
                (public && !name.is_empty()).then_some(name)
            }));
        }
        if declares(code) || macros.iter().any(|call| code.contains(call)) {
            // A row starts with the names, optionally followed by arguments in parentheses.
            let rows = code.lines().map(|line| line.split('(').next().unwrap_or_default());
            let rows =
                rows.filter(|row| !row.contains(['.', '=', '$', '!', ',', '{']) && !row.contains(": "));
            names.extend(rows.flat_map(|row| row.split(|c: char| !c.is_alphanumeric() && c != '_')));
            // The name of a type begins a row whatever follows it.
            let types = code.lines().map(|line| identifier(line.trim_start()));
            names.extend(types.filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase())));
        }
    }
    names
}

fn identifier(code: &str) -> &str {
    let end = code.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(code.len());
    &code[..end]
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, tree};
    use super::*;

    const SOURCE: &str = "impl X {\n    pub fn sum(self) {}\n    pub async fn read() {}\n    fn hidden() {}\n}\n\
        pub struct Linear<B>;\n";
    const MACRO: &str = "macro_rules! f { ($n:ident) => { pub fn $n() {} } }\nf! {\n    /// A.\n    recip;\n    conv1d 1 3;\n    elu(alpha: f64);\n}\n";

    fn found(page: &str) -> Vec<String> {
        let files = [
            ("crates/tensor/src/a.rs", SOURCE),
            ("crates/tensor/src/b.rs", MACRO),
            ("crates/nn/src/c.rs", "f! {\n    Pool Config {\n        size: usize,\n    }\n}\n"),
            ("book/src/pytorch.md", page),
        ];
        places(&check(&tree(&files)))
    }

    #[test]
    fn existing_names_pass() {
        let page = "`anything` in prose\n\nThe same name: `sum`,\n`read`.\n\n| PyTorch | Kiln | |\n|---|---|---|\n\
            | `torch.reciprocal` | `recip` | or `1 / x`, `Linear`, `Pool`, `elu` |\n\n| Kiln | PyTorch |\n|---|---|\n| `nn::Linear` | `torch.x` |\n";
        assert_eq!(found(page), [""; 0]);
    }

    #[test]
    fn missing_names_are_reported() {
        let page = "The same name: `sum`,\n`gone`.\n\n| PyTorch | Kiln | |\n|---|---|---|\n| `torch.a` | `conv1d` | and `conv9d` |\n\
            | `torch.b` | `hidden` | |\n\n| Kiln | PyTorch |\n|---|---|\n| `nn::Nothing` | `torch.c` |\n";
        let line = |number: usize| format!("book/src/pytorch.md:{number}");
        assert_eq!(found(page), [line(2), line(6), line(7), line(11)]);
    }
}
