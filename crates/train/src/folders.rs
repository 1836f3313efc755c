//! The checkpoint folders of a run.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::error::{Result, TrainError};

/// Rejects nested folders: a checkpoint replaces its whole folder.
pub(crate) fn check_apart(last: &Path, best: &Path) -> Result<()> {
    let (real_last, real_best) = (real_path(last), real_path(best));
    if !real_last.starts_with(&real_best) && !real_best.starts_with(&real_last) {
        return Ok(());
    }
    Err(TrainError::InvalidOption {
        option: "a folder of checkpoints",
        value: format!("`{}` where another is `{}`", best.display(), last.display()),
        requirement: "neither inside another folder of checkpoints nor a parent of it, such as `runs/best` beside `runs/last`",
    })
}

/// Resolves symbolic links and `..` in the existing part of a path and returns an absolute path.
fn real_path(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut real = PathBuf::new();
    for component in absolute.components() {
        match component {
            Component::ParentDir => drop(real.pop()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                real.push(component);
                real = fs::canonicalize(&real).unwrap_or(real);
            }
        }
    }
    real
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_folders_must_not_overlap() {
        let apart = |last: &str, best: &str| check_apart(Path::new(last), Path::new(best)).is_ok();
        assert!(apart("runs/last", "runs/best"));
        assert!(apart("runs", "runs-best"));
        for (one, other) in [
            ("runs", "runs"),
            ("runs", "./runs/"),
            ("runs", "runs/best"),
            ("runs/a/../b", "runs/b/c"),
            ("runs", "other/../runs/deep/below"),
        ] {
            assert!(!apart(one, other) && !apart(other, one), "{one} and {other}");
        }
        let absolute = std::env::current_dir().unwrap().join("runs/best");
        assert!(check_apart(Path::new("runs"), &absolute).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn symlinks_are_resolved() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert!(check_apart(&link.join("runs"), &folder.path().join("runs/best")).is_err());
        assert!(check_apart(&link.join("last"), &folder.path().join("best")).is_ok());
    }
}
