//! Caches of compiled code on disk, which processes share: their folder, and reads and writes of whole files.

use std::fs::{self, File};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The folder of one kind of compiled code for one target: under `KILN_CACHE_DIR`, or in the system's cache directory. It
/// is created if missing. `None`, so that nothing is cached, if the variable is empty or the folder cannot be created. Only
/// a directory that the user named in the variable must be writable: the error output tells if it is not.
pub fn folder(kind: &str, target: &str) -> Option<PathBuf> {
    let asked = std::env::var_os("KILN_CACHE_DIR");
    let root = match &asked {
        Some(root) if root.is_empty() => return None,
        Some(root) => PathBuf::from(root),
        None => system_cache()?.join("kiln"),
    };
    let folder = root.join(kind).join(format!("{:016x}", hash(target)));
    match fs::create_dir_all(&folder) {
        Ok(()) => Some(folder),
        Err(error) => {
            if asked.is_some() {
                eprintln!("[settings] KILN_CACHE_DIR keeps no {kind}: {}: {error}", folder.display());
            }
            None
        }
    }
}

/// The contents of a file of at most `longest` bytes; `None` if it is missing, longer, unreadable or no regular file.
pub fn read(path: &Path, longest: u64) -> Option<Vec<u8>> {
    // Opening a pipe would wait for its writer.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    // Another process may lengthen the file meanwhile.
    let read = File::open(path).ok()?.take(longest.saturating_add(1)).read_to_end(&mut bytes).ok()?;
    (read as u64 <= longest).then_some(bytes)
}

/// Replaces a file by the concatenated parts. Readers find its old or its new contents, never a part of them.
///
/// # Errors
/// When the file cannot be written, for example on a full disk. The old contents then remain.
pub fn replace(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    // Random, because process ids repeat in containers, which may share the folder.
    let random = RandomState::new().build_hasher().finish();
    let temporary = path.with_file_name(format!("{random:016x}.new"));
    let written = write(&temporary, parts).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The file may not exist.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// A hash that is stable between runs of programs built by one compiler. With another compiler, code is only compiled
/// again.
pub fn hash<T: Hash + ?Sized>(value: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn write(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    parts.iter().try_for_each(|part| file.write_all(part))
}

fn system_cache() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("XDG_CACHE_HOME")
        .or_else(|| variable("LOCALAPPDATA"))
        .or_else(|| Some(variable("HOME")?.join(".cache")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("kiln-disk-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let folder = folder("read");
        let path = folder.join("file");
        assert_eq!(read(&path, 10), None);
        fs::write(&path, [7; 10]).unwrap();
        assert_eq!(read(&path, 10), Some(vec![7; 10]));
        assert_eq!(read(&path, u64::MAX), Some(vec![7; 10]));
        assert_eq!(read(&path, 9), None);
        assert_eq!(read(&folder, 10), None);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_replaced_file_has_all_parts_and_leaves_no_other_file() {
        let folder = folder("replace");
        let path = folder.join("file");
        for contents in [[&b"old"[..], b"er"], [&b""[..], b"new"]] {
            replace(&path, &contents).unwrap();
            assert_eq!(fs::read(&path).unwrap(), contents.concat());
        }
        // A folder is in the way.
        let other = folder.join("folder");
        fs::create_dir_all(other.join("inner")).unwrap();
        assert!(replace(&other, &[b"new"]).is_err());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn hashes_differ() {
        assert_eq!(hash("target"), hash("target"));
        assert_ne!(hash("target"), hash("targets"));
    }
}
