//! Rules of the tree that the compiler does not check.
//!
//! Every check reads a [`Tree`] (the workspace and its files in memory) and returns [`Finding`]s, so each is
//! tested against small trees written in the test itself.

mod burn_page;
mod documents;
mod glossary;
mod layers;
mod manifests;
mod mask;
mod op_matches;
mod page_names;
mod results;
mod sources;
mod tracked_files;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use crate::args::{Accepts, Args};
use crate::process;
use crate::workspace::Workspace;

/// The input of all checks.
#[derive(Default)]
pub(crate) struct Tree {
    workspace: Workspace,
    files: Vec<File>,
}

/// A tracked or untracked file that git does not ignore.
pub(crate) struct File {
    /// Path relative to the root, with forward slashes.
    path: String,
    /// Size in bytes.
    bytes: u64,
    /// Contents, unless the file is binary.
    text: Option<String>,
    /// For Rust files: the contents with comments and literals blanked out, byte for byte in place.
    code: Option<String>,
}

/// A violation of a rule, with its location and remedy.
#[derive(Debug, PartialEq)]
pub(crate) struct Finding {
    path: String,
    /// The line number, from 1.
    line: usize,
    problem: String,
    remedy: &'static str,
}

type Check = fn(&Tree) -> Vec<Finding>;

const CHECKS: &[Check] = &[
    layers::check,
    manifests::check,
    sources::length,
    sources::module_names,
    sources::unfinished,
    sources::unsafe_code,
    sources::crate_roots,
    sources::ignored_tests,
    sources::orphaned_tests,
    sources::silenced_lint,
    op_matches::check,
    page_names::check,
    results::check,
    burn_page::check,
    documents::features,
    documents::links,
    documents::required,
    glossary::check,
    tracked_files::sizes,
    tracked_files::machine_paths,
    tracked_files::lock_sources,
];

/// `cargo xtask tidy`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    Args::parse(words, &Accepts { flags: &[], options: &[], words: false })?;
    let tree = Tree::load()?;
    let findings = tree.findings();
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!(
            "tidy: {} files, {} packages, nothing to mend",
            tree.files.len(),
            tree.workspace.packages.len()
        );
        Ok(ExitCode::SUCCESS)
    } else {
        println!("tidy: {} problems", findings.len());
        Ok(ExitCode::FAILURE)
    }
}

impl Tree {
    fn load() -> Result<Self, String> {
        let workspace = Workspace::load()?;
        let root = workspace.root.clone();
        // In containers, another user often owns the checkout; listing files needs no trust in it.
        let mut command = process::program("git", &root);
        command.args([
            "-c",
            "safe.directory=*",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]);
        let names = process::output(&mut command)?;
        let mut paths: Vec<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
        paths.sort_unstable();
        paths.dedup();
        let files = paths.into_iter().filter_map(|path| File::read(&root, path)).collect();
        Ok(Self { workspace, files })
    }

    fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(self)).collect();
        findings.sort_by(|a, b| (&a.path, a.line, &a.problem).cmp(&(&b.path, b.line, &b.problem)));
        findings
    }

    fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Rust files with their blanked code.
    fn rust(&self) -> impl Iterator<Item = (&File, &str)> {
        self.files.iter().filter_map(|file| Some((file, file.code.as_deref()?)))
    }

    /// Text files with their contents.
    fn texts(&self) -> impl Iterator<Item = (&File, &str)> {
        self.files.iter().filter_map(|file| Some((file, file.text.as_deref()?)))
    }
}

impl File {
    /// `None` where the file is listed by git but no longer on disk, or is a link to a folder.
    fn read(root: &Path, path: &str) -> Option<Self> {
        let bytes = std::fs::read(root.join(path)).ok()?;
        Some(Self::new(path, &bytes))
    }

    fn new(path: &str, contents: &[u8]) -> Self {
        let text = std::str::from_utf8(contents).ok().filter(|text| !text.contains('\0')).map(str::to_owned);
        let code = text.as_deref().filter(|_| path.ends_with(".rs")).map(mask::mask);
        Self { path: path.to_owned(), bytes: contents.len() as u64, text, code }
    }

    fn finding(&self, line: usize, problem: impl Into<String>, remedy: &'static str) -> Finding {
        Finding { path: self.path.clone(), line, problem: problem.into(), remedy }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}; {}", self.path, self.line, self.problem, self.remedy)
    }
}

/// The line number, from 1, of byte `offset` of `text`.
fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Byte offsets of `word` in `text`, at word boundaries.
fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = text.as_bytes();
    let in_word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    text.match_indices(word).map(|(offset, _)| offset).filter(move |&offset| {
        let before = offset.checked_sub(1).and_then(|previous| bytes.get(previous));
        !in_word(before) && !in_word(bytes.get(offset + word.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::{Dependency, Package, Target};

    /// A tree of text files without packages.
    pub(super) fn tree(files: &[(&str, &str)]) -> Tree {
        let files = files.iter().map(|(path, text)| File::new(path, text.as_bytes())).collect();
        Tree { files, ..Tree::default() }
    }

    /// A library package in `folder` with normal dependencies.
    pub(super) fn package(name: &str, folder: &str, dependencies: &[&str]) -> Package {
        let normal = |name: &&str| Dependency { name: (*name).to_owned(), dev: false, versioned: true };
        let source = format!("{folder}/src/lib.rs");
        Package {
            name: name.to_owned(),
            folder: folder.to_owned(),
            dependencies: dependencies.iter().map(normal).collect(),
            targets: vec![Target { name: name.to_owned(), kind: "lib".to_owned(), source }],
            ..Package::default()
        }
    }

    /// `path:line` of each finding.
    pub(super) fn places(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
    }

    #[test]
    fn findings_are_sorted_with_location_problem_and_remedy() {
        let tree = tree(&[("b.md", "[x](missing.md)\n"), ("a.rs", "fn f() {\n    todo!()\n}\n")]);
        let findings = tree.findings();
        let about: Vec<&Finding> = findings.iter().filter(|finding| finding.path.len() == 4).collect();
        assert_eq!(
            about[0].to_string(),
            "a.rs:2: `todo!` is left in the code; finish it, or return an error that says what is not supported"
        );
        assert_eq!(about[1].path, "b.md");
    }

    #[test]
    fn words_match_at_word_boundaries() {
        assert_eq!(words("unsafe_code unsafe{} my_unsafe", "unsafe").collect::<Vec<_>>(), [12]);
    }

    #[test]
    fn binary_files_have_no_text() {
        assert!(File::new("a.gz", &[0x1f, 0x8b, 0xff]).text.is_none());
        assert!(File::new("a.bin", b"a\0b").text.is_none());
    }
}
