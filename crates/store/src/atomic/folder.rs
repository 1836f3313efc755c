//! Folders that are written and read atomically.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::beside::{self, OLD, PARTIAL};
use super::lock::PathLock;
use super::sync_folder;
use crate::error::{Result, StoreError};

/// The files of a kind of folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FolderKind {
    /// Name of the kind of folder, for messages.
    pub(crate) name: &'static str,
    /// The file that every such folder contains.
    pub(crate) index: &'static str,
    /// The files with fixed names that such a folder may contain.
    pub(crate) files: &'static [&'static str],
    /// Whether the index may list a file of this name.
    pub(crate) is_part: fn(&str) -> bool,
    /// The files that the text of an index lists; none if it is damaged.
    pub(crate) listed: fn(&str) -> Vec<String>,
}

/// Limit on the length of an index in bytes.
const MAX_INDEX_BYTES: u64 = 64 << 20;

/// Files that operating systems create in folders that are viewed.
const SYSTEM_FILES: [&str; 3] = [".DS_Store", "Thumbs.db", "desktop.ini"];

impl FolderKind {
    /// Whether a temporary or replaced folder may hold a file of this name.
    fn may_hold(&self, name: &OsStr) -> bool {
        self.has_fixed(name) || name.to_str().is_some_and(self.is_part)
    }

    /// Whether any folder of this kind may hold a file of this name, listed or not.
    fn has_fixed(&self, name: &OsStr) -> bool {
        let is_own = self.files.iter().any(|&file| {
            // Earlier versions wrote temporary files in the folder itself.
            name == file || beside::is_beside(name, OsStr::new(file), PARTIAL)
        });
        is_own || SYSTEM_FILES.iter().any(|&file| name == file)
    }

    /// Reads the text of an index.
    pub(super) fn read_index(file: File) -> io::Result<String> {
        let mut text = String::new();
        file.take(MAX_INDEX_BYTES).read_to_string(&mut text)?;
        Ok(text)
    }

    /// The files that the index in a folder lists; none if there is no index, or it is damaged.
    fn listed_in(&self, folder: &Path) -> Vec<String> {
        let path = folder.join(self.index);
        // A FIFO would block the open.
        let is_file = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file());
        let text = is_file.then(|| File::open(&path).and_then(FolderKind::read_index).ok()).flatten();
        text.map(|text| (self.listed)(&text)).unwrap_or_default()
    }

    /// Removes a folder of this kind. If it contains other files, they are kept, and so is the folder.
    fn discard(&self, folder: &Path) {
        // The index is removed first: a folder without its index does not count as one.
        let _ = fs::remove_file(folder.join(self.index));
        let Ok(entries) = fs::read_dir(folder) else { return };
        for entry in entries.flatten().filter(|entry| self.may_hold(&entry.file_name())) {
            let _ = fs::remove_file(entry.path());
        }
        let _ = fs::remove_dir(folder);
    }

    /// The newest complete folder among the replaced ones, for a missing target.
    pub(super) fn last_replaced(&self, real: &Path) -> Option<PathBuf> {
        let whole = beside::all(real, OLD, usize::MAX).into_iter().filter_map(|folder| {
            let written = fs::metadata(folder.join(self.index)).ok()?.modified().ok();
            Some((written.unwrap_or(SystemTime::UNIX_EPOCH), folder))
        });
        whole.max().map(|(_, folder)| folder)
    }
}

/// The exclusive writer of a folder, until it is dropped.
#[derive(Debug)]
pub(crate) struct FolderWriter {
    shown: PathBuf,
    real: PathBuf,
    kind: FolderKind,
    lock: PathLock,
}

impl FolderWriter {
    /// Locks a folder and checks that it can be written. Creates its parent folders.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another writer still holds it after `patience`. [`StoreError::NotReplaced`] when
    /// something else exists at its path. [`StoreError::Io`] when it cannot be written.
    pub(crate) fn open(target: &Path, kind: FolderKind, patience: Duration) -> Result<FolderWriter> {
        let failed = |source| StoreError::io(target, "write", source);
        let real = beside::resolve(target).map_err(failed)?;
        let parent = beside::parent(&real);
        fs::create_dir_all(parent).map_err(|source| StoreError::io(parent, "create the folder", source))?;
        let lock = PathLock::acquire(&real, target, patience)?;
        let writer = FolderWriter { shown: target.to_owned(), real, kind, lock };
        writer.check_place()?;
        writer.remove_leftovers().map_err(failed)?;
        // A folder may permit the creation of files but not of folders.
        drop(writer.partial().map_err(failed)?);
        Ok(writer)
    }

