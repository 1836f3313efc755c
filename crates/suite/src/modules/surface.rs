//! The names of all modules, read from the re-exports of `kiln_nn`.

use std::collections::BTreeSet;

/// The names of the public types of `kiln_nn` that are modules: those of its re-exports, without configurations and
/// without [`EXEMPT`].
///
/// # Panics
/// When a source file cannot be read.
pub fn surface() -> BTreeSet<String> {
    BTreeSet::new()
}
