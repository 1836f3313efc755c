//! The subset of zip archives that `.npz` files and `torch.save` need: stored or deflated entries in one file, with
//! zip64.
//!
//! The parser is implemented here so that messages name the byte, and reading bounds the sizes that an archive
//! declares. Decompression is by `flate2`. Source: <https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT> (4.3
//! and 4.5.3).

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::error::{Result, StoreError};

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR64: u32 = 0x0706_4b50;

const LOCAL_BYTES: u64 = 30;
const CENTRAL_BYTES: usize = 46;
const END_BYTES: usize = 22;
const END64_BYTES: usize = 56;
const LOCATOR64_BYTES: usize = 20;

/// Tag of the zip64 extra field.
const EXTRA64: u16 = 1;

/// In a 32-bit field: the value is in the zip64 extra field.
const FULL32: u64 = 0xFFFF_FFFF;
const FULL16: u64 = 0xFFFF;

const STORED: u16 = 0;
const DEFLATED: u16 = 8;
const ENCRYPTED: u16 = 1;
const UTF8: u16 = 1 << 11;

/// 1 January 1980, the earliest date of the format, so that equal arrays produce equal bytes.
const DATE: u16 = (1 << 5) | 1;

/// Tag of the extra field that pads a local header: `FB`, as PyTorch writes it.
const EXTRA_PADDING: u16 = 0x4246;

/// Length in bytes of the tag and the length of an extra field.
const EXTRA_BYTES: u64 = 4;

/// Limit on the length of the central directory, in bytes.
const MAX_DIRECTORY_BYTES: u64 = 100_000_000;

/// Maximum compression ratio of deflate: a code of 2 bits expands to at most 258 bytes, minus headers
/// (<https://zlib.net/zlib_tech.html>, "Maximum Compression Factor").
const MAX_RATIO: u64 = 1032;

/// An entry of the central directory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) deflated: bool,
    pub(crate) crc: u32,
    /// Compressed size in bytes.
    pub(crate) compressed: u64,
    /// Uncompressed size in bytes.
    pub(crate) size: u64,
    /// Offset of the local header.
    pub(crate) offset: u64,
}

/// The central directory: entries in archive order.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) entries: Vec<Entry>,
    /// Offset of the central directory; everything before it belongs to the entries.
    start: u64,
    /// The offsets of all entries, sorted. An entry ends before the next one starts.
    offsets: Vec<u64>,
}

/// Offset of the central directory and number of entries.
struct End {
    entries: u64,
    bytes: u64,
    start: u64,
}

impl Directory {
    /// Reads the central directory of an archive of `length` bytes.
    pub(crate) fn read(file: &Path, source: &mut (impl Read + Seek), length: u64) -> Result<Directory> {
        let end = find_end(file, source, length)?;
        let bytes = read_at(file, source, end.start, end.bytes)?;
        let mut fields = Fields { file, bytes: &bytes, at: 0, base: end.start };
        let mut entries = Vec::new();
        while fields.at < bytes.len() {
            entries.push(central_entry(&mut fields, end.start)?);
        }
        if entries.len() as u64 != end.entries {
            let problem = format!("the archive lists {} entries, but counts {}", entries.len(), end.entries);
            return Err(StoreError::malformed(file, end.start, problem));
        }
        let offsets = distinct_offsets(file, &entries)?;
        Ok(Directory { entries, start: end.start, offsets })
    }

    /// Returns the offset of an entry's bytes and checks its local header.
    pub(crate) fn data_start(
        &self,
        file: &Path,
        source: &mut (impl Read + Seek),
        entry: &Entry,
    ) -> Result<u64> {
        let malformed = |problem: &str| {
            StoreError::malformed(
                file,
                entry.offset,
                format!("entry `{}`: {problem}", entry.name.escape_debug()),
            )
        };
        if self.start.checked_sub(LOCAL_BYTES).is_none_or(|last| entry.offset > last) {
            return Err(malformed("its header would overlap the central directory"));
        }
        let bytes = read_at(file, source, entry.offset, LOCAL_BYTES)?;
        let mut fields = Fields { file, bytes: &bytes, at: 0, base: entry.offset };
        if fields.u32()? != LOCAL {
            return Err(malformed("no entry starts here"));
        }
        fields.skip(22)?;
        let (name, extra) = (u64::from(fields.u16()?), u64::from(fields.u16()?));
        let start = entry.offset + LOCAL_BYTES + name + extra;
        let end = start.checked_add(entry.compressed);
        if end.is_none_or(|end| end > self.start) {
            return Err(malformed("its bytes would overlap the central directory"));
        }
        let following = self.offsets.partition_point(|&offset| offset <= entry.offset);
        if let (Some(&next), Some(end)) = (self.offsets.get(following), end)
            && end > next
        {
            return Err(malformed(&format!("its bytes would overlap the entry at byte {next}")));
        }
        if read_at(file, source, entry.offset + LOCAL_BYTES, name)? != entry.name.as_bytes() {
            return Err(malformed("its own header has another name"));
        }
        Ok(start)
    }
}

