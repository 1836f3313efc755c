//! The files of a checkpoint and their names.

use std::fmt;

use crate::error::{Result, StoreError};

/// The file that every checkpoint contains.
pub(super) const TRAINING: &str = "training.json";

/// Limit on the number of modules, optimizers and groups of tensors of a checkpoint: all of them are open at once.
pub(super) const MAX_PARTS: usize = 64;

/// Limit on the length of a name in bytes.
const MAX_NAME: usize = 64;

const EXTENSION: &str = ".safetensors";

/// The kind of a file with tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PartKind {
    Module,
    Optimizer,
    Tensors,
}

impl PartKind {
    const ALL: [PartKind; 3] = [PartKind::Module, PartKind::Optimizer, PartKind::Tensors];

    /// The start of the file's name.
    fn prefix(self) -> &'static str {
        match self {
            PartKind::Module => "model",
            PartKind::Optimizer => "optimizer",
            PartKind::Tensors => "tensors",
        }
    }

    /// The name whose file is the prefix alone, as in formats 1 and 2.
    pub(super) fn default_name(self) -> Option<&'static str> {
        match self {
            PartKind::Module | PartKind::Optimizer => Some(self.prefix()),
            PartKind::Tensors => None,
        }
    }
}

impl fmt::Display for PartKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PartKind::Module => "module",
            PartKind::Optimizer => "optimizer",
            PartKind::Tensors => "group of tensors",
        })
    }
}

/// The kind and the name of a file with tensors.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartName {
    pub(super) kind: PartKind,
    pub(super) name: String,
}

impl PartName {
    /// Checks a name: 1 to 64 characters of `a-z`, `0-9` and `_`, which every file system can store.
    pub(super) fn new(kind: PartKind, name: &str) -> Result<PartName> {
        if is_valid(name) {
            return Ok(PartName { kind, name: name.to_owned() });
        }
        let shown: String = name.chars().take(MAX_NAME).collect();
        Err(StoreError::InvalidArgument {
            argument: format!("the name `{shown}` of a {kind}"),
            problem: format!("use 1 to {MAX_NAME} characters of a-z, 0-9 and _"),
        })
    }

    /// The name of the file: `model.safetensors`, `model-NAME.safetensors`.
    pub(super) fn file_name(&self) -> String {
        let prefix = self.kind.prefix();
        match self.kind.default_name() == Some(self.name.as_str()) {
            true => format!("{prefix}{EXTENSION}"),
            false => format!("{prefix}-{}{EXTENSION}", self.name),
        }
    }

    /// The inverse of [`file_name`](PartName::file_name). `None` for all other names.
    pub(super) fn parse(file_name: &str) -> Option<PartName> {
        let stem = file_name.strip_suffix(EXTENSION)?;
        let (prefix, name) = stem.split_once('-').unwrap_or((stem, stem));
        let kind = PartKind::ALL.into_iter().find(|kind| kind.prefix() == prefix)?;
        let part = PartName { kind, name: name.to_owned() };
        (is_valid(name) && part.file_name() == file_name).then_some(part)
    }
}

fn is_valid(name: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_round_trip() {
        for (kind, name, file) in [
            (PartKind::Module, "model", "model.safetensors"),
            (PartKind::Module, "ema", "model-ema.safetensors"),
            (PartKind::Module, "optimizer", "model-optimizer.safetensors"),
            (PartKind::Optimizer, "optimizer", "optimizer.safetensors"),
            (PartKind::Optimizer, "model", "optimizer-model.safetensors"),
            (PartKind::Tensors, "metrics_2", "tensors-metrics_2.safetensors"),
            (PartKind::Tensors, "tensors", "tensors-tensors.safetensors"),
        ] {
            let part = PartName::new(kind, name).unwrap();
            assert_eq!(part.file_name(), file);
            assert_eq!(PartName::parse(file), Some(part));
        }
    }

    #[test]
    fn other_file_names_are_rejected() {
        for file in [
            "",
            ".safetensors",
            "training.json",
            "tensors.safetensors",
            "model-.safetensors",
            "model-model.safetensors",
            "model-Ema.safetensors",
            "model-a-b.safetensors",
            "model-../../x.safetensors",
            "model-a/b.safetensors",
            "model-ä.safetensors",
            "model-a.safetensors.bak",
            "models-a.safetensors",
            "thesis.safetensors",
        ] {
            assert_eq!(PartName::parse(file), None, "{file}");
        }
        assert_eq!(PartName::parse(&format!("model-{}.safetensors", "a".repeat(65))), None);
        assert!(PartName::parse(&format!("model-{}.safetensors", "a".repeat(64))).is_some());
    }

    #[test]
    fn the_error_of_a_name_states_the_rule() {
        for name in ["", "Ema", "a-b", "a.b", "../x", "a/b", "ä", &"a".repeat(65)] {
            let error = PartName::new(PartKind::Module, name).unwrap_err().to_string();
            assert!(error.ends_with("use 1 to 64 characters of a-z, 0-9 and _"), "{error}");
        }
        let long = PartName::new(PartKind::Module, &"a".repeat(1 << 20)).unwrap_err().to_string();
        assert!(long.len() < 200);
    }
}
