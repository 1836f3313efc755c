//! The report of loading.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{TypeMismatch, UNMATCHED, did_you_mean, section};

/// The report of [`load_module_with`](crate::load_module_with). Names are those in the module, except in `unexpected`.
/// `Display` prints the number of loaded parameters, and lists the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Parameters and buffers that were loaded.
    pub loaded: Vec<String>,
    /// Parameters and buffers that the file does not contain.
    pub missing: Vec<String>,
    /// Tensors in the file that were skipped, by their names in the file.
    pub unexpected: Vec<String>,
    /// Parameters and buffers that keep their values because the file has another type.
    pub mismatched: Vec<TypeMismatch>,
    /// The names in `loaded` whose dtype in the file differs.
    pub cast: Vec<String>,
    /// For names in `missing`, a similar name of an unused tensor.
    pub similar: BTreeMap<String, String>,
    /// Rules of the [mapping](crate::Mapping) that match no tensor, which are logged as warnings too.
    pub unmatched: Vec<String>,
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.loaded.len() + self.missing.len() + self.mismatched.len();
        write!(f, "loaded {} of {total} parameters and buffers", self.loaded.len())?;
        let similar = |name: &String| did_you_mean(self.similar.get(name).map(String::as_str));
        let missing = self.missing.iter().map(|name| format!("`{name}`{}", similar(name)));
        section(f, "missing in the file", missing)?;
        let types = self.mismatched.iter().map(TypeMismatch::to_string);
        section(f, "of another type", types)?;
        section(f, "unused", self.unexpected.iter().map(|name| format!("`{name}`")))?;
        section(f, UNMATCHED, self.unmatched.iter().cloned())
    }
}