/// Returns the sorted offsets of the entries.
///
/// # Errors
/// When two entries have the same offset, so that they would share their bytes.
fn distinct_offsets(file: &Path, entries: &[Entry]) -> Result<Vec<u64>> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by_key(|entry| entry.offset);
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].offset == pair[1].offset) {
        let [a, b] = [0, 1].map(|index| pair[index].name.escape_debug());
        let problem = format!("entries `{a}` and `{b}` overlap: both start here");
        return Err(StoreError::malformed(file, pair[0].offset, problem));
    }
    Ok(sorted.iter().map(|entry| entry.offset).collect())
}

/// Finds the end of central directory record, which a comment of up to 64 KiB may follow.
fn find_end(file: &Path, source: &mut (impl Read + Seek), length: u64) -> Result<End> {
    let tail_bytes = length.min((END64_BYTES + LOCATOR64_BYTES + END_BYTES) as u64 + FULL16);
    let tail_start = length - tail_bytes;
    let tail = read_at(file, source, tail_start, tail_bytes)?;
    let starts = (0..(tail.len() + 1).saturating_sub(END_BYTES)).rev();
    let mut ends = starts.filter(|&at| {
        let comment = usize::from(u16::from_le_bytes([tail[at + 20], tail[at + 21]]));
        tail[at..at + 4] == END.to_le_bytes() && at + END_BYTES + comment == tail.len()
    });
    let Some(at) = ends.next() else { return Err(no_archive(file, source, length)) };
    let mut fields = Fields { file, bytes: &tail[at..], at: 4, base: tail_start + at as u64 };
    let (disk, first_disk) = (fields.u16()?, fields.u16()?);
    fields.skip(2)?;
    let entries = u64::from(fields.u16()?);
    let (bytes, start) = (u64::from(fields.u32()?), u64::from(fields.u32()?));
    let here = tail_start + at as u64;
    let end64 = locator(&tail[..at]).map(|offset| end64(file, source, offset, here)).transpose()?;
    let (end, one_disk) = match end64 {
        Some(end) => (end, true),
        None => (End { entries, bytes, start }, disk == 0 && first_disk == 0),
    };
    let malformed = |problem: &str| Err(StoreError::malformed(file, here, problem));
    if !one_disk {
        return malformed("the archive is spread over several files");
    }
    if end.start.checked_add(end.bytes).is_none_or(|stop| stop > here) {
        return malformed(
            "the central directory ends after its end record\n  hint: the file is damaged; get it again",
        );
    }
    if end.bytes > MAX_DIRECTORY_BYTES {
        return malformed("the central directory is longer than the 100 MB allowed");
    }
    Ok(end)
}

/// The error of a file that is no zip archive. Files of PyTorch that are not are detected before.
fn no_archive(file: &Path, source: &mut (impl Read + Seek), length: u64) -> StoreError {
    let start = read_at(file, source, 0, length.min(8)).unwrap_or_default();
    let problem = if start.starts_with(b"PK") {
        "the archive has no end of central directory record\n  hint: the file is truncated; get it again"
    } else if start.starts_with(b"\x93NUMPY") {
        "is not a `.npz` file\n  hint: it is a single array: `numpy::read` reads it"
    } else {
        "is not a `.npz` file, which is a zip archive\n  hint: `numpy.savez` writes such files"
    };
    StoreError::malformed(file, 0, problem)
}

/// The offset of the zip64 record, if its locator precedes the plain record.
fn locator(before_end: &[u8]) -> Option<u64> {
    let at = before_end.len().checked_sub(LOCATOR64_BYTES)?;
    let locator = &before_end[at..];
    let offset = locator[8..16].try_into().ok().map(u64::from_le_bytes);
    offset.filter(|_| locator[..4] == LOCATOR64.to_le_bytes())
}