    /// The path of the folder as it was passed.
    pub(crate) fn folder(&self) -> &Path {
        &self.shown
    }

    /// Writes the folder: `write` fills a temporary folder, which then replaces the previous one atomically. On an
    /// error the previous folder does not change.
    ///
    /// # Errors
    /// The error of `write`, [`StoreError::NotReplaced`] when something else now exists at its path, or
    /// [`StoreError::Io`].
    pub(crate) fn write(&mut self, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let failed = |source| StoreError::io(&self.shown, "write", source);
        fs::create_dir_all(beside::parent(&self.real)).map_err(failed)?;
        self.remove_leftovers().map_err(failed)?;
        let partial = self.partial().map_err(failed)?;
        write(&partial.path)?;
        sync_folder(&partial.path);
        self.check_place()?;
        self.put_in_place(&partial.path).map_err(failed)?;
        sync_folder(beside::parent(&self.real));
        // After an exchange this is the name of the previous folder, which is removed on drop.
        drop(partial);
        Ok(())
    }

    /// Removes the folder if it is of this kind: renames it first, so that no reader sees a part of it.
    ///
    /// # Errors
    /// [`StoreError::NotReplaced`] when it contains other files, or [`StoreError::Io`].
    pub(crate) fn remove(self) -> Result<()> {
        let failed = |source| StoreError::io(&self.shown, "remove", source);
        self.check_place()?;
        let partial = self.partial().map_err(failed)?;
        // The new name is that of an empty folder. Windows does not replace it.
        fs::remove_dir(&partial.path).map_err(failed)?;
        fs::rename(&self.real, &partial.path).map_err(failed)?;
        drop(partial);
        sync_folder(beside::parent(&self.real));
        Ok(())
    }

    fn partial(&self) -> io::Result<PartialFolder> {
        let (path, ()) = beside::create(&self.real, PARTIAL, |path| fs::create_dir(path))?;
        Ok(PartialFolder { path, kind: self.kind })
    }

    /// Checks that the path is free, an empty folder, or a folder of the same kind.
    fn check_place(&self) -> Result<()> {
        let refused = |found| Err(StoreError::NotReplaced { path: self.shown.clone(), found });
        let Ok(metadata) = fs::symlink_metadata(&self.real) else { return Ok(()) };
        if !metadata.is_dir() {
            return refused(super::describe(metadata.file_type()).to_owned());
        }
        let entries = fs::read_dir(&self.real).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.map_err(|source| StoreError::io(&self.shown, "read", source))?;
        let (kind, listed) = (self.kind.name, self.kind.listed_in(&self.real));
        for entry in &entries {
            let name = entry.file_name();
            let is_own = self.kind.has_fixed(&name) || listed.iter().any(|file| name == file.as_str());
            if !is_own || entry.file_type().is_ok_and(|file| file.is_dir()) {
                return refused(format!("a folder with `{}` (not part of a {kind})", name.display()));
            }
        }
        if !entries.is_empty() && !entries.iter().any(|entry| entry.file_name() == self.kind.index) {
            return refused(format!("a folder without `{}` (every {kind} contains it)", self.kind.index));
        }
        Ok(())
    }

    /// Removes the leftovers of interrupted writers, and restores a folder that was moved away and never replaced.
    fn remove_leftovers(&self) -> io::Result<()> {
        if !self.lock.is_exclusive() {
            return Ok(());
        }
        if fs::symlink_metadata(&self.real).is_err()
            && let Some(folder) = self.kind.last_replaced(&self.real)
        {
            fs::rename(folder, &self.real)?;
        }
        for ending in [OLD, PARTIAL] {
            beside::all(&self.real, ending, usize::MAX).iter().for_each(|folder| self.kind.discard(folder));
        }
        Ok(())
    }

    fn put_in_place(&self, new: &Path) -> io::Result<()> {
        if fs::symlink_metadata(&self.real).is_err() {
            return fs::rename(new, &self.real);
        }
        // Some systems, file systems and sandboxes do not support the exchange. Any other error is returned by the
        // renames.
        exchange(new, &self.real).or_else(|_| self.rename_twice(new))
    }

