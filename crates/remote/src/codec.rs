//! How messages become bytes: a header in [postcard](https://postcard.jamesmunns.com), followed by raw bytes of tensors.
//!
//! Decoding never panics. A length is compared with its bound before memory is allocated for it, and a message is never
//! longer than [`MAX_FRAME`], which the transport enforces before it buffers one.

use kiln_ir::{Error, Result};
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// The longest frame, in bytes.
pub const MAX_FRAME: usize = 1 << 20;

/// The longest first frame of a connection, in bytes: nobody has shown a token yet.
pub const MAX_HELLO: usize = 4096;

/// The most bytes of a tensor in one message. A larger tensor is sent in several.
pub const CHUNK: usize = 512 << 10;

/// Returns a header and the bytes that follow it as one message.
///
/// # Errors
/// When the header cannot be serialised, or the message would be longer than [`MAX_FRAME`].
pub fn encode<T: Serialize>(header: &T, tail: &[u8]) -> Result<Vec<u8>> {
    encode_parts(header, &[tail])
}

/// As [`encode`], where the bytes that follow are in several places.
pub(crate) fn encode_parts<T: Serialize>(header: &T, parts: &[&[u8]]) -> Result<Vec<u8>> {
    let bytes = Vec::with_capacity(parts.iter().map(|part| part.len()).sum::<usize>() + 64);
    let mut bytes = postcard::to_extend(header, bytes)
        .map_err(|error| Error::value("remote", format!("a message cannot be encoded: {error}")))?;
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    if bytes.len() > MAX_FRAME {
        let problem = format!("a message of {} bytes is longer than {MAX_FRAME}", bytes.len());
        return Err(Error::value("remote", problem).hint("split the op in several of fewer operands"));
    }
    Ok(bytes)
}

/// Returns the header of a message, and the bytes that follow it.
///
/// # Errors
/// When the message is too long, truncated, or no message of this kind.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8])> {
    if bytes.len() > MAX_FRAME {
        return Err(malformed(format!("{} bytes are longer than {MAX_FRAME}", bytes.len())));
    }
    postcard::take_from_bytes(bytes).map_err(|error| malformed(error.to_string()))
}

/// Returns the header of a message that has no bytes behind it.
///
/// # Errors
/// As [`decode`], and when bytes follow.
pub fn decode_all<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T> {
    match decode(bytes)? {
        (header, []) => Ok(header),
        (_, rest) => Err(malformed(format!("{} bytes follow the message", rest.len()))),
    }
}

/// Returns the error of a message that breaks the protocol.
pub fn malformed(problem: impl fmt::Display) -> Error {
    Error::value("remote", format!("a malformed message: {problem}"))
        .hint("client and server must be of the same version of Kiln")
}

/// Reads a list of at most `N` elements.
pub(crate) fn bounded<'de, D, T, const N: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(Bounded::<T, N>(PhantomData))
}

struct Bounded<T, const N: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for Bounded<T, N> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {N} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Vec<T>, A::Error> {
        if sequence.size_hint().is_some_and(|length| length > N) {
            return Err(A::Error::custom("a list is longer than its bound"));
        }
        let mut list = Vec::new();
        while let Some(element) = sequence.next_element()? {
            if list.len() == N {
                return Err(A::Error::custom("a list is longer than its bound"));
            }
            list.push(element);
        }
        Ok(list)
    }
}

/// A type that is written as bytes of a known length, so that it can be looked at before it is read.
pub(crate) fn serialize_nested<T: Serialize, S: Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let bytes = postcard::to_stdvec(value).map_err(serde::ser::Error::custom)?;
    serializer.serialize_bytes(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_header_and_bytes() {
        let bytes = encode(&(7u32, "seven"), &[1, 2, 3]).unwrap();
        let (header, tail) = decode::<(u32, &str)>(&bytes).unwrap();
        assert_eq!((header, tail), ((7, "seven"), &[1u8, 2, 3][..]));
        assert!(decode_all::<(u32, &str)>(&bytes).unwrap_err().to_string().contains("3 bytes follow"));
    }

    #[test]
    fn nothing_is_longer_than_a_frame() {
        assert!(encode(&0u8, &vec![0; MAX_FRAME]).unwrap_err().to_string().contains("longer than"));
        assert!(decode::<u8>(&vec![0; MAX_FRAME + 1]).is_err());
    }

    #[test]
    fn lists_are_bounded_before_they_are_read() {
        #[derive(serde::Deserialize, Debug)]
        struct Few(#[serde(deserialize_with = "bounded::<_, _, 3>")] Vec<u64>);
        assert_eq!(decode_all::<Few>(&[3, 1, 2, 3]).unwrap().0, [1, 2, 3]);
        assert!(decode_all::<Few>(&[4, 1, 2, 3, 4]).is_err());
        // A length of 2^63, and nothing behind it.
        assert!(decode_all::<Few>(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1]).is_err());
    }
}