fn end64(file: &Path, source: &mut (impl Read + Seek), offset: u64, before: u64) -> Result<End> {
    let bytes = END64_BYTES as u64;
    if offset.checked_add(bytes).is_none_or(|end| end > before) {
        let problem = "the zip64 end record ends after its locator";
        return Err(StoreError::malformed(file, before, problem));
    }
    let record = read_at(file, source, offset, bytes)?;
    let mut fields = Fields { file, bytes: &record, at: 0, base: offset };
    if fields.u32()? != END64 {
        return Err(StoreError::malformed(file, offset, "no zip64 end record starts here"));
    }
    fields.skip(28)?;
    Ok(End { entries: fields.u64()?, bytes: fields.u64()?, start: fields.u64()? })
}

/// Reads an entry of the central directory; entry data must be before `directory`.
fn central_entry(fields: &mut Fields<'_>, directory: u64) -> Result<Entry> {
    let at = fields.base + fields.at as u64;
    let file = fields.file;
    let malformed = |problem: String| Err(StoreError::malformed(file, at, problem));
    if fields.u32()? != CENTRAL {
        return malformed("no central directory entry starts here".to_owned());
    }
    fields.skip(4)?;
    let (flags, method) = (fields.u16()?, fields.u16()?);
    fields.skip(4)?;
    let crc = fields.u32()?;
    let (mut compressed, mut size) = (u64::from(fields.u32()?), u64::from(fields.u32()?));
    let (name, extra, comment) = (fields.u16()?, fields.u16()?, fields.u16()?);
    fields.skip(8)?;
    let mut offset = u64::from(fields.u32()?);
    let name = std::str::from_utf8(fields.take(usize::from(name))?).map(str::to_owned);
    let extra = fields.take(usize::from(extra))?;
    fields.skip(usize::from(comment))?;
    let Ok(name) = name else { return malformed("an entry name is not UTF-8".to_owned()) };
    let wide = [&mut size, &mut compressed, &mut offset].into_iter().filter(|field| **field == FULL32);
    widen(extra, wide);
    let shown = name.escape_debug();
    if flags & ENCRYPTED != 0 {
        return malformed(format!("entry `{shown}` is encrypted"));
    }
    if ![STORED, DEFLATED].contains(&method) {
        return malformed(format!(
            "entry `{shown}` is compressed by method {method}; only 0 (stored) and 8 (deflated) are supported"
        ));
    }
    let deflated = method == DEFLATED;
    if deflated && size / MAX_RATIO > compressed {
        let problem = "above deflate's maximum ratio";
        return malformed(format!("entry `{shown}` declares {size} bytes in {compressed}, {problem}"));
    }
    if !deflated && size != compressed {
        return malformed(format!("entry `{shown}` is stored, but declares {size} bytes in {compressed}"));
    }
    if compressed > directory {
        let problem = "more than precede the central directory";
        return malformed(format!("entry `{shown}` declares {compressed} compressed bytes, {problem}"));
    }
    Ok(Entry { name, deflated, crc, compressed, size, offset })
}

/// Reads the values that did not fit into 32 bits, in order, from an entry's zip64 extra field.
fn widen<'a>(mut extra: &[u8], mut fields: impl Iterator<Item = &'a mut u64>) {
    while let [tag0, tag1, length0, length1, rest @ ..] = extra {
        let length = usize::from(u16::from_le_bytes([*length0, *length1])).min(rest.len());
        let (body, after) = rest.split_at(length);
        if u16::from_le_bytes([*tag0, *tag1]) == EXTRA64 {
            for number in body.chunks_exact(8) {
                let Some(field) = fields.next() else { return };
                *field = number.try_into().map_or(FULL32, u64::from_le_bytes);
            }
        }
        extra = after;
    }
}

/// Reads a part of the file. The caller bounds its length.
fn read_at(file: &Path, source: &mut (impl Read + Seek), start: u64, bytes: u64) -> Result<Vec<u8>> {
    let mut part = vec![0; bytes as usize];
    let read = source.seek(SeekFrom::Start(start)).and_then(|_| source.read_exact(&mut part));
    read.map_err(|error| StoreError::io(file, "read", error))?;
    Ok(part)
}

/// Reader of consecutive little-endian integers.
struct Fields<'a> {
    file: &'a Path,
    bytes: &'a [u8],
    at: usize,
    /// Offset of the bytes in the file.
    base: u64,
}

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        match self.bytes.get(self.at..self.at + count) {
            Some(part) => {
                self.at += count;
                Ok(part)
            }
            None => {
                let at = self.base + self.at as u64;
                Err(StoreError::malformed(
                    self.file,
                    at,
                    "the central directory ends in the middle of an entry",
                ))
            }
        }
    }

    fn skip(&mut self, count: usize) -> Result<()> {
        self.take(count).map(|_| ())
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    fn u16(&mut self) -> Result<u16> {
        self.number().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.number().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.number().map(u64::from_le_bytes)
    }
}

