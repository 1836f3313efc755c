//! The `precompiled_charsmap` of SentencePiece: a trie of characters, and the texts that replace them.
//!
//! The format is that of SentencePiece's `normalizer.cc`: the size of the trie in bytes, its units, each of 32 bits
//! little-endian, and the texts, each with a 0 at its end. The library follows its indices without checks.

/// The longest charsmap in bytes. Those of published models have at most 320 KB.
const MAX_BYTES: usize = 16 << 20;

/// The longest text that replaces a character.
const MAX_TEXT: usize = 256;

/// Checks a charsmap in base 64, and returns the most bytes that it makes of a byte. The error is the problem.
pub(super) fn growth(charsmap: &str) -> Result<usize, String> {
    let invalid = |problem: &str| format!("precompiled_charsmap {problem}");
    if charsmap.len() / 4 * 3 > MAX_BYTES {
        return Err(invalid(&format!("has more than the {MAX_BYTES} bytes allowed")));
    }
    let bytes = decoded(charsmap).ok_or_else(|| invalid("is not base 64"))?;
    // The library takes an empty one as a failure of its own.
    let Some((size, rest)) = bytes.split_first_chunk::<4>() else { return Ok(1) };
    let size = u32::from_le_bytes(*size) as usize;
    let units = rest.get(..size / 4 * 4).ok_or_else(|| {
        invalid(&format!("declares a trie of {size} bytes, but only {} follow", rest.len()))
    })?;
    let texts =
        std::str::from_utf8(&rest[units.len()..]).map_err(|_| invalid("has texts that are not UTF-8"))?;
    let units = units.as_chunks::<4>().0.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
    Trie { units, texts }.growth().map_err(|problem| invalid(&problem))
}

/// A double-array trie, as [darts-clone](https://github.com/s-yata/darts-clone) builds it.
struct Trie<'a> {
    units: Vec<u32>,
    texts: &'a str,
}

impl Trie<'_> {
    /// Visits all that the library can reach. A place is visited once: from its shortest key, since the search is by
    /// levels.
    fn growth(&self) -> Result<usize, String> {
        let root = self.units.first().ok_or("has no trie")?;
        let mut growth = 1;
        let mut visited = vec![false; self.units.len()];
        let mut level = vec![offset(*root)];
        for depth in 1.. {
            let mut next = Vec::new();
            for base in level {
                for label in 1..=0xFF {
                    let at = base ^ label;
                    let unit = *self.units.get(at).ok_or_else(|| outside(at, self.units.len()))?;
                    if unit & (1 << 31 | 0xFF) != label as u32 || std::mem::replace(&mut visited[at], true) {
                        continue;
                    }
                    let child = at ^ offset(unit);
                    if unit >> 8 & 1 == 1 {
                        growth = growth.max(self.text_at(child)?.div_ceil(depth));
                    }
                    next.push(child);
                }
            }
            if next.is_empty() {
                break;
            }
            level = next;
        }
        Ok(growth)
    }

    /// The length of the text that a leaf names.
    fn text_at(&self, leaf: usize) -> Result<usize, String> {
        let unit = self.units.get(leaf).ok_or_else(|| outside(leaf, self.units.len()))?;
        let start = (unit & !(1 << 31)) as usize;
        let text = self.texts.get(start..).ok_or_else(|| {
            format!("names a text at byte {start}, which is no character of its {} bytes", self.texts.len())
        })?;
        let length = text.find('\0').unwrap_or(text.len());
        match length > MAX_TEXT {
            true => Err(format!("replaces a character by {length} bytes, more than the {MAX_TEXT} allowed")),
            false => Ok(length),
        }
    }
}

fn outside(at: usize, units: usize) -> String {
    format!("has a trie that refers to unit {at} of {units}")
}

/// The distance from a unit to its children, which the library combines by exclusive or.
fn offset(unit: u32) -> usize {
    ((unit >> 10) as usize) << ((unit & 1 << 9) >> 6)
}

/// Decodes the standard alphabet of base 64 with padding.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    if !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    let (mut bits, mut held) = (0u32, 0);
    for digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{decoded, growth};

    fn charsmap(units: &[u32], texts: &str) -> String {
        let size = (units.len() * 4) as u32;
        let units = units.iter().flat_map(|unit| unit.to_le_bytes());
        let bytes: Vec<u8> = size.to_le_bytes().into_iter().chain(units).chain(texts.bytes()).collect();
        encoded(&bytes)
    }

    fn encoded(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        bytes
            .chunks(3)
            .flat_map(|three| {
                let bits = three.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte))
                    << (8 * (3 - three.len()));
                let digit = move |place: usize| match place <= three.len() {
                    true => char::from(DIGITS[(bits >> (18 - 6 * place) & 63) as usize]),
                    false => '=',
                };
                (0..4).map(digit)
            })
            .collect()
    }

    /// A trie with the key `a`, whose leaf is unit 1.
    fn trie(leaf: u32) -> Vec<u32> {
        let mut units = vec![0; 256];
        // The child is at `97 ^ 96 = 1`.
        units[usize::from(b'a')] = 96 << 10 | 1 << 8 | u32::from(b'a');
        units[1] = 1 << 31 | leaf;
        units
    }

    #[test]
    fn base_64_is_decoded() {
        for length in 0..20 {
            let bytes: Vec<u8> =
                (0..length).map(|byte: u8| byte.wrapping_mul(37).wrapping_add(200)).collect();
            assert_eq!(decoded(&encoded(&bytes)).unwrap(), bytes);
        }
        for text in ["a", "a===", "ab=", "a?==", "====="] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }

    #[test]
    fn tries_are_checked() {
        assert_eq!(growth(&charsmap(&trie(0), "bcd\0")), Ok(3));
        assert_eq!(growth(&charsmap(&trie(4), "bcd\0")), Ok(1));
        assert_eq!(growth(&charsmap(&trie(0), &"b".repeat(256))), Ok(256));
        let error = |charsmap: String| growth(&charsmap).unwrap_err();
        assert!(error(charsmap(&trie(5), "bcd\0")).contains("names a text at byte 5"));
        assert!(error(charsmap(&trie(1), "é\0")).contains("no character"));
        assert!(error(charsmap(&trie(0), &"b".repeat(257))).contains("257 bytes, more than the 256 allowed"));
        assert!(error(charsmap(&trie(0)[..200], "")).contains("refers to unit"));
        assert!(error(charsmap(&[0; 255], "")).contains("refers to unit 255 of 255"));
        assert!(
            error("/////w==".to_owned()).contains("declares a trie of 4294967295 bytes, but only 0 follow")
        );
        assert!(error("abc".to_owned()).contains("is not base 64"));
        // A trie whose units refer to one another in a circle.
        let mut units = trie(0);
        units[usize::from(b'a')] = u32::from(b'a') << 10 | u32::from(b'a');
        assert_eq!(growth(&charsmap(&units, "")), Ok(1));
    }
}
