//! Writes and fills of any bytes. wgpu copies and clears whole words of 4 bytes; a kernel writes single bytes.

use crate::arguments::{Binding, Bounds, Prepared};
use kiln_ir::DType;
use kiln_kernel::print::{Entry, EntryParameter};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// The kernel that writes one value to a range of bytes.
pub(crate) const SOURCE: &str = include_str!("bytes.wgsl");

const THREADS: usize = 256;

/// The maximum number of blocks of a fill; threads loop over the words of larger ones.
const MAX_BLOCKS: usize = 1 << 12;

/// The entry point of [`SOURCE`].
pub(crate) fn entry() -> Entry {
    let tensor = EntryParameter::Tensor { dtype: DType::U32, is_written: true };
    let word = EntryParameter::Word(DType::U32);
    Entry {
        name: "kiln_fill".into(),
        threads: THREADS as u32,
        parameters: vec![tensor, word, word, word, word],
        is_guarded: false,
    }
}

/// The parts of a write: the bytes before the first whole word, the whole words, and the bytes after them.
pub(crate) fn parts(offset: usize, len: usize) -> [Range<usize>; 3] {
    let head = offset.wrapping_neg() % 4;
    let head = head.min(len);
    let tail = head + (len - head) / 4 * 4;
    [0..head, head..tail, tail..len]
}

/// A value for some bytes of a range of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    /// The first word.
    first: usize,
    /// The number of words, at least 1.
    count: usize,
    /// The bytes of the first and the last word that are written.
    masks: [u32; 2],
    /// The value of each word.
    value: u32,
}

impl Fill {
    /// One value for each byte of a range that is not empty.
    pub(crate) fn with_byte(bytes: Range<usize>, value: u8) -> Fill {
        let (first, last) = (bytes.start / 4, (bytes.end - 1) / 4);
        let masks = [u32::MAX << (8 * (bytes.start % 4)), u32::MAX >> (8 * (3 - (bytes.end - 1) % 4))];
        Fill { first, count: last - first + 1, masks, value: u32::from_ne_bytes([value; 4]) }
    }

    /// 1 to 3 bytes at an offset, within one word.
    pub(crate) fn with_bytes(offset: usize, bytes: &[u8]) -> Fill {
        let range = Fill::with_byte(offset..offset + bytes.len(), 0);
        let mut word = [0; 4];
        word[offset % 4..offset % 4 + bytes.len()].copy_from_slice(bytes);
        // WGSL's memory is little-endian.
        Fill { value: u32::from_le_bytes(word), ..range }
    }

    /// The launches of it on memory of that size: several if it is larger than a binding.
    pub(crate) fn launches(self, size: usize, bounds: &Bounds) -> Vec<Prepared> {
        let mut launches = Vec::new();
        let mut done = 0;
        while done < self.count {
            let byte = (self.first + done) * 4;
            let start = byte - byte % bounds.storage_alignment;
            let bytes = (size - start).min(bounds.binding_bytes / 4 * 4);
            let skipped = (byte - start) / 4;
            let count = (self.count - done).min(bytes / 4 - skipped);
            let blocks = count.div_ceil(THREADS).min(MAX_BLOCKS).min(bounds.workgroups);
            let first_mask = if done == 0 { self.masks[0] } else { u32::MAX };
            let last_mask = if done + count == self.count { self.masks[1] } else { u32::MAX };
            let words: SmallVec<[u32; 32]> =
                smallvec![blocks as u32, skipped as u32, count as u32, first_mask, last_mask, self.value];
            launches.push(Prepared {
                bindings: smallvec![Binding { argument: 0, offset: start as u64, bytes: bytes as u64 }],
                parts: smallvec![1],
                words,
                workgroups: [blocks as u32, 1],
            });
            done += count;
        }
        launches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::count_words;

    fn bounds(binding_bytes: usize) -> Bounds {
        Bounds {
            name: "wgpu".into(),
            storage_alignment: 32,
            uniform_alignment: 256,
            binding_bytes,
            workgroups: 65535,
        }
    }

    /// Runs the launches on bytes, as the kernel does.
    fn apply(fill: Fill, bytes: &mut [u8], binding_bytes: usize) {
        for launch in fill.launches(bytes.len(), &bounds(binding_bytes)) {
            let [_, first, count, first_mask, last_mask, value] = launch.words[..] else { panic!("6 words") };
            assert_eq!(launch.words.len(), count_words(&entry()));
            assert!(launch.bindings[0].bytes as usize <= binding_bytes);
            for i in 0..count {
                let at = launch.bindings[0].offset as usize + 4 * (first + i) as usize;
                let mut mask = u32::MAX;
                mask &= if i == 0 { first_mask } else { u32::MAX };
                mask &= if i + 1 == count { last_mask } else { u32::MAX };
                let old = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
                bytes[at..at + 4].copy_from_slice(&((old & !mask) | (value & mask)).to_le_bytes());
            }
        }
    }

    #[test]
    fn a_fill_writes_its_bytes_and_no_others() {
        for start in 0..70 {
            for end in start + 1..128 {
                let mut bytes = [1; 128];
                apply(Fill::with_byte(start..end, 7), &mut bytes, 64);
                assert!((0..128).all(|i| bytes[i] == if (start..end).contains(&i) { 7 } else { 1 }));
            }
        }
    }

    #[test]
    fn the_parts_of_a_write_are_whole_words_and_their_edges() {
        for offset in 0..9 {
            for len in 0..14 {
                let [head, body, tail] = parts(offset, len);
                assert_eq!((head.start, head.end, body.end, tail.end), (0, body.start, tail.start, len));
                assert!(head.len() < 4 && tail.len() < 4 && body.len().is_multiple_of(4));
                assert!(body.is_empty() || (offset + body.start).is_multiple_of(4));
                let data: Vec<u8> = (0..len as u8).map(|i| 100 + i).collect();
                let mut bytes = [1; 32];
                bytes[offset + body.start..offset + body.end].copy_from_slice(&data[body]);
                for edge in [head, tail].into_iter().filter(|edge| !edge.is_empty()) {
                    apply(Fill::with_bytes(offset + edge.start, &data[edge]), &mut bytes, 64);
                }
                assert_eq!(bytes[offset..offset + len], data);
                assert!(bytes[..offset].iter().chain(&bytes[offset + len..]).all(|byte| *byte == 1));
            }
        }
    }
}
