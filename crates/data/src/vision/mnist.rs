//! MNIST: 70,000 handwritten digits by Y. LeCun, C. Cortes and C. J. C. Burges (CC BY-SA 3.0).

#[cfg(feature = "download")]
mod download;
mod locate;

use std::path::Path;
use std::{env, fmt};

use locate::Places;

use crate::idx::IdxReader;
use crate::{DataError, Dataset};

const SIDE: usize = 28;
const PIXELS: usize = SIDE * SIDE;
const CLASSES: u8 = 10;
/// Limit on the number of items: five times the training split, for variants in the same format.
const MAX_ITEMS: u64 = 300_000;
/// Bytes before the first label: magic number and one size.
const LABELS_HEADER: u64 = 8;

/// One image of a digit and its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MnistItem {
    /// Pixels, `[height, width]`, from 0 (background) to 255 (ink), as stored in the file.
    /// [`as_flattened`](slice::as_flattened) returns all 784 in one slice.
    pub image: [[u8; SIDE]; SIDE],
    /// The digit, 0 to 9.
    pub label: u8,
}

/// The two splits of MNIST.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MnistSplit {
    /// 60,000 images.
    Train,
    /// 10,000 images.
    Test,
}

impl MnistSplit {
    fn images_file(self) -> &'static str {
        match self {
            Self::Train => "train-images-idx3-ubyte",
            Self::Test => "t10k-images-idx3-ubyte",
        }
    }

    fn labels_file(self) -> &'static str {
        match self {
            Self::Train => "train-labels-idx1-ubyte",
            Self::Test => "t10k-labels-idx1-ubyte",
        }
    }
}

impl fmt::Display for MnistSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Train => "train",
            Self::Test => "test",
        })
    }
}

/// MNIST in memory, or a data set with the same file names and format such as Fashion-MNIST.
///
/// [`train`](Self::train) and [`test`](Self::test) search for the files, gzipped or plain, in this order:
///
/// 1. `$KILN_DATA_DIR/mnist`, then `$KILN_DATA_DIR`, if that variable is set;
/// 2. the platform's cache folder: `$XDG_CACHE_HOME/kiln/mnist` or `~/.cache/kiln/mnist`, on macOS
///    `~/Library/Caches/kiln/mnist`, on Windows `%LOCALAPPDATA%\kiln\mnist`;
/// 3. the checkout that this crate was built in;
/// 4. with the crate feature `download`, the web. The files are verified by SHA-256 digests and stored in
///    `$KILN_DATA_DIR/mnist` if the variable is set, and in the cache folder otherwise.
///
/// The first folder that contains either file of the split is used. If its files are damaged or incomplete, an error is
/// returned; no other folder is tried.
#[derive(Clone, PartialEq, Eq)]
pub struct MnistDataset {
    images: Vec<[[u8; SIDE]; SIDE]>,
    labels: Vec<u8>,
}

impl MnistDataset {
    /// Mean of all training pixels of MNIST, scaled to `[0, 1]`.
    pub const MEAN: f32 = 0.130_66;
    /// Standard deviation of all training pixels of MNIST, scaled to `[0, 1]`.
    pub const STD: f32 = 0.308_11;

    /// Loads the 60,000 training images.
    ///
    /// # Errors
    ///
    /// [`DataError::NotFound`] if there are no such files, [`DataError::Download`] if the download failed,
    /// [`DataError::InvalidArgument`] if `KILN_DATA_DIR` is not a folder, and the errors of
    /// [`from_directory`](Self::from_directory).
    pub fn train() -> Result<Self, DataError> {
        Self::find(MnistSplit::Train, &Places::from_environment(|name| env::var_os(name))?)
    }

    /// Loads the 10,000 test images.
    ///
    /// # Errors
    ///
    /// See [`train`](Self::train).
    pub fn test() -> Result<Self, DataError> {
        Self::find(MnistSplit::Test, &Places::from_environment(|name| env::var_os(name))?)
    }

