//! Names of temporary and replaced files and folders, in the same folder as their target.
//!
//! For a target `run` they are `.run.0123456789abcdef.partial`, `.run.0123456789abcdef.old` and `.run.lock`. The middle
//! part is random, since process ids repeat across containers and several machines may share a folder.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

/// Suffix of a file or folder that is being written.
pub(crate) const PARTIAL: &str = ".partial";

/// Suffix of a folder that was replaced.
pub(super) const OLD: &str = ".old";

/// Maximum number of symbolic links to follow, as on Linux.
const MAX_LINKS: usize = 40;

/// Maximum number of retries with another name if a name exists.
const MAX_NAMES: usize = 100;

/// Resolves the symbolic links of a target, even if the last one is dangling.
pub(super) fn resolve(target: &Path) -> io::Result<PathBuf> {
    // A trailing `/` would follow the link before it can be read.
    let mut path: PathBuf = target.components().collect();
    for _ in 0..MAX_LINKS {
        let Ok(to) = fs::read_link(&path) else {
            return match path.file_name() {
                Some(_) => Ok(path),
                None => Err(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file")),
            };
        };
        path = parent(&path).join(to).components().collect();
    }
    Err(io::Error::other("the path has too many levels of symbolic links"))
}

/// The parent folder of a path.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

/// The name `.NAME` plus a suffix, in the folder of the target: `.run.lock`.
pub(super) fn named(target: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(ending);
    target.with_file_name(name)
}

/// Creates a file or folder under a unique random name in the folder of a target.
pub(crate) fn create<T>(
    target: &Path,
    ending: &str,
    create: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(PathBuf, T)> {
    for _ in 0..MAX_NAMES {
        // The keys of `RandomState` are random per process and different within it.
        let random = RandomState::new().build_hasher().finish();
        let path = named(target, &format!(".{random:016x}{ending}"));
        match create(&path) {
            Ok(created) => return Ok((path, created)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "no free name for a temporary file"))
}

/// Whether [`create`] makes this name for a target `target`. Earlier versions used two integers with a `-` between them
/// instead of the random part.
pub(super) fn is_beside(name: &OsStr, target: &OsStr, ending: &str) -> bool {
    let middle = || {
        let rest = name.as_encoded_bytes().strip_prefix(b".")?;
        let rest = rest.strip_prefix(target.as_encoded_bytes())?.strip_prefix(b".")?;
        rest.strip_suffix(ending.as_bytes())
    };
    let is_ours = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-');
    middle().is_some_and(|middle| !middle.is_empty() && middle.iter().all(is_ours))
}

/// The target of a name of [`create`].
pub(crate) fn target_of_temporary(name: &OsStr) -> Option<OsString> {
    let (target, _) = name.to_str()?.strip_prefix('.')?.rsplit_once('.')?.0.rsplit_once('.')?;
    let target = OsString::from(target);
    [PARTIAL, OLD].iter().any(|ending| is_beside(name, &target, ending)).then_some(target)
}

/// Returns the paths of all names of [`create`] for a target, among the first entries of its folder.
pub(super) fn all(target: &Path, ending: &str, max_entries: usize) -> Vec<PathBuf> {
    // If a folder cannot be listed, nothing is found; the next step reports the error.
    let (Some(name), Ok(entries)) = (target.file_name(), fs::read_dir(parent(target))) else {
        return Vec::new();
    };
    let names = entries.take(max_entries).flatten().map(|entry| entry.file_name());
    let found = names.filter(|other| is_beside(other, name, ending));
    found.map(|found| target.with_file_name(found)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_of_a_temporary_name() {
        let of =
            |name: &str| target_of_temporary(OsStr::new(name)).map(|target| target.into_string().unwrap());
        assert_eq!(of(".step-1.0123456789abcdef.partial").as_deref(), Some("step-1"));
        assert_eq!(of(".v1.2.4711-0.old").as_deref(), Some("v1.2"));
        for other in
            ["", ".", "..", ".run.partial", ".run..partial", "run.12.partial", ".run.12.new", ".run.xyz.old"]
        {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn only_own_temporary_names_match() {
        let is = |name: &str| is_beside(OsStr::new(name), OsStr::new("run"), PARTIAL);
        assert!(is(".run.0123456789abcdef.partial"));
        assert!(is(".run.4711-0.partial"));
        for other in [
            "run.12.partial",
            ".run.partial",
            ".run..partial",
            ".run.12.old",
            ".run.1.12.partial",
            ".run.notes.partial",
            ".running.12.partial",
        ] {
            assert!(!is(other), "{other}");
        }
    }

    #[test]
    fn a_taken_temporary_name_is_retried() {
        let folder = tempfile::tempdir().unwrap();
        let tried = std::cell::Cell::new(0);
        let create_second = |path: &Path| {
            tried.set(tried.get() + 1);
            match tried.get() {
                1 => Err(io::Error::from(io::ErrorKind::AlreadyExists)),
                _ => fs::write(path, ""),
            }
        };
        let (path, ()) = create(&folder.path().join("x"), PARTIAL, create_second).unwrap();
        assert_eq!((tried.get(), path.exists()), (2, true));
        assert_eq!(all(&folder.path().join("x"), PARTIAL, 10), [path]);
    }

    #[cfg(unix)]
    #[test]
    fn dangling_symlinks_are_resolved() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink("sub/../two", at("one")).unwrap();
        symlink(at("real"), at("two")).unwrap();
        fs::create_dir(at("sub")).unwrap();
        assert_eq!(resolve(&at("one/")).unwrap(), at("real"));
        assert_eq!(resolve(Path::new("plain")).unwrap(), Path::new("plain"));
        symlink("loop", at("loop")).unwrap();
        assert!(resolve(&at("loop")).unwrap_err().to_string().contains("too many levels of symbolic links"));
        assert!(resolve(Path::new("/")).unwrap_err().to_string().contains("names no file"));
        assert!(resolve(Path::new("..")).is_err());
    }
}
