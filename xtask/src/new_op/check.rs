//! Adds an op of each form to a copy of the tree, and lists the files that the compiler then asks for.
//!
//! The arm that the compiler suggests for a match is written with `todo!()`, until the copy compiles: that counts the
//! files that must change, and finds those that `new-op` does not name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use super::{COMPOSITE, Insertion, UNARY};
use crate::process::{self, at};
use crate::workspace::Workspace;

/// Folders whose sources the check does not compile.
const NOT_COPIED: &[&str] = &["filetests/", "book/", "docs/"];

/// Packages that depend on all crates with matches over ops or functions, except the engines over candle and LibTorch:
/// these libraries take minutes to compile.
const COMPILED: &[&str] = &["kiln-foreign", "kiln-fuzz", "kiln-gpu"];

/// Rows of tables of the new function that are no match, so that the compiler has no suggestion.
const FUNCTION_ROWS: &[Insertion] = &[
    Insertion {
        file: "crates/kernel/src/print/functions.rs",
        after: "pub(super) static FUNCTIONS",
        before: "];",
        text: "    plain(Unary::{Name}, Call(\"{name}\"), Call(\"kiln_{name}\")),\n",
    },
    Insertion {
        file: "crates/cpu/src/functions.rs",
        after: "    bits: Not;",
        before: "}",
        text: "    {Name} {name} scalar |x| x;\n",
    },
];

/// The greatest number of compilations. One shows the errors of crates that do not depend on each other.
const ROUNDS: usize = 8;

/// Checks the lists of files of `new-op`.
pub(super) fn run(workspace: &Workspace) -> Result<(), String> {
    let (function, composite) = ("new_function", "new_composite");
    let copy = workspace.target.join("xtask/new-op");
    copy_tree(&workspace.root, &copy)?;
    for (form, name) in [(UNARY, function), (COMPOSITE, composite)] {
        form.row.iter().try_for_each(|insertion| insertion.write(&copy, name, false).map(drop))?;
    }
    let mut asked = BTreeSet::new();
    for round in 0.. {
        let errors = errors(&copy, &workspace.target)?;
        if errors.is_empty() {
            break;
        }
        let found: BTreeSet<&str> = errors.iter().map(|error| error.file.as_str()).collect();
        println!("the compiler asks for {}", found.iter().copied().collect::<Vec<_>>().join(", "));
        if round == ROUNDS {
            return Err(format!("the copy in {} does not compile", copy.display()));
        }
        asked.extend(errors.iter().map(|error| error.file.clone()));
        for file in found {
            let rows: Vec<&Insertion> = FUNCTION_ROWS.iter().filter(|row| row.file == file).collect();
            if rows.is_empty() {
                write_arms(&copy, file, &errors)?;
            } else {
                rows.iter().try_for_each(|row| row.write(&copy, function, false).map(drop))?;
            }
        }
    }
    let listed = |file: &str| UNARY.files.iter().chain(COMPOSITE.files).any(|(listed, _)| *listed == file);
    let missing: Vec<&str> = asked.iter().map(String::as_str).filter(|file| !listed(file)).collect();
    if !missing.is_empty() {
        let hint = "name the files in xtask/src/new_op.rs, or give new ops a default there";
        return Err(format!("a new op also changes {}\n  hint: {hint}", missing.join(", ")));
    }
    for (what, form) in [("function", UNARY), ("composite", COMPOSITE)] {
        println!("a new {what} changes {} files, at most {}", form.files.len(), form.most);
    }
    Ok(())
}

/// Copies the tracked files. One that is equal keeps its time, so that cargo need not compile it again.
fn copy_tree(root: &Path, copy: &Path) -> Result<(), String> {
    let files = process::output(process::program("git", root).args(["ls-files", "-z"]))?;
    let is_copied = |file: &&str| !file.is_empty() && !NOT_COPIED.iter().any(|start| file.starts_with(start));
    for file in files.split('\0').filter(is_copied) {
        let (from, to) = (root.join(file), copy.join(file));
        // A file may be deleted and not yet committed, and a link may point to one that is not copied.
        let Ok(content) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|old| old == content) {
            continue;
        }
        let folder = to.parent().unwrap_or(copy);
        fs::create_dir_all(folder).map_err(at(folder))?;
        fs::write(&to, content).map_err(at(&to))?;
    }
    Ok(())
}

