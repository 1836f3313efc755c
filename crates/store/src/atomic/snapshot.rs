//! Consistent reading of a folder that other processes may replace.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::beside;
use super::folder::FolderKind;

/// Maximum number of retries when a folder is replaced before all its files are open.
const MAX_REPLACED: usize = 1000;

/// Maximum number of retries when a folder is missing: a writer may be between its two renames.
const MAX_ABSENT: usize = 20;

/// The open files of one folder. All are from the same save, even if the folder is replaced or deleted.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The folder. If a writer was killed between moving the requested folder and replacing it, this is the moved
    /// folder.
    pub(crate) folder: PathBuf,
    /// The text of the index.
    pub(crate) index: String,
    /// The other files by name: those of [`FolderKind::files`], and those that the index lists.
    pub(crate) files: BTreeMap<String, File>,
}

impl Snapshot {
    /// Opens all files of a folder.
    ///
    /// # Errors
    /// When the folder or its index does not exist, or a file in it cannot be read.
    pub(crate) fn open(target: &Path, kind: FolderKind) -> io::Result<Snapshot> {
        let mut absent = 0;
        for _ in 0..MAX_REPLACED {
            let folder = match Folder::find(target, kind) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && absent < MAX_ABSENT => {
                    absent += 1;
                    continue;
                }
                folder => folder?,
            };
            let index = folder.file(kind.index)?.map(FolderKind::read_index).transpose()?;
            let (files, is_whole) = match &index {
                Some(index) => folder.files(kind, index)?,
                None => (BTreeMap::new(), false),
            };
            // Files disappear only after their folder was replaced: a file that is missing now never existed.
            if is_whole || Folder::find(target, kind).is_ok_and(|again| again.is_same(&folder)) {
                let index = index.ok_or(io::ErrorKind::NotFound)?;
                return Ok(Snapshot { folder: folder.path, index, files });
            }
        }
        Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "the folder is replaced faster than it can be opened",
        ))
    }
}

/// An open folder: its files remain those of this folder even if its name refers to another one.
struct Folder {
    path: PathBuf,
    #[cfg(unix)]
    handle: File,
}

impl Folder {
    fn find(target: &Path, kind: FolderKind) -> io::Result<Folder> {
        match Folder::open(target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match kind.last_replaced(&beside::resolve(target)?) {
                    Some(old) => Folder::open(&old),
                    None => Err(error),
                }
            }
            folder => folder,
        }
    }

    /// Opens all files except the index. Returns whether none of them is missing.
    fn files(&self, kind: FolderKind, index: &str) -> io::Result<(BTreeMap<String, File>, bool)> {
        let fixed = kind.files.iter().map(|&name| name.to_owned()).filter(|name| name != kind.index);
        // Only names of parts are opened: an index that lists `../x` opens nothing outside the folder.
        let listed = (kind.listed)(index).into_iter().filter(|name| (kind.is_part)(name));
        let (mut files, mut is_whole) = (BTreeMap::new(), true);
        for name in fixed.chain(listed) {
            if files.contains_key(&name) {
                continue;
            }
            match self.file(&name)? {
                Some(file) => drop(files.insert(name, file)),
                None => is_whole = false,
            }
        }
        Ok((files, is_whole))
    }
}

#[cfg(unix)]
impl Folder {
    fn open(path: &Path) -> io::Result<Folder> {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        Ok(Folder { path: path.to_owned(), handle })
    }

    /// Opens a file. Returns `None` if it does not exist.
    fn file(&self, name: &str) -> io::Result<Option<File>> {
        use rustix::fs::{Mode, OFlags};
        // Non-blocking: does not wait for the other end of a FIFO.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.handle, name, flags, Mode::empty()) {
            Ok(file) => only_file(File::from(file)).map(Some),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn is_same(&self, other: &Folder) -> bool {
        use std::os::unix::fs::MetadataExt;
        // Both are open, so neither inode number is reused.
        match (self.handle.metadata(), other.handle.metadata()) {
            (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
            (Ok(_) | Err(_), _) => false,
        }
    }
}

/// On Windows a folder with an open file cannot be renamed, so it cannot be replaced once its index is open.
#[cfg(not(unix))]
impl Folder {
    fn open(path: &Path) -> io::Result<Folder> {
        match std::fs::metadata(path)?.is_dir() {
            true => Ok(Folder { path: path.to_owned() }),
            false => Err(io::Error::from(io::ErrorKind::NotADirectory)),
        }
    }

    /// Opens a file. Returns `None` if it does not exist.
    fn file(&self, name: &str) -> io::Result<Option<File>> {
        match File::open(self.path.join(name)) {
            Ok(file) => only_file(file).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_same(&self, other: &Folder) -> bool {
        self.path == other.path
    }
}

fn only_file(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}