/// Writes an entry's local header and returns its length. The entry's bytes follow.
///
/// `alignment`: the entry's bytes start at a multiple of this number, by padding of the header; 1 for none. It is at
/// most 32,768.
pub(crate) fn write_local(writer: &mut dyn Write, entry: &Entry, alignment: u64) -> io::Result<u64> {
    let wide = [entry.size, entry.compressed];
    // A local header has both sizes in the extra field or none.
    let is_wide = wide.iter().any(|&number| number >= FULL32);
    let mut extra = extra64(if is_wide { &wide } else { &[] });
    let end = entry.offset + LOCAL_BYTES + entry.name.len() as u64 + extra.len() as u64;
    if !end.is_multiple_of(alignment) {
        let padding = (end + EXTRA_BYTES).next_multiple_of(alignment) - end - EXTRA_BYTES;
        extra.extend(EXTRA_PADDING.to_le_bytes());
        extra.extend((padding as u16).to_le_bytes());
        extra.resize(extra.len() + padding as usize, 0);
    }
    let mut bytes = LOCAL.to_le_bytes().to_vec();
    bytes.extend(entry.shared_fields(is_wide, is_wide));
    bytes.extend((entry.name.len() as u16).to_le_bytes());
    bytes.extend((extra.len() as u16).to_le_bytes());
    bytes.extend(entry.name.as_bytes());
    bytes.extend(extra);
    writer.write_all(&bytes)?;
    Ok(bytes.len() as u64)
}

/// Writes the central directory, which starts at byte `start`, and the end record.
pub(crate) fn write_directory(writer: &mut dyn Write, entries: &[Entry], start: u64) -> io::Result<()> {
    let list: Vec<u8> = entries.iter().flat_map(Entry::central).collect();
    writer.write_all(&list)?;
    let (count, bytes) = (entries.len() as u64, list.len() as u64);
    if count >= FULL16 || bytes >= FULL32 || start >= FULL32 {
        let mut end = END64.to_le_bytes().to_vec();
        end.extend((END64_BYTES as u64 - 12).to_le_bytes());
        end.extend([45, 0, 45, 0].iter().chain(&[0; 8]));
        end.extend([count, count, bytes, start].iter().flat_map(|number| number.to_le_bytes()));
        end.extend(LOCATOR64.to_le_bytes());
        end.extend(0u32.to_le_bytes());
        end.extend((start + bytes).to_le_bytes());
        end.extend(1u32.to_le_bytes());
        writer.write_all(&end)?;
    }
    let mut end = END.to_le_bytes().to_vec();
    end.extend([0; 4]);
    end.extend([count, count].iter().flat_map(|&count| (count.min(FULL16) as u16).to_le_bytes()));
    end.extend([bytes, start].iter().flat_map(|&number| (number.min(FULL32) as u32).to_le_bytes()));
    end.extend([0; 2]);
    writer.write_all(&end)
}

impl Entry {
    fn central(&self) -> Vec<u8> {
        let numbers = [self.size, self.compressed, self.offset];
        let wide: Vec<u64> = numbers.into_iter().filter(|&number| number >= FULL32).collect();
        let extra = extra64(&wide);
        let mut bytes = CENTRAL.to_le_bytes().to_vec();
        bytes.extend(version(!wide.is_empty()).to_le_bytes());
        bytes.extend(self.shared_fields(!wide.is_empty(), false));
        bytes.extend((self.name.len() as u16).to_le_bytes());
        bytes.extend((extra.len() as u16).to_le_bytes());
        bytes.extend([0; 10]);
        bytes.extend((self.offset.min(FULL32) as u32).to_le_bytes());
        debug_assert_eq!(bytes.len(), CENTRAL_BYTES);
        bytes.extend(self.name.as_bytes());
        bytes.extend(extra);
        bytes
    }

    /// The fields from version to sizes, the same in both headers. `full`: both sizes are in the extra field.
    fn shared_fields(&self, wide: bool, full: bool) -> Vec<u8> {
        let flags = if self.name.is_ascii() { 0 } else { UTF8 };
        let method = if self.deflated { DEFLATED } else { STORED };
        let short = |number: u64| if full { FULL32 as u32 } else { number.min(FULL32) as u32 };
        let mut bytes: Vec<u8> =
            [version(wide), flags, method, 0, DATE].iter().flat_map(|field| field.to_le_bytes()).collect();
        let sizes = [self.crc, short(self.compressed), short(self.size)];
        bytes.extend(sizes.iter().flat_map(|field| field.to_le_bytes()));
        bytes
    }
}

