//! Tar archives of `torch.save` before PyTorch 0.1.10.
//!
//! `storages` has a pickle with the number of storages, and for each a pickle of key, location and class, the number of
//! its elements (8 bytes) and the elements; then a pickle with views of storages. `tensors` has a pickle with the number
//! of tensors, and for each a pickle of key, key of the storage and class, the number of axes (4 bytes, and 4 unused),
//! lengths, strides and offset (8 bytes each). `pickle` has the values, which refer to both by key. Source:
//! <https://github.com/pytorch/pytorch/blob/v2.6.0/torch/serialization.py> (`legacy_load`) and POSIX `ustar`.

use std::ops::Range;

use kiln_tensor::{MAX_RANK, Shape};

use super::legacy::counted;
use super::pickle::globals::Kind;
use super::pickle::{self, Id, Origin, Pickle};
use super::storage::{Storage, Storages, TarTensor};
use super::{Contents, PyTorchOptions, Root};
use crate::bytes::FileBytes;
use crate::error::{Result, StoreError};
use crate::source::WeightFormat;

const BLOCK: usize = 512;

/// The field of a header with its checksum.
const CHECKSUM: Range<usize> = 148..156;

/// Returns whether bytes start with the header of a tar archive: its checksum is valid.
pub(super) fn is_tar(bytes: &[u8]) -> bool {
    bytes.get(..BLOCK).is_some_and(|header| has_checksum(header) && header[0] != 0)
}

fn has_checksum(header: &[u8]) -> bool {
    let sum: u64 = header
        .iter()
        .enumerate()
        .map(|(place, &byte)| if CHECKSUM.contains(&place) { u64::from(b' ') } else { u64::from(byte) })
        .sum();
    octal(&header[CHECKSUM]) == Some(sum)
}

/// Reads a number in octal digits, which spaces and zero bytes surround.
fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
    u64::from_str_radix(text, 8).ok()
}

/// Reads an archive.
pub(super) fn read(file: FileBytes, options: &PyTorchOptions) -> Result<Contents> {
    let members = Members::of(&file)?;
    let mut storages = Storages::default();
    read_storages(&mut Member::new(&file, options, &members.storages), &mut storages)?;
    read_tensors(&mut Member::new(&file, options, &members.tensors), &mut storages)?;
    let values = Member::new(&file, options, &members.pickle).pickle()?;
    let roots = vec![Root { pickle: values, folder: "" }];
    Ok(Contents { format: WeightFormat::PyTorchTar, roots, storages, verifies: options.verifies, file })
}

/// The ranges of the members.
struct Members {
    storages: Range<u64>,
    tensors: Range<u64>,
    pickle: Range<u64>,
}

impl Members {
    fn of(file: &FileBytes) -> Result<Members> {
        let bytes = file.all();
        let (mut storages, mut tensors, mut pickle) = (None, None, None);
        let mut at = 0;
        while let Some(header) = bytes.get(at..).and_then(|rest| rest.get(..BLOCK)) {
            if header.iter().all(|&byte| byte == 0) {
                break;
            }
            let malformed = |problem: &str| StoreError::malformed(file.path(), at as u64, problem);
            if !has_checksum(header) {
                return Err(malformed("the checksum of a tar header is wrong"));
            }
            let size = octal(&header[124..136]).ok_or_else(|| malformed("a tar header has no size"))?;
            let start = (at + BLOCK) as u64;
            let end = start.saturating_add(size);
            file.slice(start..end, "a member of the tar archive")?;
            let name = header[..100].split(|&byte| byte == 0).next().unwrap_or_default();
            match name.strip_prefix(b"./").unwrap_or(name) {
                b"storages" => storages = Some(start..end),
                b"tensors" => tensors = Some(start..end),
                b"pickle" => pickle = Some(start..end),
                _ => {}
            }
            // The end is at most the length of the file, so this does not overflow.
            at = (end as usize).next_multiple_of(BLOCK);
        }
        match (storages, tensors, pickle) {
            (Some(storages), Some(tensors), Some(pickle)) => Ok(Members { storages, tensors, pickle }),
            _ => {
                let problem = "the tar archive does not have the members `storages`, `tensors` and `pickle`";
                Err(StoreError::malformed(file.path(), 0, problem))
            }
        }
    }
}

/// A member that is read from its start.
struct Member<'a> {
    file: &'a FileBytes,
    options: &'a PyTorchOptions,
    at: u64,
    end: u64,
}

impl<'a> Member<'a> {
    fn new(file: &'a FileBytes, options: &'a PyTorchOptions, range: &Range<u64>) -> Member<'a> {
        Member { file, options, at: range.start, end: range.end }
    }

    fn pickle(&mut self) -> Result<Pickle> {
        let bytes = self.file.shared(self.at..self.end, "a pickle")?;
        let pickle = pickle::read(bytes, Origin::file(self.file.path(), self.at), &self.options.allowed)?;
        self.at += pickle.length;
        Ok(pickle)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N]> {
        let end = self.at + N as u64;
        if end > self.end {
            return Err(StoreError::malformed(
                self.file.path(),
                self.at,
                "the member of the tar archive ends here",
            ));
        }
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.file.slice(self.at..end, "a tensor")?);
        self.at = end;
        Ok(bytes)
    }

    fn count(&mut self) -> Result<u64> {
        let at = self.at;
        let number = i64::from_le_bytes(self.number()?);
        u64::try_from(number)
            .map_err(|_| StoreError::malformed(self.file.path(), at, format!("{number} is negative")))
    }
}

