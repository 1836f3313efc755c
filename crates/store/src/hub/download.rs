//! Downloads of models into the cache.

mod client;
mod install;
mod lock;
mod pattern;
mod select;
mod transfer;

use std::env;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::cache::HubCache;
use super::folder::HubFolder;
use super::name::{self, RepositoryName};
use crate::error::{Result, StoreError};
use client::{Client, Metadata, Repository};
use lock::BlobLock;
use transfer::{Expected, Retry};

const ENDPOINT: &str = "https://huggingface.co";

/// Downloads models from the Hugging Face hub into the cache, in the layout of the Python package `huggingface_hub`.
///
/// A download that was interrupted is resumed: received bytes stay in `blobs/ETAG.incomplete`. Large files are verified
/// by their SHA-256, all others by their length. A file appears in the cache when it is complete. Several processes may
/// download the same model; one of them downloads each file, and the others wait for it.
///
/// ```no_run
/// use kiln_store::hub::Downloader;
///
/// let downloader = Downloader::new()?.on_progress(|progress| eprintln!("{progress}"));
/// let model = downloader.download_model("sentence-transformers/all-MiniLM-L6-v2", "main")?;
/// println!("{}", model.weights()?.display());
///
/// // One file.
/// downloader.download("QuantFactory/SmolLM2-135M-GGUF", "main", &["*.Q4_K_M.gguf"])?;
/// # Ok::<(), kiln_store::StoreError>(())
/// ```
#[derive(Clone)]
pub struct Downloader {
    endpoint: String,
    token: Option<String>,
    cache: HubCache,
    timeout: Duration,
    retry: Retry,
    is_offline: bool,
    progress: Option<ProgressCallback>,
}

/// A function that is called while a file is received.
type ProgressCallback = Arc<dyn Fn(&DownloadProgress<'_>) + Send + Sync>;

/// The progress of a download. `Display` prints one line: `model.safetensors: 12.0 of 90.9 MB (2 of 7)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DownloadProgress<'a> {
    /// The name of the file in the repository.
    pub file: &'a str,
    /// Number of bytes that are on disk, those of an earlier download included.
    pub received: u64,
    /// Length of the file in bytes, if the server declares it.
    pub size: Option<u64>,
    /// Position of the file among the files of the download, from 0.
    pub index: usize,
    /// Number of files of the download.
    pub files: usize,
}

impl Downloader {
    /// Creates a downloader with the settings of the environment: the cache of
    /// [`HubCache::from_environment`], the endpoint `$HF_ENDPOINT` or `https://huggingface.co`, and the token `$HF_TOKEN`.
    /// With `$HF_HUB_OFFLINE` set to `1`, every download is an error.
    ///
    /// # Errors
    /// [`StoreError::InvalidArgument`] when there is no cache folder, or the endpoint is no URL.
    pub fn new() -> Result<Downloader> {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.trim().is_empty());
        let is_true =
            |value: String| matches!(value.to_ascii_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE");
        let downloader = Downloader {
            endpoint: String::new(),
            token: variable("HF_TOKEN").map(|token| token.trim().to_owned()),
            cache: HubCache::from_environment()?,
            timeout: Duration::from_secs(30),
            retry: Retry { attempts: 5, wait: Duration::from_millis(500) },
            is_offline: variable("HF_HUB_OFFLINE").is_some_and(is_true),
            progress: None,
        };
        downloader.endpoint(variable("HF_ENDPOINT").as_deref().unwrap_or(ENDPOINT))
    }

    /// Sets the address of the hub: `https://HOST` or `http://HOST:PORT`, with or without a path.
    ///
    /// # Errors
    /// [`StoreError::InvalidArgument`] when it is no such URL.
    pub fn endpoint(mut self, endpoint: &str) -> Result<Downloader> {
        let endpoint = endpoint.trim().trim_end_matches('/');
        if client::origin(endpoint).is_none() {
            return Err(StoreError::InvalidArgument {
                argument: format!("endpoint `{}`", endpoint.escape_debug()),
                problem: "not an HTTP URL\n  hint: it is like `https://huggingface.co`".to_owned(),
            });
        }
        self.endpoint = endpoint.to_owned();
        Ok(self)
    }