/// An error of the compiler, with the arm that it suggests.
struct Missing {
    file: String,
    arm: Option<(usize, String)>,
}

/// Compiles the copy, and returns the errors.
fn errors(copy: &Path, target: &Path) -> Result<Vec<Missing>, String> {
    let mut command = process::cargo(copy);
    command.args(["check", "--lib", "--keep-going", "--message-format=json", "--quiet"]);
    command.args(COMPILED.iter().flat_map(|name| ["-p", name])).arg("--target-dir").arg(target);
    println!("$ {}", process::describe(&command));
    let done = command.stderr(Stdio::null()).output().map_err(|error| format!("cargo check: {error}"))?;
    let messages = String::from_utf8_lossy(&done.stdout);
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found: Vec<Missing> = messages.filter_map(|message| error(&message["message"])).collect();
    if found.is_empty() && !done.status.success() {
        return Err(format!("{} from `{}`", done.status, process::describe(&command)));
    }
    Ok(found)
}

/// An error with a place in a source, from a message of the compiler.
fn error(message: &Value) -> Option<Missing> {
    let spans = |message: &Value| message["spans"].as_array().cloned().unwrap_or_default();
    if message["level"] != "error" {
        return None;
    }
    let place = spans(message).into_iter().find(|span| span["is_primary"] == true)?;
    let file = place["file_name"].as_str()?.to_owned();
    let helps = message["children"].as_array().cloned().unwrap_or_default();
    let arm = helps.iter().flat_map(spans).find_map(|span| {
        let text = span["suggested_replacement"].as_str().filter(|text| text.contains("todo!()"))?;
        Some((usize::try_from(span["byte_start"].as_u64()?).ok()?, from_root(text)))
    });
    Some(Missing { file, arm })
}

/// The arm with paths from the root of the crate: the compiler prints those of private modules without it.
fn from_root(arm: &str) -> String {
    let mut text = arm.to_owned();
    for name in ["Op::", "Unary::"] {
        let Some(at) = text.find(name) else { continue };
        let is_path = |c: char| c.is_ascii_lowercase() || matches!(c, '_' | ':');
        let start = text[..at].rfind(|c| !is_path(c)).map_or(0, |before| before + 1);
        if start < at && !text[start..at].starts_with("kiln_") {
            text.replace_range(start..at, "crate::");
        }
    }
    text
}

/// Writes the suggested arms of a file.
fn write_arms(copy: &Path, file: &str, errors: &[Missing]) -> Result<(), String> {
    let path = copy.join(file);
    let mut source = fs::read_to_string(&path).map_err(at(&path))?;
    // A library is compiled a second time for its tests.
    let arms: BTreeSet<&(usize, String)> =
        errors.iter().filter(|error| error.file == file).filter_map(|error| error.arm.as_ref()).collect();
    if arms.is_empty() {
        return Err(format!("the compiler suggests nothing for an error in {file} of {}", copy.display()));
    }
    for (offset, text) in arms.into_iter().rev() {
        source.insert_str(*offset, text);
    }
    fs::write(&path, source).map_err(at(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_have_paths_from_the_root() {
        for (arm, expected) in [
            (", &op::Op::New { .. } => todo!()", ", &crate::Op::New { .. } => todo!()"),
            ("functions::Unary::New => todo!()", "crate::Unary::New => todo!()"),
            ("&Op::New(_) => todo!()", "&Op::New(_) => todo!()"),
            ("&kiln_ir::Op::New => todo!()", "&kiln_ir::Op::New => todo!()"),
        ] {
            assert_eq!(from_root(arm), expected);
        }
    }
}
