//! A bounded byte reader that tracks its position for messages.

use std::io::{self, Read};
use std::path::Path;

use crate::error::{Result, StoreError};

/// A reader of known length that tracks its position.
pub(super) struct Input<'a> {
    reader: &'a mut dyn Read,
    length: u64,
    at: u64,
    place: ByteSource<'a>,
}

impl<'a> Input<'a> {
    pub(super) fn new(reader: &'a mut dyn Read, length: u64, place: ByteSource<'a>) -> Self {
        Input { reader, length, at: 0, place }
    }

    /// Returns the number of bytes read so far.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Returns the number of remaining bytes.
    pub(super) fn rest(&self) -> u64 {
        self.length - self.at
    }

    /// Whether the input is compressed, so that its length is only declared.
    pub(super) fn is_compressed(&self) -> bool {
        self.place.deflated
    }

    /// Fills the buffer. `what` describes the bytes in errors.
    pub(super) fn fill(&mut self, bytes: &mut [u8], what: &str) -> Result<()> {
        let wanted = bytes.len() as u64;
        if wanted > self.rest() {
            let problem = format!(
                "{what} needs {wanted} bytes, but only {} follow\n  hint: the file is truncated; get it again",
                self.rest()
            );
            return Err(self.malformed(self.at, problem));
        }
        self.reader.read_exact(bytes).map_err(|error| self.place.failed(self.at, error))?;
        self.at += wanted;
        Ok(())
    }

    pub(super) fn malformed(&self, at: u64, problem: impl Into<String>) -> StoreError {
        self.place.malformed(at, problem)
    }
}

/// The source of bytes: a file, or an entry of an archive.
#[derive(Clone, Copy)]
pub(super) struct ByteSource<'a> {
    file: &'a Path,
    entry: Option<&'a str>,
    /// The offset of the bytes in the file.
    start: u64,
    /// Whether the bytes are compressed, so that their offsets are not file offsets.
    deflated: bool,
}

impl<'a> ByteSource<'a> {
    pub(super) fn file(file: &'a Path) -> Self {
        ByteSource { file, entry: None, start: 0, deflated: false }
    }

    pub(super) fn entry(file: &'a Path, entry: &'a str, start: u64, deflated: bool) -> Self {
        ByteSource { file, entry: Some(entry), start, deflated }
    }

    /// Returns the error of bytes at offset `at` that violate the format.
    pub(super) fn malformed(&self, at: u64, problem: impl Into<String>) -> StoreError {
        let problem = problem.into();
        match self.entry {
            None => StoreError::malformed(self.file, self.start + at, problem),
            Some(entry) if self.deflated => {
                let problem = format!("entry `{entry}`, decompressed byte {at}: {problem}");
                StoreError::malformed(self.file, self.start, problem)
            }
            Some(entry) => {
                StoreError::malformed(self.file, self.start + at, format!("entry `{entry}`: {problem}"))
            }
        }
    }

    /// Returns the error of a failed read. Corrupt compressed data counts as malformed.
    pub(super) fn failed(&self, at: u64, error: io::Error) -> StoreError {
        let damaged = [io::ErrorKind::InvalidData, io::ErrorKind::InvalidInput, io::ErrorKind::UnexpectedEof];
        if self.deflated && damaged.contains(&error.kind()) {
            return self.malformed(at, format!("the compressed data is damaged: {error}"));
        }
        StoreError::io(self.file, "read", error)
    }
}
