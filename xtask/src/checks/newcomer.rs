//! The first steps of a newcomer: a new project outside the workspace, `kiln` added to it as the README says, and every Rust
//! example of the pages compiled and run against that.
//!
//! Pages whose manifest snippets ask for features run against `kiln` of the workspace with these features. A second
//! project would compile every crate again, for minutes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::libtest::Tally;
use super::steps::{Context, run_tests};
use crate::process::{self, at};
use crate::programs::Program;

/// Folders without pages of the repository.
const ELSEWHERE: &[&str] = &["target", "node_modules"];

/// An example that depends on `kiln`.
const EXAMPLE: Program = Program::Example("regression");

/// The dev profile of `examples/own-engine`, so that both share compiled packages.
const PROFILE: &[&str] = &[
    "profile.dev.debug=false",
    "profile.dev.build-override.codegen-units=256",
    "profile.dev.package.miniz_oxide.opt-level=3",
];

/// Whether there are pages with Rust examples, and the façade crate.
pub(crate) fn can_run(context: &Context) -> Result<(), String> {
    if context.workspace.package("kiln").is_none() {
        return Err("the workspace has no kiln package".to_owned());
    }
    if pages(&context.workspace.root).is_empty() { Err("no page holds Rust".to_owned()) } else { Ok(()) }
}

/// Runs the examples of each page: those without features in the new project, which has the default features.
pub(crate) fn run(context: &Context, tally: &mut Tally) -> Result<(), String> {
    let root = &context.workspace.root;
    let project = Project::new(context)?;
    let read = |page: String| {
        let features = features(&std::fs::read_to_string(root.join(&page)).map_err(at(Path::new(&page)))?);
        Ok::<_, String>((page, features))
    };
    let pages: Vec<(String, BTreeSet<String>)> =
        pages(root).into_iter().map(read).collect::<Result<_, _>>()?;
    let all: BTreeSet<&str> = pages.iter().flat_map(|(_, asked)| asked).map(String::as_str).collect();
    let featured = with_features(context, &all)?;
    let mut failed = Vec::new();
    for (page, asked) in pages {
        let library = if asked.is_empty() { &project.library } else { &featured };
        if run_tests(&mut project.rustdoc(library, &root.join(&page)), tally).is_err() {
            failed.push(page);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("examples fail in {}", failed.join(", "))) }
}

/// Compiles `kiln` with these features beside those of the workspace's tests, and returns the path of the library.
fn with_features(context: &Context, features: &BTreeSet<&str>) -> Result<String, String> {
    let features: Vec<String> = features.iter().map(|name| format!("kiln/{name}")).collect();
    let features: Vec<&str> = features.iter().map(String::as_str).collect();
    compiled(&mut EXAMPLE.build(context.workspace, &features))
}

/// Runs a build and returns the path of the library `kiln`.
fn compiled(build: &mut Command) -> Result<String, String> {
    build.arg("--message-format=json-render-diagnostics");
    println!("$ {}", process::describe(build));
    library(&process::output(build)?, "kiln").ok_or_else(|| "cargo built no library called kiln".to_owned())
}

/// A new project that uses `kiln`. It is removed when dropped.
struct Project {
    folder: PathBuf,
    /// The path of `kiln` with its default features.
    library: String,
}