    /// Between the two renames the only complete folder is the previous one, under a name that [`super::snapshot`]
    /// searches for.
    fn rename_twice(&self, new: &Path) -> io::Result<()> {
        let rename = |old: &Path| match old.exists() {
            true => Err(io::Error::from(io::ErrorKind::AlreadyExists)),
            false => fs::rename(&self.real, old),
        };
        let (old, ()) = beside::create(&self.real, OLD, rename)?;
        if let Err(error) = fs::rename(new, &self.real) {
            fs::rename(&old, &self.real)?;
            return Err(error);
        }
        self.kind.discard(&old);
        Ok(())
    }
}

/// A temporary folder, deleted on drop.
struct PartialFolder {
    path: PathBuf,
    kind: FolderKind,
}

impl Drop for PartialFolder {
    fn drop(&mut self) {
        self.kind.discard(&self.path);
    }
}

/// Exchanges two folders atomically.
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn exchange(_one: &Path, _other: &Path) -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The index lists one file.
    const KIND: FolderKind = FolderKind {
        name: "pair",
        index: "one",
        files: &["one", "two"],
        is_part: |name| name.starts_with("part-"),
        listed: |text| vec![text.to_owned()],
    };

    fn fill(text: &'static str) -> impl Fn(&Path) -> Result<()> {
        move |folder| {
            fs::write(folder.join("one"), text).unwrap();
            Ok(())
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_is_replaced_atomically() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("pair");
        let open = || FolderWriter::open(&target, KIND, Duration::ZERO).unwrap();
        open().write(fill("1")).unwrap();
        open().write(fill("2")).unwrap();
        let failing = open().write(|path| {
            fs::write(path.join("two"), "").unwrap();
            Err(StoreError::json(path, "no"))
        });
        assert!(failing.is_err());
        assert_eq!(names(&target), ["one"]);
        assert_eq!(fs::read_to_string(target.join("one")).unwrap(), "2");
        #[cfg(unix)]
        assert_eq!(names(folder.path()), ["pair"]);
    }

    #[test]
    fn only_listed_parts_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("pair");
        let mut writer = FolderWriter::open(&target, KIND, Duration::ZERO).unwrap();
        let with_part = |folder: &Path| {
            fs::write(folder.join("part-a"), "").unwrap();
            fill("part-a")(folder)
        };
        writer.write(with_part).unwrap();
        writer.write(with_part).unwrap();
        fs::write(target.join("part-b"), "of the user").unwrap();
        let error = writer.write(with_part).unwrap_err().to_string();
        assert!(error.contains("a folder with `part-b` (not part of a pair)"), "{error}");
        assert!(matches!(writer.remove(), Err(StoreError::NotReplaced { .. })));
        assert_eq!(names(&target), ["one", "part-a", "part-b"]);
        fs::remove_file(target.join("part-b")).unwrap();
        FolderWriter::open(&target, KIND, Duration::ZERO).unwrap().remove().unwrap();
        #[cfg(unix)]
        assert!(names(folder.path()).is_empty());
        assert!(!target.exists());
    }

    /// On systems without an atomic exchange of folders.
    #[test]
    fn two_renames_replace_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("pair");
        let mut writer = FolderWriter::open(&target, KIND, Duration::ZERO).unwrap();
        writer.write(fill("1")).unwrap();
        let partial = writer.partial().unwrap();
        fill("2")(&partial.path).unwrap();
        writer.rename_twice(&partial.path).unwrap();
        assert_eq!(fs::read_to_string(target.join("one")).unwrap(), "2");
        // The new folder is gone: the previous one is restored.
        assert!(writer.rename_twice(&partial.path).is_err());
        assert_eq!(fs::read_to_string(target.join("one")).unwrap(), "2");
        drop((partial, writer));
        #[cfg(unix)]
        assert_eq!(names(folder.path()), ["pair"]);
    }

    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    #[test]
    fn an_exchange_is_atomic() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        for path in [&one, &other] {
            fs::create_dir(path).unwrap();
            fs::write(path.join(path.file_name().unwrap()), "").unwrap();
        }
        match exchange(&one, &other) {
            Ok(()) => assert_eq!((names(&one), names(&other)), (vec!["other".into()], vec!["one".into()])),
            Err(error) => eprintln!("the temporary folder's file system does not exchange: {error}"),
        }
    }
}
