//! Writing so that no reader ever sees half a file.
//!
//! Everything is written under another name in the same folder, brought to the disk, and renamed. Renaming
//! replaces the target in one go, so after a crash, a full disk or an error the target is the old one or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Result, StoreError};

/// Bytes gathered before they are handed to the operating system.
const BUFFER: usize = 1 << 20;

/// Writes a file: `write` makes its contents. When that fails the target stays as it was, and nothing is left beside it.
///
/// Where the target is a symbolic link, the file it leads to is replaced.
///
/// # Errors
/// The error of `write`, or [`StoreError::Io`] with the target's path.
pub fn write_file(target: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let failed = |source| StoreError::io(target, "write", source);
    let real = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
    let beside = Partial::new(&real).map_err(failed)?;
    let file = OpenOptions::new().write(true).create_new(true).open(&beside.path).map_err(failed)?;
    let mut writer = BufWriter::with_capacity(BUFFER, file);
    write(&mut writer)?;
    let file = writer.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    drop(file);
    fs::rename(&beside.path, &real).map_err(failed)?;
    sync_folder(&real);
    Ok(())
}

/// Writes a folder: `write` fills the one whose path it gets, which then takes the target's place. When that fails the
/// target stays as it was, and nothing is left beside it.
///
/// A folder that is already there is replaced by two renames, since no system replaces a full folder in one: should the
/// machine stop between the two, the old folder is beside the target, with a name that ends in `.old`.
///
/// # Errors
/// The error of `write`, or [`StoreError::Io`] with the target's path.
pub fn write_folder(target: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let failed = |source| StoreError::io(target, "write", source);
    let beside = Partial::new(target).map_err(failed)?;
    fs::create_dir(&beside.path).map_err(failed)?;
    write(&beside.path)?;
    sync_folder(&beside.path.join("x"));
    replace_folder(&beside.path, target).map_err(failed)?;
    sync_folder(target);
    Ok(())
}

fn replace_folder(new: &Path, target: &Path) -> io::Result<()> {
    if fs::symlink_metadata(target).is_err() {
        return fs::rename(new, target);
    }
    let old = new.with_extension("old");
    fs::rename(target, &old)?;
    if let Err(error) = fs::rename(new, target) {
        fs::rename(&old, target)?;
        return Err(error);
    }
    // The new folder is in place: what is left of the old one does no harm.
    let _ = fs::remove_dir_all(&old);
    Ok(())
}

/// A name beside a target that no other writer uses. What has the name at the end is removed.
struct Partial {
    path: PathBuf,
}

impl Partial {
    fn new(target: &Path) -> io::Result<Partial> {
        static WRITES: AtomicU32 = AtomicU32::new(0);
        let number = WRITES.fetch_add(1, Ordering::Relaxed);
        let Some(name) = target.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"));
        };
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}-{number}.partial", process::id()));
        Ok(Partial { path: target.with_file_name(hidden) })
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After success the name is gone, and neither call finds anything.
        if fs::remove_file(&self.path).is_err() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Brings a rename to the disk, where the system can. A failure costs at most the newest version after a power cut.
fn sync_folder(target: &Path) {
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_failing_writer_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        write_file(&path, |writer| writer.write_all(b"good").map_err(|e| StoreError::io(&path, "write", e)))
            .unwrap();
        let error = write_file(&path, |writer| {
            writer.write_all(&[0; 3 << 20]).unwrap();
            Err(StoreError::io(&path, "write", io::Error::other("No space left on device")))
        });
        let message = error.unwrap_err().to_string();
        assert!(message.ends_with("weights: cannot write: No space left on device"), "{message}");
        assert_eq!(fs::read(&path).unwrap(), b"good");
        assert_eq!(names(folder.path()), ["weights"]);
    }

    #[test]
    fn an_unwritable_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "no folder").unwrap();
        let error = write_file(&file.join("weights"), |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("weights: cannot write: "), "{error}");
        assert!(write_folder(&file.join("checkpoint"), |_| Ok(())).is_err());
        assert!(write_file(Path::new("/"), |_| Ok(())).is_err());
    }

    #[test]
    fn a_folder_is_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("checkpoint");
        let fill = |text: &'static str| {
            move |path: &Path| {
                fs::write(path.join(text), text).unwrap();
                Ok(())
            }
        };
        write_folder(&target, fill("one")).unwrap();
        write_folder(&target, fill("two")).unwrap();
        assert_eq!(names(&target), ["two"]);
        let failing = write_folder(&target, |path| {
            fs::write(path.join("three"), "").unwrap();
            Err(StoreError::json(path, "no"))
        });
        assert!(failing.is_err());
        assert_eq!(names(&target), ["two"]);
        assert_eq!(names(folder.path()), ["checkpoint"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let new =
            |writer: &mut dyn Write| writer.write_all(b"new").map_err(|e| StoreError::io(&link, "write", e));
        write_file(&link, new).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
    }
}
