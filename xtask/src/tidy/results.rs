//! Checks that public functions that return a `Result` document their errors.

use super::{File, Finding, Tree};

/// Packages with an interface for programs; their tests are exempt.
const PUBLISHED: &str = "crates/";

/// Checks every public function in the sources of the packages.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let is_source = |file: &File| file.path.starts_with(PUBLISHED) && file.path.contains("/src/");
    let sources = tree.rust().filter(|(file, _)| is_source(file) && !is_test(&file.path));
    sources.flat_map(|(file, code)| check_file(file, code)).collect()
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

fn check_file(file: &File, code: &str) -> Vec<Finding> {
    let text: Vec<&str> = file.text.as_deref().unwrap_or_default().lines().collect();
    let code: Vec<&str> = code.lines().collect();
    let end = code.iter().position(|line| line.trim() == "#[cfg(test)]").unwrap_or(code.len());
    let undocumented = (0..end).filter_map(|line| {
        let name = public_function(code[line])?;
        let is_silent =
            returns_result(&code[line..end]) && !docs(&text[..line]).any(|line| line == "/// # Errors");
        is_silent.then(|| {
            let problem = format!("`{name}` returns a `Result` without a section `# Errors`");
            file.finding(line + 1, problem, "say when it fails, or link to a function that says it")
        })
    });
    undocumented.collect()
}

/// The name of the function whose signature starts on the line, if it is public.
fn public_function(line: &str) -> Option<&str> {
    let mut rest = line.trim_start().strip_prefix("pub ")?;
    while let Some(shorter) = ["const ", "async ", "unsafe "].iter().find_map(|word| rest.strip_prefix(word))
    {
        rest = shorter;
    }
    rest.strip_prefix("fn ")?.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// Whether the signature at the start of the lines has the return type `Result`.
fn returns_result(lines: &[&str]) -> bool {
    let mut signature = String::new();
    for line in lines {
        signature.push_str(line);
        if line.contains(['{', ';']) {
            break;
        }
    }
    let end = signature.find(['{', ';']).unwrap_or(signature.len());
    let returned = signature[..end].rsplit_once("->").map_or("", |(_, returned)| returned);
    // The arrow of a parameter that is a function stands before the closing parenthesis.
    if returned.matches(')').count() > returned.matches('(').count() {
        return false;
    }
    let returned = returned.split(" where ").next().unwrap_or_default().trim();
    let path = returned.split('<').next().unwrap_or_default();
    path.rsplit("::").next() == Some("Result")
}

/// The lines of documentation and attributes directly above, from the last.
fn docs<'a>(above: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let lines = above.iter().rev().map(|line| line.trim());
    lines.take_while(|line| ["///", "#[", "$(#["].iter().any(|start| line.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, tree};
    use super::*;

    #[test]
    fn functions_without_a_section_are_found() {
        let source = "/// Reads.\npub fn read() -> Result<u8> {}\n\n/// Writes.\n///\n/// # Errors\n/// When full.\n#[inline]\n\
            pub fn write(\n    x: u8,\n) -> std::io::Result<()> {}\n\nfn own() -> Result<()> {}\n\
            pub async fn later(\n    f: impl Fn() -> Result<u8>,\n) -> u8 {}\n\
            pub fn each(f: fn(u8) -> Result<u8>) {}\npub const fn both() -> core::result::Result<u8, Error>;\n#[cfg(test)]\npub fn late() -> Result<()> {}\n";
        let files =
            [("crates/ir/src/a.rs", source), ("xtask/src/a.rs", source), ("crates/ir/tests/a.rs", source)];
        assert_eq!(places(&check(&tree(&files))), ["crates/ir/src/a.rs:2", "crates/ir/src/a.rs:18"]);
    }
}
