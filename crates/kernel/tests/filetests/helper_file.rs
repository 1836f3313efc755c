//! The files of helper functions: `filetests/kernel/helpers.*`.

use super::compare;
use kiln_kernel::print::{Dialect, helpers};
use std::fs;
use std::path::Path;

/// The type of indices in C++, which stands before the helpers.
const INDEX: (&str, &str) = ("kiln_index", "typedef int kiln_index;\n\n");

/// The file with the definitions of a language's helper functions that the printed kernels of filetests call.
pub(crate) struct HelperFile {
    path: &'static str,
    helpers: Vec<(&'static str, &'static str)>,
    /// Whether a printed kernel contains the helper.
    is_used: Vec<bool>,
}

impl HelperFile {
    pub(crate) fn new(dialect: Dialect, path: &'static str) -> HelperFile {
        let mut helpers = helpers(dialect);
        if dialect == Dialect::Cuda {
            helpers.insert(0, INDEX);
        }
        HelperFile { path, is_used: vec![false; helpers.len()], helpers }
    }

    /// A printed text with one line of names in place of the definitions of helpers. The names and the file contain the
    /// whole text: definitions are consecutive, and in the order of [`helpers`].
    pub(crate) fn by_name(&mut self, text: &str) -> Result<String, String> {
        let Some(start) = self.helpers.iter().filter_map(|(_, definition)| text.find(definition)).min()
        else {
            return Ok(text.to_owned());
        };
        let (before, mut rest) = text.split_at(start);
        let mut names = Vec::new();
        for ((name, definition), is_used) in self.helpers.iter().zip(&mut self.is_used) {
            if let Some(after) = rest.strip_prefix(definition) {
                rest = after;
                names.push(*name);
                *is_used = true;
            }
        }
        match self.helpers.iter().find(|(_, definition)| rest.contains(definition)) {
            None => Ok(format!("{before}// uses: {}\n{rest}", names.join(", "))),
            Some((name, _)) => Err(format!("the definition of {name} is not in the order of definitions")),
        }
    }

    /// Compares the file with the definitions of the helpers in texts so far, or writes it.
    pub(crate) fn check(&self, root: &Path, update: bool) -> Result<(), String> {
        let used = self.helpers.iter().zip(&self.is_used).filter(|(_, is_used)| **is_used);
        let definitions: Vec<&str> = used.map(|((_, definition), _)| *definition).collect();
        let path = root.join(self.path);
        let expected = fs::read_to_string(&path).unwrap_or_default();
        compare(&path, &expected, &definitions.join("\n"), update)
            .map_err(|problem| format!("== {}\n{problem}", self.path))
    }
}
