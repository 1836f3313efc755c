//! Rules for the written pages.

use std::collections::HashSet;

use super::{File, Finding, Tree, line_of};
use crate::features;

const REQUIRED: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "NOTICE",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
];

/// Checks that the required pages exist.
pub(super) fn required(tree: &Tree) -> Vec<Finding> {
    let missing = REQUIRED.iter().filter(|path| tree.file(path).is_none());
    let report = |path: &&str| Finding {
        path: (*path).to_owned(),
        line: 1,
        problem: "the file is missing".to_owned(),
        remedy: "write it",
    };
    missing.map(report).collect()
}

/// Checks that the README's feature table matches the façade's manifest.
pub(super) fn features(tree: &Tree) -> Vec<Finding> {
    let (Some(page), Some(manifest)) = (tree.file(features::PAGE), tree.file(features::MANIFEST)) else {
        return Vec::new();
    };
    let text = |file: &File| file.text.clone().unwrap_or_default();
    let problem = match features::with_table(&text(page), &text(manifest)) {
        Ok(current) if current == text(page) => return Vec::new(),
        Ok(_) => "the table of features is not current".to_owned(),
        Err(error) => error,
    };
    vec![page.finding(1, problem, "run `cargo xtask features`")]
}

/// Checks that every relative link of a Markdown page resolves to a file or folder of the repository.
pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    let known = known_paths(tree);
    let pages = tree.texts().filter(|(file, _)| file.path.ends_with(".md"));
    let check = |(file, text): (&File, &str)| {
        let prose = without_code(text);
        let broken = targets(&prose).into_iter().filter(|(_, target)| !resolves(&file.path, target, &known));
        let report = |(offset, target): (usize, &str)| {
            let problem = format!("the link to `{target}` leads nowhere");
            file.finding(line_of(&prose, offset), problem, "mend the path or remove the link")
        };
        broken.map(report).collect::<Vec<_>>()
    };
    pages.flat_map(check).collect()
}

/// Every file and every folder above one.
fn known_paths(tree: &Tree) -> HashSet<String> {
    let mut known = HashSet::from([String::new()]);
    for file in &tree.files {
        let mut path = file.path.as_str();
        known.insert(path.to_owned());
        while let Some((folder, _)) = path.rsplit_once('/') {
            known.insert(folder.to_owned());
            path = folder;
        }
    }
    known
}

/// The page with fenced blocks and inline code blanked out, byte for byte in place.
fn without_code(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let mut fence: Option<&str> = None;
    for line in text.split_inclusive('\n') {
        let start = line.trim_start();
        let marker = ["```", "~~~"].into_iter().find(|marker| start.starts_with(marker));
        let code = fence.is_some() || marker.is_some();
        fence = match fence {
            None => marker,
            Some(_) if fence == marker => None,
            Some(_) => fence,
        };
        if code {
            prose.extend(line.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
        } else {
            prose += &without_inline_code(line);
        }
    }
    prose
}

fn without_inline_code(line: &str) -> String {
    let mut inside = false;
    let parts: Vec<String> = line
        .split('`')
        .map(|part| {
            let kept = if inside { " ".repeat(part.len()) } else { part.to_owned() };
            inside = !inside;
            kept
        })
        .collect();
    parts.join("`")
}

/// Link targets with their offsets: `](target)`, `[label]: target`, `src="target"` and `href="target"`.
fn targets(prose: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (opening, closing) in [("](", &[')', ' ', '\n'][..]), ("src=\"", &['"']), ("href=\"", &['"'])] {
        for (offset, _) in prose.match_indices(opening) {
            let start = offset + opening.len();
            let length = prose[start..].find(closing).unwrap_or(prose.len() - start);
            found.push((offset, &prose[start..start + length]));
        }
    }
    let mut offset = 0;
    for line in prose.split_inclusive('\n') {
        if let Some((_, target)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
            found.push((offset, target.split_whitespace().next().unwrap_or_default()));
        }
        offset += line.len();
    }
    found
}

fn resolves(page: &str, target: &str, known: &HashSet<String>) -> bool {
    let target = target.trim_matches(['<', '>']);
    let path = target.split(['#', '?']).next().unwrap_or_default();
    if path.is_empty() || target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let (folder, path) = path.strip_prefix('/').map_or((folder, path), |path| ("", path));
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part != ".." {
            parts.push(part);
        } else if parts.pop().is_none() {
            return false;
        }
    }
    known.contains(&parts.join("/").replace("%20", " "))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, tree};
    use super::*;

    #[test]
    fn links_must_resolve() {
        let page = "[a](../README.md) [b](#here) [c](https://example.org/x)\n[d](gone.md#part)\n\n\
            ```md\n[e](nowhere.md)\n```\n`[f](nowhere.md)` and <img src=\"plot.svg\">\n[g]: lost.md\n[h](../crates \"title\")\n";
        let files = [("book/page.md", page), ("README.md", ""), ("crates/ir/Cargo.toml", "")];
        let mut found = places(&links(&tree(&files)));
        found.sort();
        assert_eq!(found, ["book/page.md:2", "book/page.md:7", "book/page.md:8"]);
    }

    #[test]
    fn links_above_the_root_or_from_the_root() {
        let files = [("a/b.md", "[x](../../c.md)\n[y](/a/b.md)\n")];
        assert_eq!(places(&links(&tree(&files))), ["a/b.md:1"]);
    }

    #[test]
    fn missing_pages_are_reported() {
        let all: Vec<(&str, &str)> = REQUIRED.iter().map(|path| (*path, "")).collect();
        assert_eq!(required(&tree(&all)), []);
        assert_eq!(places(&required(&tree(&all[1..]))), ["README.md:1"]);
    }
}
