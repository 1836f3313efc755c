//! The folders to search for the files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::MnistSplit;
use crate::DataError;

const DATA_DIR: &str = "KILN_DATA_DIR";

/// The folders to search for the files.
#[derive(Debug)]
pub(super) struct Places {
    /// The folder in `KILN_DATA_DIR`.
    data: Option<PathBuf>,
    /// `kiln/mnist` in the platform's cache folder.
    cache: Option<PathBuf>,
    /// The folder in the source tree of this crate that contains the files.
    checkout: PathBuf,
}

impl Places {
    /// Returns the folders according to environment variables, which `variable` looks up.
    ///
    /// # Errors
    ///
    /// If `KILN_DATA_DIR` is not a folder: it is probably a typo and must not lead to other data being read.
    pub(super) fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, DataError> {
        let data = variable(DATA_DIR).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(directory) = data.as_ref().filter(|directory| !directory.is_dir()) {
            return Err(DataError::argument(
                "mnist",
                format!("{DATA_DIR} is set to {}, which is not a folder", directory.display()),
                format!("create the folder, correct {DATA_DIR}, or unset it"),
            ));
        }
        let cache = cache_directory(variable).map(|cache| cache.join("kiln").join("mnist"));
        Ok(Self { data, cache, checkout: Path::new(env!("CARGO_MANIFEST_DIR")).join("mnist") })
    }

    /// Returns the first folder that contains a file of the split, complete or not.
    pub(super) fn find(&self, split: MnistSplit) -> Option<PathBuf> {
        let holds = |directory: &PathBuf| {
            [split.images_file(), split.labels_file()]
                .iter()
                .any(|name| candidates(directory, name).iter().any(|path| path.is_file()))
        };
        self.searched().into_iter().find(holds)
    }

    pub(super) fn not_found(&self, split: MnistSplit, hint: impl Into<String>) -> DataError {
        DataError::NotFound { name: format!("MNIST {split}"), searched: self.searched(), hint: hint.into() }
    }

    #[cfg(feature = "download")]
    pub(super) fn download_directory(&self) -> Option<PathBuf> {
        self.data.as_ref().map(|data| data.join("mnist")).or_else(|| self.cache.clone())
    }

    fn searched(&self) -> Vec<PathBuf> {
        let data = self.data.iter().flat_map(|data| [data.join("mnist"), data.clone()]);
        data.chain(self.cache.clone()).chain([self.checkout.clone()]).collect()
    }
}

/// Returns the path of the file `name` in `directory`, plain or gzipped.
pub(super) fn file_in(directory: &Path, name: &str) -> Result<PathBuf, DataError> {
    candidates(directory, name).into_iter().find(|path| path.is_file()).ok_or_else(|| DataError::NotFound {
        name: name.to_owned(),
        searched: vec![directory.to_owned()],
        hint: format!("put {name}.gz or {name} there"),
    })
}

fn candidates(directory: &Path, name: &str) -> [PathBuf; 2] {
    [directory.join(name), directory.join(format!("{name}.gz"))]
}

