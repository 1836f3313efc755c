//! Transfer of one file into its partial file, with resume and verification.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::client::{Contents, Failure};
use crate::error::{Result, StoreError};

/// The size of the buffer in bytes.
const BUFFER: usize = 256 << 10;
/// An attempt that receives this number of bytes is progress: the attempts are counted anew.
const PROGRESS: u64 = 1 << 20;
/// Longest wait between attempts.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Minimum number of bytes that are received within the timeout.
const SLOWEST: u64 = 1 << 10;
/// Shortest time between two reports of progress.
const REPORTS: Duration = Duration::from_millis(100);
/// Maximum length of a file whose length the server does not declare.
const MAX_UNDECLARED: u64 = 1 << 30;

/// How often an attempt is repeated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    pub(super) attempts: u32,
    /// The time before the second attempt.
    pub(super) wait: Duration,
}

/// The length and digest that a file must have, and the longest time without 1 KiB of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected<'a> {
    pub(super) size: Option<u64>,
    pub(super) sha256: Option<&'a str>,
    pub(super) timeout: Duration,
}

impl Retry {
    /// Calls a function until it succeeds, fails permanently, or has failed too often.
    pub(super) fn run<T>(self, url: &str, mut attempt: impl FnMut() -> Result<T, Failure>) -> Result<T> {
        let mut failed = 0;
        loop {
            match attempt() {
                Ok(value) => return Ok(value),
                Err(failure) => failed = self.after(url, failure, failed)?,
            }
        }
    }

    /// Waits after a failure and returns the number of failed attempts.
    fn after(self, url: &str, failure: Failure, failed: u32) -> Result<u32> {
        match failure {
            Failure::Store(error) => Err(error),
            Failure::Permanent(problem) => Err(StoreError::download(url, problem)),
            Failure::Temporary { problem, .. } if failed + 1 >= self.attempts => {
                let hint = "check the network and repeat the download; it continues where it ended";
                let problem = format!("{problem} (after {} attempts)\n  hint: {hint}", self.attempts);
                Err(StoreError::download(url, problem))
            }
            Failure::Temporary { wait, .. } => {
                let doubled = self.wait.saturating_mul(1 << failed.min(10)).min(MAX_WAIT);
                thread::sleep(doubled.max(wait.unwrap_or_default()));
                Ok(failed + 1)
            }
        }
    }
}

/// Receives a file at `partial`, which may contain its first bytes, and verifies it.
///
/// After an error, the partial file contains the bytes so far, unless they are wrong.
pub(super) fn fetch(
    url: &str,
    partial: &Path,
    expected: &Expected<'_>,
    retry: Retry,
    get: &dyn Fn(u64) -> Result<Contents, Failure>,
    report: &dyn Fn(u64),
) -> Result<()> {
    let failed = |source| StoreError::io(partial, "write", source);
    let file = open(partial).map_err(failed)?;
    let mut target = Target::new(file, partial, expected.sha256.is_some());
    // Without a digest, nothing would reveal that old bytes are of another version or damaged.
    if expected.sha256.is_some() {
        target.resume().map_err(failed)?;
    } else {
        target.clear().map_err(failed)?;
    }
    let mut was_resumed = target.length > 0;
    loop {
        receive(url, &mut target, expected, retry, get, report)?;
        let Some(sha256) = expected.sha256 else { break };
        let found = target.digest();
        if found == sha256 {
            break;
        }
        target.clear().map_err(failed)?;
        if !was_resumed {
            let problem = format!("SHA-256 of the contents is {found}, expected {sha256}");
            return Err(StoreError::download(url, problem));
        }
        // The old bytes may be the wrong ones.
        was_resumed = false;
    }
    target.file.sync_all().map_err(failed)?;
    report(target.length);
    Ok(())
}