impl Project {
    /// `cargo new` in an empty folder, `cargo add kiln --path`, and `cargo run` of the program that `cargo new` writes.
    ///
    /// It shares the workspace's folder of compiled packages, and starts from the workspace's lock file, so that a release
    /// elsewhere breaks nothing here.
    fn new(context: &Context) -> Result<Project, String> {
        let folder = std::env::temp_dir().join(format!("kiln-newcomer-{}", std::process::id()));
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(at(&folder))?;
        }
        std::fs::create_dir_all(&folder).map_err(at(&folder))?;
        let mut project = Project { folder, library: String::new() };
        let program = project.program();
        process::run(process::cargo(&project.folder).args(["new", "--quiet", "first-program"]))?;
        let lock = (context.workspace.root.join("Cargo.lock"), program.join("Cargo.lock"));
        std::fs::copy(&lock.0, &lock.1).map_err(at(&lock.0))?;
        let mut add = process::cargo(&program);
        add.args(["add", "--quiet", "kiln", "--path"]).arg(context.workspace.root.join("crates/kiln"));
        process::run(&mut add)?;
        let cargo = |command: &str| {
            let mut cargo = process::cargo(&program);
            cargo.args([command, "--quiet", "--target-dir"]).arg(&context.workspace.target);
            cargo.args(PROFILE.iter().flat_map(|setting| ["--config", setting]));
            cargo
        };
        project.library = compiled(&mut cargo("build"))?;
        process::run(&mut cargo("run"))?;
        Ok(project)
    }

    fn program(&self) -> PathBuf {
        self.folder.join("first-program")
    }

    /// The rustdoc command for the examples of a page against a compiled `kiln`.
    fn rustdoc(&self, library: &str, page: &Path) -> Command {
        let folder = Path::new(library).parent().unwrap_or(Path::new("."));
        let dependencies = if folder.ends_with("deps") { folder.to_owned() } else { folder.join("deps") };
        let mut command = process::program("rustdoc", &self.program());
        command.args(["--test", "--edition", "2024", "--crate-name", "pages", "--extern"]);
        command.arg(format!("kiln={library}"));
        command.arg("-L").arg(format!("dependency={}", dependencies.display()));
        command.arg(page);
        command
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The features of `kiln` in the manifest snippets of a page: `kiln = { version = "0.1", features = ["cuda"] }`.
fn features(page: &str) -> BTreeSet<String> {
    let lines = page.lines().filter(|line| line.trim_start().starts_with("kiln = {"));
    let lists =
        lines.filter_map(|line| line.split_once("features = [")?.1.split_once(']').map(|(list, _)| list));
    let names = lists.flat_map(|list| list.split(','));
    names.map(|name| name.trim().trim_matches('"').to_owned()).filter(|name| !name.is_empty()).collect()
}

/// The path of the compiled library `name` among cargo's JSON messages; its own test program does not count.
fn library(messages: &str, name: &str) -> Option<String> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut libraries = artifacts.filter(|message| {
        message["reason"] == "compiler-artifact"
            && message["target"]["name"] == name
            && message["target"]["kind"][0] == "lib"
            && message["profile"]["test"] == false
    });
    let files = libraries.find_map(|message| message["filenames"].as_array().cloned())?;
    files.iter().filter_map(Value::as_str).find(|file| file.ends_with(".rlib")).map(str::to_owned)
}

/// Markdown pages below `root` with a Rust block, relative to it, in order.
fn pages(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    collect(root, "", &mut found);
    found.sort();
    found
}

fn collect(root: &Path, folder: &str, found: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(root.join(folder)) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        let kind = entry.file_type();
        if kind.as_ref().is_ok_and(|kind| kind.is_dir()) {
            if !name.starts_with('.') && !ELSEWHERE.contains(&name.as_str()) {
                collect(root, &path, found);
            }
        } else if name.ends_with(".md")
            && std::fs::read_to_string(root.join(&path)).is_ok_and(|text| holds_rust(&text))
        {
            found.push(path);
        }
    }
}

fn holds_rust(page: &str) -> bool {
    page.lines().any(|line| line.trim_start().starts_with("```rust"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_with_rust_are_found_outside_build_output() {
        let root = std::env::temp_dir().join(format!("kiln-xtask-pages-{}", std::process::id()));
        for (path, text) in [
            ("README.md", "```rust\nlet x = 1;\n```\n"),
            ("book/src/plain.md", "```sh\nls\n```\n"),
            ("book/src/code.md", "1. step\n   ```rust,no_run\n   f();\n   ```\n"),
            ("target/doc/README.md", "```rust\n```\n"),
        ] {
            std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            std::fs::write(root.join(path), text).unwrap();
        }
        assert_eq!(pages(&root), ["README.md", "book/src/code.md"]);
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_page_names_the_features_that_its_examples_need() {
        let page = "text\n```toml\nkiln = { version = \"0.1\", features = [\"linalg\", \"cuda\"] }\n```\n";
        assert_eq!(features(page), BTreeSet::from(["cuda".to_owned(), "linalg".to_owned()]));
        assert!(features("features = [\"cuda\"]\nkiln = { version = \"0.1\" }").is_empty());
    }

    #[test]
    fn the_library_is_distinguished_from_its_test_program() {
        let message = |test: bool, file: &str| {
            let target = serde_json::json!({"name": "kiln", "kind": ["lib"]});
            let profile = serde_json::json!({"test": test});
            serde_json::json!({"reason": "compiler-artifact", "target": target, "profile": profile, "filenames": [file]})
        };
        let lines =
            format!("not json\n{}\n{}\n", message(true, "/t/kiln-1"), message(false, "/t/libkiln-2.rlib"));
        assert_eq!(library(&lines, "kiln").as_deref(), Some("/t/libkiln-2.rlib"));
        assert_eq!(library(&lines, "other"), None);
    }
}
