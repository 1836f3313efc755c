//! Versions of the safetensors files that [`save_module`](crate::save_module) and
//! [`save_optimizer`](crate::save_optimizer) write.
//!
//! The metadata contains the version as `kiln.format`. Checkpoints have versions of their own in `training.json`.
//!
//! | version | contents |
//! |---|---|
//! | 0 | no `kiln.format` in the metadata: files of other programs, and of Kiln before version 1 |
//! | 1 | `kiln.format` in the metadata |
//!
//! [`MIGRATIONS`] is the only place that knows earlier versions. A change of names or layouts needs a new version, a
//! migration and a fixture in `tests/fixtures`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Result, StoreError};

/// The key of the version in the metadata.
pub(crate) const KEY: &str = "kiln.format";

/// The version that this crate writes.
pub(crate) const VERSION: u32 = 1;

/// The name of a tensor in the next version, by its name in one version.
type Migration = fn(&str) -> String;

/// The migrations: from version 0 to 1, and so on. The first must not change names, because files of other programs
/// have no version.
const MIGRATIONS: [Migration; VERSION as usize] = [str::to_owned];

/// Adds the version to metadata.
pub(crate) fn insert(metadata: &mut BTreeMap<String, String>) {
    metadata.insert(KEY.to_owned(), VERSION.to_string());
}

/// Returns the version of a file.
///
/// # Errors
/// When the version is not a number, or newer than [`VERSION`].
pub(crate) fn of(path: &Path, metadata: &BTreeMap<String, String>) -> Result<u32> {
    let Some(text) = metadata.get(KEY) else { return Ok(0) };
    let refused = || StoreError::Version { file: path.to_owned(), found: text.clone(), supported: VERSION };
    text.parse().ok().filter(|version| *version <= VERSION).ok_or_else(refused)
}

/// Returns the name in [`VERSION`] of a tensor in a file of an earlier version.
pub(crate) fn migrated(name: &str, version: u32) -> String {
    MIGRATIONS.iter().skip(version as usize).fold(name.to_owned(), |name, migration| migration(&name))
}
