//! Rust examples in Markdown pages, compiled and run against `kiln` by rustdoc.

use std::path::Path;

use serde_json::Value;

use super::libtest::Tally;
use super::steps::{Context, run_tests};
use crate::process;

/// Folders that hold no pages of our own.
const ELSEWHERE: &[&str] = &["target", "node_modules"];

/// There is a page with Rust in it, and a façade to compile it against.
pub(crate) fn can_run(context: &Context) -> Result<(), String> {
    if context.workspace.package("kiln").is_none() {
        return Err("the workspace has no kiln package".to_owned());
    }
    if pages(&context.workspace.root).is_empty() { Err("no page holds Rust".to_owned()) } else { Ok(()) }
}

/// Runs rustdoc on every page that holds Rust. The libraries are those of the `tests` step, so nothing compiles twice.
pub(crate) fn run(context: &Context, tally: &mut Tally) -> Result<(), String> {
    let root = &context.workspace.root;
    let mut build = process::cargo(root);
    build.args(["test", "--workspace", "--no-run", "--quiet", "--message-format=json"]);
    let messages = process::output(&mut build)?;
    let library = library(&messages, "kiln").ok_or("cargo built no library called kiln")?;
    let folder = Path::new(&library).parent().unwrap_or(root);
    let dependencies = if folder.ends_with("deps") { folder.to_owned() } else { folder.join("deps") };
    let mut failed = Vec::new();
    for page in pages(root) {
        let mut command = process::program("rustdoc", root);
        command.args(["--test", "--edition", "2024", "--crate-name", "pages", "--extern"]);
        command.arg(format!("kiln={library}"));
        command.arg("-L").arg(format!("dependency={}", dependencies.display()));
        command.arg(&page);
        if run_tests(&mut command, tally).is_err() {
            failed.push(page);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("examples fail in {}", failed.join(", "))) }
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
    fn the_library_is_told_from_its_test_program() {
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