/// Returns the user's cache folder.
///
/// Sources: XDG Base Directory Specification (relative paths are ignored), Apple's File System Programming Guide,
/// Microsoft's list of known folders.
fn cache_directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if cfg!(windows) {
        absolute("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        absolute("HOME").map(|home| home.join("Library").join("Caches"))
    } else {
        absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::MnistDataset;
    use super::*;

    fn places(data: &Path, cache: &Path, checkout: &Path) -> Places {
        Places { data: Some(data.to_owned()), cache: Some(cache.to_owned()), checkout: checkout.to_owned() }
    }

    #[test]
    fn folders_are_searched_in_order() {
        let root = tempfile::tempdir().unwrap();
        let [data, cache, checkout] = ["data", "cache", "checkout"].map(|name| root.path().join(name));
        let places = places(&data, &cache, &checkout);
        let order = [data.join("mnist"), data, cache, checkout];
        assert_eq!(places.searched(), order);
        assert_eq!(places.find(MnistSplit::Test), None);
        for directory in order.iter().rev() {
            fs::create_dir_all(directory).unwrap();
            assert_ne!(places.find(MnistSplit::Test).as_ref(), Some(directory));
            fs::write(directory.join("t10k-labels-idx1-ubyte.gz"), "").unwrap();
            assert_eq!(places.find(MnistSplit::Test).as_ref(), Some(directory));
            assert_eq!(places.find(MnistSplit::Train), None);
        }
    }

    #[test]
    fn an_incomplete_folder_is_an_error_and_not_skipped() {
        let root = tempfile::tempdir().unwrap();
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("mnist");
        let places = places(root.path(), Path::new("no-cache"), &checkout);
        assert!(MnistDataset::find(MnistSplit::Test, &places).is_ok());

        for name in ["t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"] {
            fs::copy(checkout.join(name), root.path().join(name)).unwrap();
            let incomplete = MnistDataset::find(MnistSplit::Test, &places);
            assert_eq!(incomplete.is_err(), name.contains("images"), "{name}");
        }
        let labels = root.path().join("t10k-labels-idx1-ubyte.gz");
        fs::write(&labels, &fs::read(&labels).unwrap()[..1000]).unwrap();
        let text = MnistDataset::find(MnistSplit::Test, &places).unwrap_err().to_string();
        assert!(text.starts_with(&format!("{}: truncated at byte ", labels.display())), "{text}");
    }

    #[cfg(not(feature = "download"))]
    #[test]
    fn the_not_found_error_names_the_download_feature() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path(), root.path(), root.path());
        let text = MnistDataset::find(MnistSplit::Train, &places).unwrap_err().to_string();
        assert!(
            text.contains("hint: set KILN_DATA_DIR to a folder that contains train-images-idx3"),
            "{text}"
        );
        assert!(text.ends_with("build with the feature `download` of kiln-data to fetch them"), "{text}");
    }

    #[cfg(feature = "download")]
    #[test]
    fn the_download_folder_is_one_that_is_searched() {
        let places = places(Path::new("d"), Path::new("c"), Path::new("s"));
        assert_eq!(places.download_directory(), Some(Path::new("d").join("mnist")));
        let places = Places { data: None, ..places };
        assert_eq!(places.download_directory(), Some("c".into()));
        let places = Places { cache: None, ..places };
        let text = MnistDataset::find(MnistSplit::Train, &places).unwrap_err().to_string();
        assert!(
            text.ends_with("hint: set KILN_DATA_DIR to a folder that MNIST can be downloaded to"),
            "{text}"
        );
    }

    #[test]
    fn environment_is_read() {
        let root = tempfile::tempdir().unwrap();
        let set = |name: &str| (name == DATA_DIR).then(|| root.path().as_os_str().to_owned());
        let places = Places::from_environment(set).unwrap();
        assert_eq!(places.data.as_deref(), Some(root.path()));
        assert_eq!(places.cache, None);

        let empty = |name: &str| (name == DATA_DIR).then(OsString::new);
        assert_eq!(Places::from_environment(empty).unwrap().data, None);
    }

    #[test]
    fn data_dir_must_be_a_folder() {
        let root = tempfile::tempdir().unwrap();
        let missing = root.path().join("missing");
        let error = Places::from_environment(|_| Some(missing.clone().into_os_string())).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("[mnist] KILN_DATA_DIR is set to "), "{text}");
        assert!(text.contains("missing, which is not a folder\n  hint: create the folder"), "{text}");
    }

    #[cfg(all(unix, not(target_os = "macos")))]
    #[test]
    fn cache_follows_the_xdg_rules() {
        let lookup = |xdg: &'static str| {
            move |name: &str| match name {
                "XDG_CACHE_HOME" => Some(OsString::from(xdg)),
                "HOME" => Some(OsString::from("/home/user")),
                _ => None,
            }
        };
        assert_eq!(cache_directory(lookup("/cache")), Some("/cache".into()));
        assert_eq!(cache_directory(lookup("relative")), Some("/home/user/.cache".into()));
        assert_eq!(cache_directory(lookup("")), Some("/home/user/.cache".into()));
        assert_eq!(cache_directory(|_| None), None);
    }

    #[test]
    fn the_not_found_error_lists_searched_folders() {
        let places = places(Path::new("d"), Path::new("c"), Path::new("s"));
        let text = places.not_found(MnistSplit::Train, "do this").to_string();
        assert!(text.starts_with("MNIST train files not found; looked in:\n    d"), "{text}");
        assert!(text.ends_with("\n    d\n    c\n    s\n  hint: do this"), "{text}");
    }
}
