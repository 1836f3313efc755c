//! The tensors of a file while rules apply.

use std::collections::{HashMap, HashSet};

use super::{Mapped, Origin, Target, Targets};
use crate::error::{Result, StoreError};
use crate::source::{TensorInfo, TensorSource, tied_names};

/// The tensors in the order of the file, with their names so far. For a module, tied tensors have an entry for each name.
pub(super) struct Tensors<'a> {
    source: &'a dyn TensorSource,
    /// The parameters of the module, if there is one.
    targets: Option<&'a Targets>,
    pub(super) entries: Vec<(String, Origin)>,
    skipped: Vec<String>,
}

impl<'a> Tensors<'a> {
    pub(super) fn new(source: &'a dyn TensorSource, targets: Option<&'a Targets>) -> Tensors<'a> {
        let names = source.names().into_iter();
        let mut entries: Vec<_> =
            names.map(|name| (name.to_owned(), Origin::Tensor(name.to_owned()))).collect();
        if targets.is_some() {
            entries.extend(tied_names(source).into_iter().map(|(other, name)| (other, Origin::Tensor(name))));
        }
        Tensors { source, targets, entries, skipped: Vec::new() }
    }

    /// Whether the module has a parameter of that name.
    pub(super) fn is_wanted(&self, name: &str) -> bool {
        self.targets.is_some_and(|targets| targets.contains_key(name))
    }

    /// The parameter of the module.
    pub(super) fn target(&self, name: &str) -> Option<&'a Target> {
        self.targets?.get(name)
    }

    /// The names of the module's parameters, if there is a module.
    pub(super) fn targets(&self) -> Option<&'a Targets> {
        self.targets
    }

    /// The type of a tensor.
    pub(super) fn info(&self, name: &str, origin: &Origin) -> Result<TensorInfo> {
        origin.info(self.source, name)
    }

    pub(super) fn source(&self) -> &'a dyn TensorSource {
        self.source
    }

    /// The positions of the tensors by name.
    pub(super) fn positions(&self) -> HashMap<String, usize> {
        self.entries.iter().enumerate().map(|(i, (name, _))| (name.clone(), i)).collect()
    }

    /// Renames each tensor; `None` skips it.
    pub(super) fn rename(&mut self, rename: impl Fn(&str) -> Option<String>) {
        for (name, origin) in std::mem::take(&mut self.entries) {
            match rename(&name) {
                Some(name) => self.entries.push((name, origin)),
                None => origin.names_in_file(&mut self.skipped),
            }
        }
    }

    /// Keeps the tensors whose names pass a test, and skips others.
    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.rename(|name| keep(name).then(|| name.to_owned()));
    }

    /// Replaces the tensor at a position by a permutation of its axes.
    pub(super) fn permute(&mut self, position: usize, axes: Vec<usize>) {
        let of = Box::new(self.entries[position].1.clone());
        self.entries[position].1 = Origin::Permuted { of, axes };
    }

    /// The result.
    ///
    /// # Errors
    /// When two tensors have the same name.
    pub(super) fn finish(self, unmatched: Vec<String>) -> Result<Mapped> {
        let mut seen = HashSet::new();
        if let Some((name, _)) = self.entries.iter().find(|(name, _)| !seen.insert(name.as_str())) {
            return Err(StoreError::Duplicate { file: self.source.path().to_owned(), name: name.clone() });
        }
        Ok(Mapped { tensors: self.entries, skipped: self.skipped, unmatched })
    }
}
