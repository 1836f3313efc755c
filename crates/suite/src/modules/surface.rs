//! The names of all modules, read from the sources of `kiln_nn`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders and files below `crates/nn/src` whose configurations and unit structs are those of modules.
const SOURCES: &[&str] = &["attention", "layer", "loss", "recurrent", "transformer"];

/// Configurations of types that are no modules with a row, with the reason.
pub const EXEMPT: &[(&str, &str)] = &[
    ("BiGru", "an alias of `Gru` with two directions"),
    ("BiLstm", "an alias of `Lstm` with two directions"),
    ("BiRnn", "an alias of `Rnn` with two directions"),
];

/// Returns the names of the modules of `kiln_nn`: those of its configurations (`LinearConfig` is that of `Linear`).
///
/// # Panics
/// When a source file cannot be read.
pub fn surface() -> BTreeSet<String> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../nn/src");
    let mut files = Vec::new();
    SOURCES.iter().for_each(|folder| collect(&root.join(folder), &mut files));
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for word in code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')) {
            let name =
                word.strip_suffix("Config").filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()));
            names.extend(name.map(str::to_owned));
        }
    }
    // Options of other modules.
    for option in ["Padding", "Infer"] {
        names.remove(option);
    }
    names
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("a folder is readable").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
