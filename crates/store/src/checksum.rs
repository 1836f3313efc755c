//! Checksums of files.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use crc32fast::Hasher;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Result, StoreError};

/// Number of bytes read at a time.
const CHUNK: usize = 1 << 20;

/// The length of a file and the CRC-32 of its bytes, as in zip and gzip (polynomial `0xEDB88320`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Checksum {
    bytes: u64,
    #[serde(serialize_with = "write_hex", deserialize_with = "read_hex")]
    crc32: u32,
}

impl Checksum {
    /// The length of the file.
    pub(crate) fn bytes(self) -> u64 {
        self.bytes
    }

    /// Reads a file from its start and verifies its checksum.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] with `path` when the file differs.
    pub(crate) fn check(self, file: &mut File, path: &Path) -> Result<()> {
        let failed = |source| StoreError::io(path, "read", source);
        let damaged = |found: String, expected: String| {
            Err(StoreError::Damaged { file: path.to_owned(), found, expected })
        };
        let bytes = file.metadata().map_err(failed)?.len();
        if bytes != self.bytes {
            return damaged(format!("it is {bytes} bytes long"), format!("{} bytes", self.bytes));
        }
        let found = sum(file).map_err(failed)?;
        match found == self.crc32 {
            true => Ok(()),
            false => damaged(format!("its CRC-32 is {}", hex(found)), hex(self.crc32)),
        }
    }
}

fn sum(file: &mut File) -> io::Result<u32> {
    file.rewind()?;
    let (mut crc, mut chunk) = (Hasher::new(), vec![0; CHUNK]);
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(crc.finalize()),
            Ok(bytes) => crc.update(&chunk[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The CRC-32 of bytes as eight hexadecimal digits.
pub(crate) fn hex_of(bytes: &[u8]) -> String {
    hex(crc32fast::hash(bytes))
}

fn hex(crc: u32) -> String {
    format!("{crc:08x}")
}

fn write_hex<S: Serializer>(crc: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hex(*crc))
}

fn read_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let digits = String::deserialize(deserializer)?;
    u32::from_str_radix(&digits, 16).map_err(serde::de::Error::custom)
}

/// A writer that computes the checksum of the bytes it passes on.
pub(crate) struct ChecksumWriter<'a> {
    writer: &'a mut dyn Write,
    crc: Hasher,
    bytes: u64,
}

impl<'a> ChecksumWriter<'a> {
    pub(crate) fn new(writer: &'a mut dyn Write) -> ChecksumWriter<'a> {
        ChecksumWriter { writer, crc: Hasher::new(), bytes: 0 }
    }

    pub(crate) fn checksum(&self) -> Checksum {
        Checksum { bytes: self.bytes, crc32: self.crc.clone().finalize() }
    }
}

impl Write for ChecksumWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(bytes)?;
        self.crc.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of CRC-32/ISO-HDLC in the catalogue of parametrised CRC algorithms.
    #[test]
    fn the_crc32_matches_its_check_value() {
        assert_eq!(hex_of(b"123456789"), "cbf43926");
        let mut written = Vec::new();
        let mut summing = ChecksumWriter::new(&mut written);
        summing.write_all(b"12345").unwrap();
        summing.write_all(b"6789").unwrap();
        assert_eq!(summing.checksum(), Checksum { bytes: 9, crc32: 0xCBF4_3926 });
        assert_eq!(written, b"123456789");
    }
}