/// Returns the number in a pickle.
fn number(pickle: &Pickle) -> Result<u64> {
    pickle.count(pickle.root).ok_or_else(|| pickle.malformed(pickle.root, "a count is not a number"))
}

/// Returns a key, which is a number or its digits.
fn key(pickle: &Pickle, id: Id) -> Option<String> {
    pickle.int(id).map(|number| number.to_string()).or_else(|| pickle.text(id).map(str::to_owned))
}

fn read_storages(member: &mut Member<'_>, storages: &mut Storages) -> Result<()> {
    // Each storage takes bytes of the member, so that a large number ends in an error.
    for _ in 0..number(&member.pickle()?)? {
        let described = member.pickle()?;
        let damaged = || described.malformed(described.root, "the description of a storage is damaged");
        let Some(&[name, _, class]) = described.elements(described.root) else { return Err(damaged()) };
        let (Some(key), Some(Kind::Storage(element))) = (key(&described, name), described.global(class))
        else {
            return Err(damaged());
        };
        let (start, bytes) = counted(member.file, member.at, element.bytes, &key)?;
        member.at = start + bytes;
        if member.at > member.end {
            return Err(
                described.malformed(described.root, "a storage ends after its member of the tar archive")
            );
        }
        let storage = Storage {
            key,
            element: Some(element),
            start,
            bytes,
            big_endian: false,
            compressed: None,
            checksum: None,
        };
        if storages.add(storage).is_none() {
            return Err(described.malformed(described.root, "there are two storages of one key"));
        }
    }
    read_views(&member.pickle()?, storages)
}

/// Adds the views of storages: target, root, offset and number of elements.
fn read_views(views: &Pickle, storages: &mut Storages) -> Result<()> {
    let damaged = |id| views.malformed(id, "the view of a storage is damaged");
    for &view in views.elements(views.root).ok_or_else(|| damaged(views.root))? {
        let Some(&[target, root, offset, count]) = views.elements(view) else { return Err(damaged(view)) };
        let (Some(target), Some(root)) = (key(views, target), key(views, root)) else {
            return Err(damaged(view));
        };
        let (Some(offset), Some(count)) = (views.count(offset), views.count(count)) else {
            return Err(damaged(view));
        };
        let Some(index) = storages.index("", &root) else { return Err(damaged(view)) };
        let whole = storages.get(index);
        let size = whole.element.map_or(1, |element| element.bytes);
        let range = offset.checked_mul(size).zip(count.checked_mul(size));
        let range =
            range.filter(|&(start, bytes)| start.checked_add(bytes).is_some_and(|end| end <= whole.bytes));
        let Some((start, bytes)) = range else { return Err(damaged(view)) };
        let part = Storage {
            key: target,
            element: whole.element,
            start: whole.start + start,
            bytes,
            big_endian: false,
            compressed: None,
            checksum: None,
        };
        storages.add(part).ok_or_else(|| damaged(view))?;
    }
    Ok(())
}

fn read_tensors(member: &mut Member<'_>, storages: &mut Storages) -> Result<()> {
    for _ in 0..number(&member.pickle()?)? {
        let described = member.pickle()?;
        let damaged = |problem: &str| described.malformed(described.root, problem);
        let keys = described.elements(described.root);
        let Some(&[name, storage, _]) = keys else {
            return Err(damaged("the description of a tensor is damaged"));
        };
        let (Some(name), Some(storage)) = (key(&described, name), key(&described, storage)) else {
            return Err(damaged("the key of a tensor is not a number"));
        };
        let Some(storage) = storages.index("", &storage) else {
            return Err(damaged("the file does not contain the storage of a tensor"));
        };
        // The upper 4 bytes are not used.
        let axes = u32::from_le_bytes(member.number()?) as usize;
        member.number::<4>()?;
        if axes > MAX_RANK {
            return Err(damaged(&format!("a tensor has {axes} axes, more than {MAX_RANK}")));
        }
        let lengths: Vec<u64> = (0..axes).map(|_| member.count()).collect::<Result<_>>()?;
        let strides: Vec<u64> = (0..axes).map(|_| member.count()).collect::<Result<_>>()?;
        let offset = member.count()?;
        let lengths: Option<Vec<usize>> =
            lengths.into_iter().map(|length| usize::try_from(length).ok()).collect();
        let Some(lengths) = lengths else { return Err(damaged("a tensor is too large")) };
        storages.add_tar_tensor(name, TarTensor { storage, offset, shape: Shape::new(lengths), strides });
    }
    Ok(())
}