    /// Sets the access token. It is sent to the endpoint only, not to servers that the endpoint redirects to.
    pub fn token(mut self, token: Option<&str>) -> Downloader {
        self.token = token.map(str::to_owned);
        self
    }

    /// Sets the cache.
    pub fn cache(mut self, cache: HubCache) -> Downloader {
        self.cache = cache;
        self
    }

    /// Sets how long to wait for a connection, for a response and for the next bytes of a body. The default is 30
    /// seconds. The time of a whole download is not limited.
    pub fn timeout(mut self, timeout: Duration) -> Downloader {
        self.timeout = timeout;
        self
    }

    /// Sets how often a request is tried when the connection is lost, and the time before the second attempt. It doubles
    /// with each attempt. The default is 5 attempts and 0.5 seconds. Attempts that receive at least 1 MiB do not count.
    pub fn retry(mut self, attempts: u32, wait: Duration) -> Downloader {
        self.retry = Retry { attempts: attempts.max(1), wait };
        self
    }

    /// Calls a function while files are received, at most ten times a second and at the end of each file.
    pub fn on_progress(
        mut self,
        progress: impl Fn(&DownloadProgress<'_>) + Send + Sync + 'static,
    ) -> Downloader {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// Downloads the files of a model that Kiln reads: configurations, tokenizer and weights. Of weights in several
    /// formats, the first of safetensors, PyTorch and GGUF is downloaded.
    ///
    /// # Errors
    /// See [`download`](Downloader::download). [`StoreError::Download`] when the repository contains several GGUF files
    /// and no other weights.
    pub fn download_model(&self, name: &str, revision: &str) -> Result<HubFolder> {
        let (name, client) = self.start(name, revision)?;
        let repository = self.list(&client, &name, revision)?;
        let files = select::model_files(&repository.files)
            .map_err(|problem| StoreError::download(&format!("{}/{name}", self.endpoint), problem))?;
        self.fetch_all(&client, &name, revision, Some(repository.commit), &files)
    }

    /// Downloads files of a model. `name` is like `org/name`; `revision` is a branch, a tag or a commit.
    ///
    /// Each of `files` is a file name, or a pattern with `*` and `?`, where `*` matches `/` too. All files are of the
    /// same commit, even if the branch moves meanwhile. Files in the cache are not downloaded again.
    ///
    /// # Errors
    /// [`StoreError::Download`] with the URL and the reason, also when another process downloads the same file and makes
    /// no progress; [`StoreError::Io`] when a file cannot be written;
    /// [`StoreError::InvalidArgument`] when the name, the revision or a file name is invalid. Received bytes are kept for
    /// the next attempt.
    pub fn download(&self, name: &str, revision: &str, files: &[&str]) -> Result<HubFolder> {
        for file in files {
            name::check_file(file)?;
        }
        let (name, client) = self.start(name, revision)?;
        if !files.iter().any(|file| pattern::is_pattern(file)) {
            let files: Vec<String> = files.iter().map(|&file| file.to_owned()).collect();
            return self.fetch_all(&client, &name, revision, None, &files);
        }
        let repository = self.list(&client, &name, revision)?;
        let files = select::matching(files, &repository.files)
            .map_err(|problem| StoreError::download(&format!("{}/{name}", self.endpoint), problem))?;
        self.fetch_all(&client, &name, revision, Some(repository.commit), &files)
    }

    fn start(&self, name: &str, revision: &str) -> Result<(RepositoryName, Client)> {
        let name = RepositoryName::parse(name)?;
        name::check_revision(revision)?;
        if self.is_offline {
            let problem =
                "HF_HUB_OFFLINE forbids downloads\n  hint: unset it, or open the model from the cache";
            return Err(StoreError::download(&format!("{}/{name}", self.endpoint), problem));
        }
        Ok((name, Client::new(&self.endpoint, self.token.as_deref(), self.timeout)))
    }

    fn list(&self, client: &Client, name: &RepositoryName, revision: &str) -> Result<Repository> {
        let url = client.list_url(name, revision);
        self.retry.run(&url, || client.list(&url))
    }

    /// Downloads files of one commit and lets the revision refer to it.
    fn fetch_all(
        &self,
        client: &Client,
        name: &RepositoryName,
        revision: &str,
        commit: Option<String>,
        files: &[String],
    ) -> Result<HubFolder> {
        let entry = self.cache.entry(name);
        let mut commit = commit.or_else(|| name::is_commit(revision).then(|| revision.to_ascii_lowercase()));
        for (index, file) in files.iter().enumerate() {
            if commit.as_ref().is_some_and(|commit| install::is_installed(&entry, commit, file)) {
                continue;
            }
            let url = client.file_url(name, commit.as_deref().unwrap_or(revision), file);
            let metadata = self.retry.run(&url, || client.metadata(&url))?;
            match &commit {
                Some(commit) if *commit != metadata.commit => {
                    let problem = format!("is of commit {}, expected {commit}", metadata.commit);
                    return Err(StoreError::download(&url, problem));
                }
                Some(_) | None => commit = Some(metadata.commit.clone()),
            }
            let report = |received: u64| {
                if let Some(progress) = &self.progress {
                    progress(&DownloadProgress {
                        file,
                        received,
                        size: metadata.size,
                        index,
                        files: files.len(),
                    });
                }
            };
            self.fetch_blob(client, name, file, &metadata, &report)?;
            install::link(&entry, &metadata.commit, file, &metadata.etag)?;
        }
        let commit = commit.ok_or_else(|| StoreError::InvalidArgument {
            argument: "files".to_owned(),
            problem: "empty".to_owned(),
        })?;
        if revision != commit {
            install::write_ref(&entry, revision, &commit)?;
        }
        Ok(HubFolder::snapshot(install::snapshot(&entry, &commit), entry))
    }

    /// Downloads the contents of a file unless the cache contains them.
    fn fetch_blob(
        &self,
        client: &Client,
        name: &RepositoryName,
        file: &str,
        metadata: &Metadata,
        report: &dyn Fn(u64),
    ) -> Result<()> {
        let blobs = self.cache.entry(name).join("blobs");
        create_folder(&blobs)?;
        let blob = blobs.join(&metadata.etag);
        let partial = blobs.join(format!("{}.incomplete", metadata.etag));
        if is_complete(&blob, metadata) {
            return Ok(());
        }
        let locks = self.cache.root().join(".locks").join(name.folder());
        create_folder(&locks)?;
        let url = client.file_url(name, &metadata.commit, file);
        let patience = self.timeout.saturating_mul(4);
        let lock = locks.join(format!("{}.lock", metadata.etag));
        let _lock = BlobLock::acquire(&lock, &partial, patience, &url)?;
        // Another process may have downloaded it meanwhile.
        if is_complete(&blob, metadata) {
            return Ok(());
        }
        let expected =
            Expected { size: metadata.size, sha256: metadata.sha256.as_deref(), timeout: self.timeout };
        let get = |from: u64| client.get(&url, from);
        transfer::fetch(&url, &partial, &expected, self.retry, &get, report)?;
        fs::rename(&partial, &blob).map_err(|source| StoreError::io(&blob, "write", source))
    }
}

/// Whether a blob exists with the expected length. Blobs are verified before they get their name.
fn is_complete(blob: &Path, metadata: &Metadata) -> bool {
    let file = fs::symlink_metadata(blob).ok().filter(fs::Metadata::is_file);
    file.is_some_and(|file| metadata.size.is_none_or(|size| size == file.len()))
}

fn create_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|source: io::Error| StoreError::io(path, "create", source))
}

impl fmt::Debug for Downloader {
    /// Does not print the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Downloader")
            .field("endpoint", &self.endpoint)
            .field("cache", &self.cache)
            .field("timeout", &self.timeout)
            .field("retry", &self.retry)
            .field("is_offline", &self.is_offline)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for DownloadProgress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        write!(f, "{}: {:.1}", self.file, megabytes(self.received))?;
        if let Some(size) = self.size {
            write!(f, " of {:.1}", megabytes(size))?;
        }
        write!(f, " MB ({} of {})", self.index + 1, self.files)
    }
}
