//! MessagePack as a tree, for the readers of Flax and Burn files.
//!
//! Binary data stay where they are: the tree holds their ranges. The depth and the number of values are bounded, and
//! every length is checked against the end of the file, so that the tree is never much larger than a file of weights
//! justifies. Source of the format: <https://github.com/msgpack/msgpack/blob/master/spec.md>.

use std::ops::Range;
use std::path::Path;

use kiln_tensor::{MAX_RANK, Shape};
use rmp::Marker;

use crate::error::{Result, StoreError};

/// Limit on the nesting of arrays and maps. Models nest their modules 10 or 20 levels deep.
const MAX_DEPTH: usize = 64;

/// Limit on the number of values in a tree. An array of numbers is one value.
const MAX_VALUES: usize = 1 << 20;

/// A value.
#[derive(Debug)]
pub(crate) enum Value {
    Nil,
    Number(Number),
    Text(String),
    /// Binary data at this range of the file.
    Binary(Range<u64>),
    /// The data of an extension type at this range of the file.
    Extension(i8, Range<u64>),
    /// An array of numbers only, which may be long.
    Numbers(Numbers),
    Array(Vec<Value>),
    /// The entries in the order of the file. Keys that are integers are in decimal.
    Map(Vec<(String, Value)>),
}

/// A number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
}

/// An array of numbers.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub(crate) count: usize,
    range: Range<u64>,
}

impl Value {
    /// Parses the value that fills a range of a file. `path` is for messages.
    ///
    /// # Errors
    /// When the range is not one value of MessagePack, nests too deep, or has too many values.
    pub(crate) fn parse(path: &Path, bytes: &[u8], range: Range<u64>) -> Result<Value> {
        let mut parser = Parser::new(path, bytes, range)?;
        let value = parser.value(0)?;
        match parser.remaining() {
            0 => Ok(value),
            left => Err(parser.error(format!("{left} bytes follow the value"))),
        }
    }

    /// The entry of a map; `None` if the value is not a map, or has no such key.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Map(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            Value::Nil
            | Value::Number(_)
            | Value::Text(_)
            | Value::Binary(_)
            | Value::Extension(..)
            | Value::Numbers(_)
            | Value::Array(_) => None,
        }
    }

    /// The text; `None` of other values.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            Value::Nil
            | Value::Number(_)
            | Value::Binary(_)
            | Value::Extension(..)
            | Value::Numbers(_)
            | Value::Array(_)
            | Value::Map(_) => None,
        }
    }
}

impl Number {
    /// The number as an index or a length; `None` of negative numbers, floats and `bool`.
    pub(crate) fn length(self) -> Option<usize> {
        match self {
            Number::Unsigned(number) => usize::try_from(number).ok(),
            Number::Signed(number) => usize::try_from(number).ok(),
            Number::Bool(_) | Number::Float(_) => None,
        }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Number::Bool(value) => value.fmt(f),
            Number::Signed(value) => value.fmt(f),
            Number::Unsigned(value) => value.fmt(f),
            Number::Float(value) => value.fmt(f),
        }
    }
}

impl Numbers {
    /// Where the numbers start in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.range.start
    }

    /// Reads the numbers.
    pub(crate) fn read(&self, path: &Path, bytes: &[u8]) -> Result<Vec<Number>> {
        let mut parser = Parser::new(path, bytes, self.range.clone())?;
        (0..self.count).map(|_| parser.number()).collect()
    }

    /// Reads the numbers as the lengths of a shape.
    ///
    /// # Errors
    /// When there are more than [`MAX_RANK`], or one is not a length.
    pub(crate) fn shape(&self, path: &Path, bytes: &[u8]) -> Result<Shape> {
        if self.count > MAX_RANK {
            let problem =
                format!("a tensor has {} dimensions, more than the {MAX_RANK} supported", self.count);
            return Err(StoreError::malformed(path, self.offset(), problem));
        }
        let lengths = self.read(path, bytes)?.into_iter().map(|number| {
            let problem = || format!("a shape contains {number}, which is not a length");
            number.length().ok_or_else(|| StoreError::malformed(path, self.offset(), problem()))
        });
        Ok(Shape::new(&lengths.collect::<Result<Vec<usize>>>()?))
    }
}

struct Parser<'a> {
    path: &'a Path,
    /// The file up to the end of the value.
    bytes: &'a [u8],
    at: usize,
    values: usize,
}

