//! Downloading the files.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use super::MnistSplit;
use crate::DataError;

const MIRRORS: [&str; 2] =
    ["https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist"];
/// Download limit, larger than each of the files. Bytes beyond it are not stored.
const MAX_COMPRESSED: u64 = 32 << 20;

/// The expected length and digest of a file, after decompression: mirrors compress the same contents differently.
#[derive(Clone, Copy, Debug)]
struct Expected {
    name: &'static str,
    len: u64,
    sha256: &'static str,
}

const TRAIN_IMAGES: Expected = Expected {
    name: "train-images-idx3-ubyte.gz",
    len: 47_040_016,
    sha256: "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
};
const TRAIN_LABELS: Expected = Expected {
    name: "train-labels-idx1-ubyte.gz",
    len: 60_008,
    sha256: "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
};
const TEST_IMAGES: Expected = Expected {
    name: "t10k-images-idx3-ubyte.gz",
    len: 7_840_016,
    sha256: "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
};
const TEST_LABELS: Expected = Expected {
    name: "t10k-labels-idx1-ubyte.gz",
    len: 10_008,
    sha256: "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
};

/// Downloads files from a list of mirrors with the same contents.
pub(super) struct Downloader {
    agent: ureq::Agent,
    mirrors: Vec<String>,
}

impl Downloader {
    pub(super) fn new() -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_connect(Some(Duration::from_secs(20)))
            .timeout_recv_response(Some(Duration::from_secs(30)))
            .timeout_global(Some(Duration::from_secs(600)))
            .build();
        Self { agent: config.into(), mirrors: MIRRORS.map(str::to_owned).to_vec() }
    }

    /// Stores the two files of a split in `directory`, which is created if it does not exist. Either both verified
    /// files appear there or none: one alone would count as damaged data at the next start.
    pub(super) fn fetch(&self, split: MnistSplit, directory: &Path) -> Result<(), DataError> {
        fs::create_dir_all(directory).map_err(|error| DataError::io(directory, error))?;
        let [labels, images] = match split {
            MnistSplit::Train => [TRAIN_LABELS, TRAIN_IMAGES],
            MnistSplit::Test => [TEST_LABELS, TEST_IMAGES],
        };
        let arrived = [self.fetch_file(labels, directory)?, self.fetch_file(images, directory)?];
        for (file, temporary) in [labels, images].iter().zip(arrived) {
            let path = directory.join(file.name);
            temporary.persist(&path).map_err(|error| DataError::io(&path, error.error))?;
        }
        Ok(())
    }

    /// Downloads and verifies a file under a temporary name.
    fn fetch_file(&self, file: Expected, directory: &Path) -> Result<NamedTempFile, DataError> {
        let mut attempts = Vec::new();
        for mirror in &self.mirrors {
            let url = format!("{mirror}/{}", file.name);
            let temporary = temporary_in(directory).map_err(|error| DataError::io(directory, error))?;
            let checked = self.receive(&url, file.name, temporary.as_file()).and_then(|()| {
                verify(&file, temporary.path())?;
                Ok(temporary.as_file().sync_all()?)
            });
            match checked {
                Ok(()) => return Ok(temporary),
                Err(reason) => attempts.push(format!("{url}: {reason}")),
            }
        }
        Err(DataError::Download { file: file.name.to_owned(), directory: directory.to_owned(), attempts })
    }

    fn receive(&self, url: &str, name: &str, mut to: impl Write) -> Result<(), Failure> {
        let body = self.agent.get(url).call()?.into_body();
        let bar = progress_bar(name, body.content_length());
        let mut from = bar.wrap_read(body.into_reader().take(MAX_COMPRESSED));
        io::copy(&mut from, &mut to)?;
        to.flush()?;
        bar.finish();
        Ok(())
    }
}

/// Creates a temporary file with the permissions of the process's umask. Temporary files are private by default, but a
/// data folder may be shared.
fn temporary_in(directory: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    #[cfg(unix)]
    builder.permissions(readable);
    builder.prefix(".download-").tempfile_in(directory)
}

/// The reason why a mirror failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Http(#[from] ureq::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("SHA-256 of the contents is {found}, expected {expected}")]
    Digest { found: String, expected: &'static str },
}

fn verify(file: &Expected, path: &Path) -> Result<(), Failure> {
    // One byte beyond the expected length is enough to change the digest.
    let mut contents = MultiGzDecoder::new(BufReader::new(File::open(path)?)).take(file.len + 1);
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match contents.read(&mut buffer)? {
            0 => break,
            count => hasher.update(&buffer[..count]),
        }
    }
    let found: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if found == file.sha256 { Ok(()) } else { Err(Failure::Digest { found, expected: file.sha256 }) }
}

/// A progress bar on standard error; hidden if that is not a terminal.
fn progress_bar(name: &str, len: Option<u64>) -> ProgressBar {
    let (bar, template) = match len {
        Some(len) => (ProgressBar::new(len), "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}"),
        None => (ProgressBar::no_length(), "{msg} {spinner} {bytes} {bytes_per_sec}"),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_message(name.to_owned())
}

#[cfg(test)]
mod tests;