    /// Reads one split from the folder that contains its two files, with the original names, with or without `.gz`.
    ///
    /// # Errors
    ///
    /// [`DataError::NotFound`] if a file is missing; [`DataError::Truncated`], [`DataError::TrailingData`] or
    /// [`DataError::Malformed`] if one is damaged; [`DataError::Io`] if one cannot be read. The error names the file
    /// and the byte.
    pub fn from_directory(directory: impl AsRef<Path>, split: MnistSplit) -> Result<Self, DataError> {
        let directory = directory.as_ref();
        let images_path = locate::file_in(directory, split.images_file())?;
        let labels_path = locate::file_in(directory, split.labels_file())?;
        let images = read_images(&images_path)?;
        let labels = read_labels(&labels_path)?;
        if images.len() != labels.len() {
            let message = format!(
                "{} labels declared, but {} holds {} images",
                labels.len(),
                images_path.display(),
                images.len()
            );
            return Err(DataError::malformed(&labels_path, 4, message));
        }
        Ok(Self { images, labels })
    }

    /// Returns all images, each `[height, width]`.
    pub fn images(&self) -> &[[[u8; SIDE]; SIDE]] {
        &self.images
    }

    /// Returns all labels, in the order of the images.
    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    fn find(split: MnistSplit, places: &Places) -> Result<Self, DataError> {
        match places.find(split) {
            Some(directory) => Self::from_directory(directory, split),
            None => Self::obtain(split, places),
        }
    }

    #[cfg(feature = "download")]
    fn obtain(split: MnistSplit, places: &Places) -> Result<Self, DataError> {
        let directory = places.download_directory().ok_or_else(|| {
            places.not_found(split, "set KILN_DATA_DIR to a folder that MNIST can be downloaded to")
        })?;
        download::Downloader::new().fetch(split, &directory)?;
        Self::from_directory(directory, split)
    }

    #[cfg(not(feature = "download"))]
    fn obtain(split: MnistSplit, places: &Places) -> Result<Self, DataError> {
        let hint = format!(
            "set KILN_DATA_DIR to a folder that contains {}.gz and {}.gz, or build with the feature `download` of \
             kiln-data to fetch them",
            split.images_file(),
            split.labels_file()
        );
        Err(places.not_found(split, hint))
    }
}

impl Dataset<MnistItem> for MnistDataset {
    fn get(&self, index: usize) -> Option<MnistItem> {
        Some(MnistItem { image: *self.images.get(index)?, label: *self.labels.get(index)? })
    }

    fn len(&self) -> usize {
        self.images.len()
    }
}

impl fmt::Debug for MnistDataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MnistDataset").field("len", &self.len()).finish_non_exhaustive()
    }
}

fn read_images(path: &Path) -> Result<Vec<[[u8; SIDE]; SIDE]>, DataError> {
    let reader = IdxReader::open(path)?;
    match *reader.dims() {
        [_, height, width] if [height, width] == [SIDE as u32; 2] => {}
        ref dims => {
            let message = format!("images have sizes {dims:?}, expected [count, {SIDE}, {SIDE}]");
            return Err(DataError::malformed(path, 3, message));
        }
    }
    let pixels = reader.read_elements(MAX_ITEMS * PIXELS as u64)?;
    let (rows, _) = pixels.as_chunks::<SIDE>();
    let (images, _) = rows.as_chunks::<SIDE>();
    Ok(images.to_vec())
}

fn read_labels(path: &Path) -> Result<Vec<u8>, DataError> {
    let reader = IdxReader::open(path)?;
    if reader.dims().len() != 1 {
        let message = format!("labels have sizes {:?}, expected [count]", reader.dims());
        return Err(DataError::malformed(path, 3, message));
    }
    let labels = reader.read_elements(MAX_ITEMS)?;
    match labels.iter().position(|label| *label >= CLASSES) {
        Some(index) => {
            let message = format!("label {} of image {index} is not a digit from 0 to 9", labels[index]);
            Err(DataError::malformed(path, LABELS_HEADER + index as u64, message))
        }
        None => Ok(labels),
    }
}