impl<'a> Parser<'a> {
    fn new(path: &'a Path, bytes: &'a [u8], range: Range<u64>) -> Result<Parser<'a>> {
        let bounds = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
        match bounds {
            Some((at, end)) if at <= end && end <= bytes.len() => {
                Ok(Parser { path, bytes: &bytes[..end], at, values: 0 })
            }
            Some(_) | None => {
                let problem = format!("bytes {}..{} are outside of the file", range.start, range.end);
                Err(StoreError::malformed(path, bytes.len() as u64, problem))
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        if depth > MAX_DEPTH {
            return Err(self.error(format!("values nest more than {MAX_DEPTH} levels deep")));
        }
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(self.error(format!("the file has more than {MAX_VALUES} values")));
        }
        let start = self.at;
        match self.marker()? {
            Marker::Null => Ok(Value::Nil),
            Marker::FixStr(length) => self.text(length.into()),
            Marker::Str8 => self.length::<1>().and_then(|length| self.text(length)),
            Marker::Str16 => self.length::<2>().and_then(|length| self.text(length)),
            Marker::Str32 => self.length::<4>().and_then(|length| self.text(length)),
            Marker::Bin8 => self.length::<1>().and_then(|length| self.binary(length)),
            Marker::Bin16 => self.length::<2>().and_then(|length| self.binary(length)),
            Marker::Bin32 => self.length::<4>().and_then(|length| self.binary(length)),
            Marker::FixExt1 => self.extension(1),
            Marker::FixExt2 => self.extension(2),
            Marker::FixExt4 => self.extension(4),
            Marker::FixExt8 => self.extension(8),
            Marker::FixExt16 => self.extension(16),
            Marker::Ext8 => self.length::<1>().and_then(|length| self.extension(length)),
            Marker::Ext16 => self.length::<2>().and_then(|length| self.extension(length)),
            Marker::Ext32 => self.length::<4>().and_then(|length| self.extension(length)),
            Marker::FixArray(length) => self.array(length.into(), depth),
            Marker::Array16 => self.length::<2>().and_then(|length| self.array(length, depth)),
            Marker::Array32 => self.length::<4>().and_then(|length| self.array(length, depth)),
            Marker::FixMap(length) => self.map(length.into(), depth),
            Marker::Map16 => self.length::<2>().and_then(|length| self.map(length, depth)),
            Marker::Map32 => self.length::<4>().and_then(|length| self.map(length, depth)),
            Marker::FixPos(_)
            | Marker::FixNeg(_)
            | Marker::False
            | Marker::True
            | Marker::U8
            | Marker::U16
            | Marker::U32
            | Marker::U64
            | Marker::I8
            | Marker::I16
            | Marker::I32
            | Marker::I64
            | Marker::F32
            | Marker::F64 => {
                self.at = start;
                self.number().map(Value::Number)
            }
            Marker::Reserved => {
                self.at = start;
                Err(self.error("the byte 0xc1 starts no value"))
            }
        }
    }

    fn number(&mut self) -> Result<Number> {
        let start = self.at;
        let signed = |number: i64| Ok(Number::Signed(number));
        match self.marker()? {
            Marker::FixPos(number) => Ok(Number::Unsigned(number.into())),
            Marker::FixNeg(number) => signed(number.into()),
            Marker::False => Ok(Number::Bool(false)),
            Marker::True => Ok(Number::Bool(true)),
            Marker::U8 => Ok(Number::Unsigned(u8::from_be_bytes(self.array_of()?).into())),
            Marker::U16 => Ok(Number::Unsigned(u16::from_be_bytes(self.array_of()?).into())),
            Marker::U32 => Ok(Number::Unsigned(u32::from_be_bytes(self.array_of()?).into())),
            Marker::U64 => Ok(Number::Unsigned(u64::from_be_bytes(self.array_of()?))),
            Marker::I8 => signed(i8::from_be_bytes(self.array_of()?).into()),
            Marker::I16 => signed(i16::from_be_bytes(self.array_of()?).into()),
            Marker::I32 => signed(i32::from_be_bytes(self.array_of()?).into()),
            Marker::I64 => signed(i64::from_be_bytes(self.array_of()?)),
            Marker::F32 => Ok(Number::Float(f32::from_be_bytes(self.array_of()?).into())),
            Marker::F64 => Ok(Number::Float(f64::from_be_bytes(self.array_of()?))),
            Marker::Null
            | Marker::Reserved
            | Marker::FixStr(_)
            | Marker::Str8
            | Marker::Str16
            | Marker::Str32
            | Marker::Bin8
            | Marker::Bin16
            | Marker::Bin32
            | Marker::FixExt1
            | Marker::FixExt2
            | Marker::FixExt4
            | Marker::FixExt8
            | Marker::FixExt16
            | Marker::Ext8
            | Marker::Ext16
            | Marker::Ext32
            | Marker::FixArray(_)
            | Marker::Array16
            | Marker::Array32
            | Marker::FixMap(_)
            | Marker::Map16
            | Marker::Map32 => {
                self.at = start;
                Err(self.error("expected a number"))
            }
        }
    }