/// Receives the rest of a file, in as many attempts as it takes.
fn receive(
    url: &str,
    target: &mut Target<'_>,
    expected: &Expected<'_>,
    retry: Retry,
    get: &dyn Fn(u64) -> Result<Contents, Failure>,
    report: &dyn Fn(u64),
) -> Result<()> {
    let mut failed = 0;
    while expected.size != Some(target.length) {
        if expected.size.is_some_and(|size| size < target.length) {
            target.clear().map_err(|source| StoreError::io(target.path, "write", source))?;
        }
        let before = target.length;
        let result = get(before).and_then(|contents| attempt(contents, target, expected, report));
        match result {
            Ok(()) if expected.size.is_none() => return Ok(()),
            Ok(()) => {}
            Err(failure) => {
                if target.length.saturating_sub(before) >= PROGRESS {
                    failed = 0;
                }
                failed = retry.after(url, failure, failed)?;
            }
        }
    }
    Ok(())
}

/// Receives one response. `Ok` means that the response ended, and that the file is complete if its length is known.
fn attempt(
    mut contents: Contents,
    target: &mut Target<'_>,
    expected: &Expected<'_>,
    report: &dyn Fn(u64),
) -> Result<(), Failure> {
    if contents.from != target.length {
        target.clear().map_err(|source| target.failed(source))?;
    }
    let limit = expected.size.unwrap_or(MAX_UNDECLARED);
    let mut buffer = vec![0; BUFFER];
    let (mut window, mut in_window) = (Instant::now(), 0);
    let mut reported = None::<Instant>;
    loop {
        let count = match contents.reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let problem = format!("the connection was lost after {} bytes: {error}", target.length);
                return Err(Failure::Temporary { problem, wait: None });
            }
        };
        if target.length + count as u64 > limit {
            target.clear().map_err(|source| target.failed(source))?;
            return Err(Failure::Permanent(format!("the contents are longer than {limit} bytes")));
        }
        target.write(&buffer[..count]).map_err(|source| target.failed(source))?;
        // The end is reported when the file is verified.
        let is_due = reported.is_none_or(|last| last.elapsed() >= REPORTS);
        if is_due && expected.size != Some(target.length) {
            report(target.length);
            reported = Some(Instant::now());
        }
        in_window += count as u64;
        if window.elapsed() >= expected.timeout {
            if in_window < SLOWEST {
                let problem = format!("only {in_window} bytes in {:.0?}", window.elapsed());
                return Err(Failure::Temporary { problem, wait: None });
            }
            (window, in_window) = (Instant::now(), 0);
        }
    }
    match expected.size {
        Some(size) if target.length < size => {
            let problem = format!("the contents end after {} of {size} bytes", target.length);
            Err(Failure::Temporary { problem, wait: None })
        }
        Some(_) | None => Ok(()),
    }
}

/// The partial file with the digest of its contents.
struct Target<'a> {
    file: File,
    path: &'a Path,
    length: u64,
    hasher: Option<Sha256>,
}

impl<'a> Target<'a> {
    fn new(file: File, path: &'a Path, hashed: bool) -> Target<'a> {
        Target { file, path, length: 0, hasher: hashed.then(Sha256::new) }
    }

    /// Reads the bytes that the file contains, for the digest.
    fn resume(&mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        let mut buffer = vec![0; BUFFER];
        loop {
            match self.file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => self.count(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn clear(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.length = 0;
        self.hasher = self.hasher.as_ref().map(|_| Sha256::new());
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.count(bytes);
        Ok(())
    }

    fn count(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
    }

    /// Returns the SHA-256 in hexadecimal digits.
    fn digest(&self) -> String {
        let hasher = self.hasher.clone().unwrap_or_default();
        hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn failed(&self, source: io::Error) -> Failure {
        Failure::Store(StoreError::io(self.path, "write", source))
    }
}

/// Opens the partial file. A symbolic link in its place is not followed.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    }
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_an_error_of_the_file() {
        let file = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
        let mut target = Target::new(file, Path::new("blobs/x.incomplete"), true);
        let contents = || Contents { from: 0, reader: Box::new(&[1; 1000][..]) };
        let expected = Expected { size: Some(1000), sha256: Some("x"), timeout: Duration::from_secs(1) };
        let retry = Retry { attempts: 5, wait: Duration::ZERO };
        let mut calls = 0;
        let error = retry.run("url", || {
            calls += 1;
            attempt(contents(), &mut target, &expected, &|_| {})
        });
        let text = error.unwrap_err().to_string();
        assert!(text.starts_with("blobs/x.incomplete: cannot write: No space left"), "{text}");
        assert_eq!((calls, target.length), (1, 0));
    }
}
