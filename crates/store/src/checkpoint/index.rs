//! `training.json`, the index of a checkpoint, and its versions.
//!
//! | version | contents |
//! |---|---|
//! | 1 | `epoch`, `step`, `random`, `values`. The folder holds `model.safetensors` and maybe `optimizer.safetensors`. |
//! | 2 | `files`: the length and CRC-32 of each other file. `crc32`, the last value: the CRC-32 of all text before it. |
//! | 3 | `files` may list several models, optimizers and groups of tensors. `streams`: random states by name. |
//!
//! [`Index::parse`] is the only place that knows earlier versions: it converts them to the newest one. A new version
//! adds a row to the table, a step in [`Index::parse`] and a folder of `tests/fixtures`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::part::{MAX_PARTS, PartKind, PartName, TRAINING};
use super::state::{Keys, TrainingState};
use crate::atomic::FolderKind;
use crate::checksum::{Checksum, hex_of};
use crate::error::{Result, StoreError};

/// The version that this crate writes.
const VERSION: u32 = 3;

/// The version that added checksums.
const WITH_CHECKSUMS: u32 = 2;

/// The folder of a checkpoint. The fixed files are those of version 1, which lists none.
pub(super) const KIND: FolderKind = FolderKind {
    name: "checkpoint",
    index: TRAINING,
    files: &[TRAINING, "model.safetensors", "optimizer.safetensors"],
    is_part: |name| PartName::parse(name).is_some(),
    listed,
};

/// The contents of `training.json`.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) state: TrainingState,
    pub(super) files: Files,
}

/// The files that an index lists.
#[derive(Debug)]
pub(super) enum Files {
    /// Version 1: a model, and maybe an optimizer, without checksums.
    Unlisted,
    Listed(BTreeMap<PartName, Checksum>),
}

/// The JSON of all versions.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Json {
    version: u32,
    epoch: u64,
    step: u64,
    random: Vec<Keys>,
    /// Since version 3.
    #[serde(default)]
    streams: BTreeMap<String, Keys>,
    values: BTreeMap<String, serde_json::Value>,
    /// Since version 2.
    #[serde(default)]
    files: BTreeMap<String, Checksum>,
    /// Since version 2: the checksum of all bytes before it.
    #[serde(default, skip_serializing)]
    #[expect(dead_code, reason = "it is checked before the rest is parsed")]
    crc32: Option<String>,
}

/// The text before the checksum, which is the last value.
const CHECKSUM: &str = ",\n  \"crc32\": \"";

impl Index {
    /// The text of the newest version.
    pub(super) fn print(
        state: &TrainingState,
        files: &BTreeMap<PartName, Checksum>,
    ) -> serde_json::Result<String> {
        let TrainingState { epoch, step, random, streams, values } = state.clone();
        let files = files.iter().map(|(part, &checksum)| (part.file_name(), checksum)).collect();
        let json = Json { version: VERSION, epoch, step, random, streams, values, files, crc32: None };
        let text = serde_json::to_string_pretty(&json)?;
        let text = text.strip_suffix("\n}").unwrap_or(&text);
        Ok(format!("{text}{CHECKSUM}{}\"\n}}\n", hex_of(text.as_bytes())))
    }

    /// Reads an index of any version. `path` is for messages.
    ///
    /// # Errors
    /// When the text is damaged, its version is unknown, or it lists a file that no checkpoint has.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Index> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let failed = |error| StoreError::json(path, error);
        let Version { version } = serde_json::from_str(text).map_err(failed)?;
        if !(1..=VERSION).contains(&version) {
            let problem = format!("has version {version}; supported: 1 to {VERSION}");
            return Err(StoreError::json(path, problem));
        }
        // A damaged version number must not skip the check: in a string, the line break of the key would be escaped.
        if version >= WITH_CHECKSUMS || text.contains(CHECKSUM) {
            check(path, text)?;
        }
        let Json { epoch, step, random, streams, values, files, .. } =
            serde_json::from_str(text).map_err(failed)?;
        let files = match version < WITH_CHECKSUMS {
            true => Files::Unlisted,
            false => Files::Listed(parts(path, files)?),
        };
        Ok(Index { state: TrainingState { epoch, step, random, streams, values }, files })
    }
}