    fn array(&mut self, length: usize, depth: usize) -> Result<Value> {
        self.check_count(length, 1)?;
        let start = self.at;
        // A value that is not a number ends this loop; the elements are then parsed one by one.
        if (0..length).all(|_| self.number().is_ok()) {
            let range = start as u64..self.at as u64;
            return Ok(Value::Numbers(Numbers { count: length, range }));
        }
        self.at = start;
        (0..length).map(|_| self.value(depth + 1)).collect::<Result<Vec<Value>>>().map(Value::Array)
    }

    fn map(&mut self, length: usize, depth: usize) -> Result<Value> {
        self.check_count(length, 2)?;
        let mut entries = Vec::new();
        for _ in 0..length {
            let start = self.at;
            let key = match self.value(depth + 1)? {
                Value::Text(key) => key,
                Value::Number(key @ (Number::Signed(_) | Number::Unsigned(_))) => key.to_string(),
                Value::Nil
                | Value::Number(Number::Bool(_) | Number::Float(_))
                | Value::Binary(_)
                | Value::Extension(..)
                | Value::Numbers(_)
                | Value::Array(_)
                | Value::Map(_) => {
                    self.at = start;
                    return Err(self.error("a key of a map is neither text nor an integer"));
                }
            };
            entries.push((key, self.value(depth + 1)?));
        }
        Ok(Value::Map(entries))
    }

    fn text(&mut self, length: usize) -> Result<Value> {
        let range = self.take(length)?;
        match std::str::from_utf8(&self.bytes[range.clone()]) {
            Ok(text) => Ok(Value::Text(text.to_owned())),
            Err(_) => {
                self.at = range.start;
                Err(self.error("a text is not UTF-8"))
            }
        }
    }

    fn binary(&mut self, length: usize) -> Result<Value> {
        self.take(length).map(|range| Value::Binary(range.start as u64..range.end as u64))
    }

    fn extension(&mut self, length: usize) -> Result<Value> {
        let kind = i8::from_be_bytes(self.array_of()?);
        self.take(length).map(|range| Value::Extension(kind, range.start as u64..range.end as u64))
    }

    /// Checks that the file can hold that many elements of at least `bytes` bytes.
    fn check_count(&self, count: usize, bytes: usize) -> Result<()> {
        match count.checked_mul(bytes) {
            Some(needed) if needed <= self.remaining() => Ok(()),
            Some(_) | None => {
                Err(self
                    .error(format!("{count} elements are declared, but {} bytes remain", self.remaining())))
            }
        }
    }

    fn marker(&mut self) -> Result<Marker> {
        self.array_of::<1>().map(|[byte]| Marker::from_u8(byte))
    }

    /// A length of `N` bytes, big-endian.
    fn length<const N: usize>(&mut self) -> Result<usize> {
        let bytes: [u8; N] = self.array_of()?;
        Ok(bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)))
    }

    fn array_of<const N: usize>(&mut self) -> Result<[u8; N]> {
        let range = self.take(N)?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.bytes[range]);
        Ok(bytes)
    }

    fn take(&mut self, length: usize) -> Result<Range<usize>> {
        if length > self.remaining() {
            let problem = format!("a value of {length} bytes is cut off: {} bytes remain", self.remaining());
            return Err(self.error(problem));
        }
        let start = self.at;
        self.at += length;
        Ok(start..self.at)
    }

    fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn error(&self, problem: impl Into<String>) -> StoreError {
        StoreError::malformed(self.path, self.at as u64, problem)
    }
}