/// The version needed to extract: 4.5 for zip64, otherwise 2.0.
fn version(wide: bool) -> u16 {
    if wide { 45 } else { 20 }
}

fn extra64(numbers: &[u64]) -> Vec<u8> {
    if numbers.is_empty() {
        return Vec::new();
    }
    let mut bytes = EXTRA64.to_le_bytes().to_vec();
    bytes.extend((8 * numbers.len() as u16).to_le_bytes());
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn entry(size: u64, offset: u64) -> Entry {
        Entry { name: "x.npy".into(), deflated: false, crc: 7, compressed: size, size, offset }
    }

    /// Reads back a central directory that starts at `start`, after as many bytes that are not written.
    fn listed(entries: &[Entry], start: u64) -> Vec<Entry> {
        let list: Vec<u8> = entries.iter().flat_map(Entry::central).collect();
        let mut fields = Fields { file: Path::new("x"), bytes: &list, at: 0, base: start };
        let mut read = Vec::new();
        while fields.at < list.len() {
            read.push(central_entry(&mut fields, start).unwrap());
        }
        read
    }

    #[test]
    fn zip64_sizes_and_offsets_round_trip() {
        for (size, offset) in
            [(5, 7), (1 << 33, 7), (5, 1 << 34), (FULL32, FULL32), (FULL32 - 1, 0), (1 << 40, 1 << 41)]
        {
            let entries = [entry(size, offset), entry(1, 2)];
            assert_eq!(listed(&entries, 1 << 50), entries);
        }
        let mut local = Vec::new();
        let bytes = write_local(&mut local, &entry(1 << 33, 0), 1).unwrap();
        assert_eq!((bytes, local.len()), (30 + 5 + 20, 55));
        assert_eq!(local[18..26], [0xFF; 8]);
        assert_eq!(local[39..47], (1u64 << 33).to_le_bytes());
    }

    #[test]
    fn more_than_65535_entries() {
        let entries: Vec<Entry> = (0..70_000).map(|offset| entry(0, offset)).collect();
        let mut bytes = Vec::new();
        write_directory(&mut bytes, &entries, 0).unwrap();
        let length = bytes.len() as u64;
        let directory = Directory::read(Path::new("x"), &mut Cursor::new(bytes), length).unwrap();
        assert_eq!(directory.entries.len(), 70_000);
    }

    #[test]
    fn local_headers_are_padded_to_the_alignment() {
        for offset in 0..200 {
            let mut local = Vec::new();
            let bytes = write_local(&mut local, &entry(5, offset), 64).unwrap();
            assert_eq!(bytes, local.len() as u64);
            assert_eq!((offset + bytes) % 64, 0);
            let extra = u64::from(u16::from_le_bytes([local[28], local[29]]));
            assert_eq!(bytes, LOCAL_BYTES + 5 + extra);
        }
    }

    #[test]
    fn two_entries_at_one_offset_are_refused() {
        let mut bytes = vec![0; 16];
        write_directory(&mut bytes, &[entry(1, 3), entry(2, 3)], 16).unwrap();
        let length = bytes.len() as u64;
        let error = Directory::read(Path::new("x"), &mut Cursor::new(bytes), length).unwrap_err().to_string();
        assert_eq!(error, "x: at byte 3: entries `x.npy` and `x.npy` overlap: both start here");
    }

    #[test]
    fn an_archive_comment_is_skipped() {
        let mut bytes = Vec::new();
        write_directory(&mut bytes, &[entry(0, 0)], 0).unwrap();
        let comment = vec![b'c'; 65_535];
        let at = bytes.len() - 2;
        bytes[at..].copy_from_slice(&65_535u16.to_le_bytes());
        bytes.extend(&comment);
        let length = bytes.len() as u64;
        assert_eq!(
            Directory::read(Path::new("x"), &mut Cursor::new(bytes), length).unwrap().entries.len(),
            1
        );
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let mut bomb = entry(10, 0);
        (bomb.deflated, bomb.size) = (true, 10 * MAX_RATIO + MAX_RATIO);
        let list = bomb.central();
        let mut fields = Fields { file: Path::new("x"), bytes: &list, at: 0, base: 100 };
        let message = central_entry(&mut fields, 100).unwrap_err().to_string();
        assert_eq!(
            message,
            "x: at byte 100: entry `x.npy` declares 11352 bytes in 10, above deflate's maximum ratio"
        );
    }
}