/// Checks the checksum at the end of a text.
fn check(path: &Path, text: &str) -> Result<()> {
    let (before, after) = text.rsplit_once(CHECKSUM).unwrap_or_default();
    let (found, expected) = (hex_of(before.as_bytes()), after.get(..8).unwrap_or_default());
    if found == expected {
        return Ok(());
    }
    let found = format!("its CRC-32 is {found}");
    let expected = if expected.is_empty() { "another" } else { expected }.to_owned();
    Err(StoreError::Damaged { file: path.to_owned(), found, expected })
}

fn parts(path: &Path, files: BTreeMap<String, Checksum>) -> Result<BTreeMap<PartName, Checksum>> {
    if files.len() > MAX_PARTS {
        let problem = format!("lists {} files; a checkpoint has at most {MAX_PARTS}", files.len());
        return Err(StoreError::json(path, problem));
    }
    let part = |(name, checksum): (String, Checksum)| match PartName::parse(&name) {
        Some(part) => Ok((part, checksum)),
        None => Err(StoreError::json(path, format_args!("lists `{name}`, which is no file of a checkpoint"))),
    };
    files.into_iter().map(part).collect()
}

/// The names of the files that the text of an index lists; none if it is damaged.
fn listed(text: &str) -> Vec<String> {
    match Index::parse(Path::new(TRAINING), text) {
        Ok(Index { files: Files::Listed(files), .. }) => files.keys().map(PartName::file_name).collect(),
        Ok(Index { files: Files::Unlisted, .. }) | Err(_) => Vec::new(),
    }
}

impl Files {
    /// The files to open with their checksums, and whether each must exist.
    pub(super) fn expected(&self) -> Vec<(PartName, Option<Checksum>, bool)> {
        match self {
            Files::Listed(files) => {
                files.iter().map(|(part, &checksum)| (part.clone(), Some(checksum), true)).collect()
            }
            Files::Unlisted => [(PartKind::Module, true), (PartKind::Optimizer, false)]
                .into_iter()
                .filter_map(|(kind, is_required)| {
                    let name = kind.default_name()?.to_owned();
                    Some((PartName { kind, name }, None, is_required))
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Index> {
        Index::parse(Path::new("run/training.json"), text)
    }

    /// An index with this list of files and a valid checksum.
    fn listing(files: &str) -> String {
        let text = format!(
            "{{\n  \"version\": 3,\n  \"epoch\": 0,\n  \"step\": 0,\n  \"random\": [],\n  \"streams\": {{}},\n  \"values\": {{}},\n  \"files\": {files}"
        );
        format!("{text}{CHECKSUM}{}\"\n}}\n", hex_of(text.as_bytes()))
    }

    #[test]
    fn only_names_of_parts_are_listed() {
        let entry = |name: &str| format!(r#"{{"{name}": {{"bytes": 0, "crc32": "00000000"}}}}"#);
        let good = listing(&entry("model-ema.safetensors"));
        assert_eq!(listed(&good), ["model-ema.safetensors"]);
        for name in ["../model.safetensors", "/etc/passwd", "training.json", "model-Ema.safetensors", ""] {
            let text = listing(&entry(name));
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.ends_with("which is no file of a checkpoint"), "{error}");
            assert!(listed(&text).is_empty());
        }
    }

    #[test]
    fn a_damaged_version_number_is_detected() {
        let good = listing("{}");
        assert!(parse(&good).is_ok());
        for version in ["1", "2"] {
            let text = good.replace("\"version\": 3", &format!("\"version\": {version}"));
            assert!(matches!(parse(&text), Err(StoreError::Damaged { .. })), "{version}");
        }
    }

    #[test]
    fn the_number_of_files_is_bounded() {
        let entry = |n| format!(r#""model-{n}.safetensors": {{"bytes": 0, "crc32": "00000000"}}"#);
        let of =
            |count: usize| listing(&format!("{{{}}}", (0..count).map(entry).collect::<Vec<_>>().join(",")));
        assert_eq!(listed(&of(64)).len(), 64);
        let error = parse(&of(65)).unwrap_err().to_string();
        assert!(error.contains("lists 65 files; a checkpoint has at most 64"), "{error}");
    }

    #[test]
    fn invalid_indices_are_errors() {
        for (text, expected) in [
            ("", "EOF"),
            ("{}", "version"),
            (r#"{"version": 0}"#, "has version 0; supported: 1 to 3"),
            (r#"{"version": 4}"#, "has version 4; supported: 1 to 3"),
            (r#"{"version": 3}"#, "damaged"),
            (r#"{"version": 1}"#, "epoch"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(parse(&"[".repeat(1 << 20)).is_err());
    }
}
