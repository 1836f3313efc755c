//! The metadata of a GGUF file: typed values by key.

use std::collections::BTreeMap;
use std::fmt;

/// Longest array that is printed in full.
const PRINTED: usize = 16;

/// A value of the metadata of a GGUF file.
#[derive(Clone, Debug, PartialEq)]
pub enum MetadataValue {
    /// An unsigned 8-bit integer.
    U8(u8),
    /// A signed 8-bit integer.
    I8(i8),
    /// An unsigned 16-bit integer.
    U16(u16),
    /// A signed 16-bit integer.
    I16(i16),
    /// An unsigned 32-bit integer.
    U32(u32),
    /// A signed 32-bit integer.
    I32(i32),
    /// An unsigned 64-bit integer.
    U64(u64),
    /// A signed 64-bit integer.
    I64(i64),
    /// A 32-bit float.
    F32(f32),
    /// A 64-bit float.
    F64(f64),
    /// A boolean.
    Bool(bool),
    /// A string.
    String(String),
    /// An array of values of one type.
    Array(MetadataArray),
}

/// An array in the metadata of a GGUF file: values of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum MetadataArray {
    /// Unsigned 8-bit integers.
    U8(Vec<u8>),
    /// Signed 8-bit integers.
    I8(Vec<i8>),
    /// Unsigned 16-bit integers.
    U16(Vec<u16>),
    /// Signed 16-bit integers.
    I16(Vec<i16>),
    /// Unsigned 32-bit integers.
    U32(Vec<u32>),
    /// Signed 32-bit integers.
    I32(Vec<i32>),
    /// Unsigned 64-bit integers.
    U64(Vec<u64>),
    /// Signed 64-bit integers.
    I64(Vec<i64>),
    /// 32-bit floats.
    F32(Vec<f32>),
    /// 64-bit floats.
    F64(Vec<f64>),
    /// Booleans.
    Bool(Vec<bool>),
    /// Strings.
    String(Vec<String>),
    /// Arrays, each with elements of its own type.
    Array(Vec<MetadataArray>),
}

/// The metadata of a GGUF file: values by key, in the order of the file.
///
/// The getters convert between widths: [`u64`](Metadata::u64) returns an integer of any width. They return `None` if
/// there is no such key or its value is of another kind.
///
/// ```
/// use kiln_store::gguf::Metadata;
///
/// let mut metadata = Metadata::new();
/// metadata.insert("general.architecture", "llama");
/// metadata.insert("llama.block_count", 30u32);
/// assert_eq!(metadata.str("general.architecture"), Some("llama"));
/// assert_eq!(metadata.u64("llama.block_count"), Some(30));
/// assert_eq!(metadata.u64("general.architecture"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(String, MetadataValue)>,
    /// Index into `entries` of each key.
    places: BTreeMap<String, usize>,
}

impl Metadata {
    /// Returns metadata without entries.
    pub fn new() -> Metadata {
        Metadata::default()
    }

    /// Sets a value. A key that exists keeps its position; the old value is returned.
    pub fn insert(
        &mut self,
        key: impl Into<String>,
        value: impl Into<MetadataValue>,
    ) -> Option<MetadataValue> {
        let (key, value) = (key.into(), value.into());
        if let Some(&place) = self.places.get(&key) {
            return Some(std::mem::replace(&mut self.entries[place].1, value));
        }
        self.places.insert(key.clone(), self.entries.len());
        self.entries.push((key, value));
        None
    }

    /// Removes a value and returns it. The others keep their order.
    pub fn remove(&mut self, key: &str) -> Option<MetadataValue> {
        let place = self.places.remove(key)?;
        self.places.values_mut().filter(|other| **other > place).for_each(|other| *other -= 1);
        Some(self.entries.remove(place).1)
    }

    /// Adds all entries of `other`. Its values replace those of equal keys.
    pub fn extend(&mut self, other: Metadata) {
        for (key, value) in other.entries {
            self.insert(key, value);
        }
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.places.get(key).map(|&place| &self.entries[place].1)
    }

    /// Returns whether the key exists.
    pub fn contains(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    /// Iterates over keys and values, in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &MetadataValue)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns an integer of any width that is not negative.
    pub fn u64(&self, key: &str) -> Option<u64> {
        self.get(key)?.as_u64()
    }

    /// Returns an integer of any width that fits `i64`.
    pub fn i64(&self, key: &str) -> Option<i64> {
        self.get(key)?.as_i64()
    }

    /// Returns a float of any width, rounded to `f32`.
    pub fn f32(&self, key: &str) -> Option<f32> {
        let value = self.get(key)?;
        if let MetadataValue::F32(x) = value { Some(*x) } else { value.as_f64().map(|x| x as f32) }
    }

    /// Returns a float of any width. Of an `f32`, it is the shortest decimal number that rounds to it: `1e-5` and not
    /// `9.999999747378752e-06`.
    pub fn f64(&self, key: &str) -> Option<f64> {
        self.get(key)?.as_f64()
    }

    /// Returns a boolean.
    pub fn bool(&self, key: &str) -> Option<bool> {
        if let MetadataValue::Bool(x) = self.get(key)? { Some(*x) } else { None }
    }

    /// Returns a string.
    pub fn str(&self, key: &str) -> Option<&str> {
        if let MetadataValue::String(x) = self.get(key)? { Some(x) } else { None }
    }

    /// Returns an array.
    pub fn array(&self, key: &str) -> Option<&MetadataArray> {
        if let MetadataValue::Array(x) = self.get(key)? { Some(x) } else { None }
    }

    /// Returns an array of strings.
    pub fn strings(&self, key: &str) -> Option<&[String]> {
        if let MetadataArray::String(x) = self.array(key)? { Some(x) } else { None }
    }

    /// Returns an array of integers of any width that fit `i64`.
    pub fn integers(&self, key: &str) -> Option<Vec<i64>> {
        self.array(key)?.integers()
    }

    /// Returns an array of floats of any width, rounded to `f32`.
    pub fn floats(&self, key: &str) -> Option<Vec<f32>> {
        self.array(key)?.floats()
    }
}

impl MetadataValue {
    /// Returns an integer of any width that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        if let MetadataValue::U64(x) = *self { Some(x) } else { u64::try_from(self.as_i64()?).ok() }
    }

    /// Returns an integer of any width that fits `i64`.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            MetadataValue::U8(x) => Some(x.into()),
            MetadataValue::I8(x) => Some(x.into()),
            MetadataValue::U16(x) => Some(x.into()),
            MetadataValue::I16(x) => Some(x.into()),
            MetadataValue::U32(x) => Some(x.into()),
            MetadataValue::I32(x) => Some(x.into()),
            MetadataValue::U64(x) => i64::try_from(x).ok(),
            MetadataValue::I64(x) => Some(x),
            MetadataValue::F32(_)
            | MetadataValue::F64(_)
            | MetadataValue::Bool(_)
            | MetadataValue::String(_)
            | MetadataValue::Array(_) => None,
        }
    }

    /// Returns a float of any width; see [`Metadata::f64`].
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            MetadataValue::F32(x) => Some(shortest(x)),
            MetadataValue::F64(x) => Some(x),
            MetadataValue::U8(_)
            | MetadataValue::I8(_)
            | MetadataValue::U16(_)
            | MetadataValue::I16(_)
            | MetadataValue::U32(_)
            | MetadataValue::I32(_)
            | MetadataValue::U64(_)
            | MetadataValue::I64(_)
            | MetadataValue::Bool(_)
            | MetadataValue::String(_)
            | MetadataValue::Array(_) => None,
        }
    }
}

/// The shortest decimal number that rounds to `x`.
fn shortest(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}

impl MetadataArray {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        match self {
            MetadataArray::U8(x) => x.len(),
            MetadataArray::I8(x) => x.len(),
            MetadataArray::U16(x) => x.len(),
            MetadataArray::I16(x) => x.len(),
            MetadataArray::U32(x) => x.len(),
            MetadataArray::I32(x) => x.len(),
            MetadataArray::U64(x) => x.len(),
            MetadataArray::I64(x) => x.len(),
            MetadataArray::F32(x) => x.len(),
            MetadataArray::F64(x) => x.len(),
            MetadataArray::Bool(x) => x.len(),
            MetadataArray::String(x) => x.len(),
            MetadataArray::Array(x) => x.len(),
        }
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns integers of any width that fit `i64`.
    pub fn integers(&self) -> Option<Vec<i64>> {
        match self {
            MetadataArray::U8(x) => Some(x.iter().map(|&x| x.into()).collect()),
            MetadataArray::I8(x) => Some(x.iter().map(|&x| x.into()).collect()),
            MetadataArray::U16(x) => Some(x.iter().map(|&x| x.into()).collect()),
            MetadataArray::I16(x) => Some(x.iter().map(|&x| x.into()).collect()),
            MetadataArray::U32(x) => Some(x.iter().map(|&x| x.into()).collect()),
            MetadataArray::I32(x) => Some(x.iter().map(|&x| x.into()).collect()),
            MetadataArray::U64(x) => x.iter().map(|&x| i64::try_from(x).ok()).collect(),
            MetadataArray::I64(x) => Some(x.clone()),
            MetadataArray::F32(_)
            | MetadataArray::F64(_)
            | MetadataArray::Bool(_)
            | MetadataArray::String(_)
            | MetadataArray::Array(_) => None,
        }
    }

    /// Returns floats of any width, rounded to `f32`.
    pub fn floats(&self) -> Option<Vec<f32>> {
        match self {
            MetadataArray::F32(x) => Some(x.clone()),
            MetadataArray::F64(x) => Some(x.iter().map(|&x| x as f32).collect()),
            MetadataArray::U8(_)
            | MetadataArray::I8(_)
            | MetadataArray::U16(_)
            | MetadataArray::I16(_)
            | MetadataArray::U32(_)
            | MetadataArray::I32(_)
            | MetadataArray::U64(_)
            | MetadataArray::I64(_)
            | MetadataArray::Bool(_)
            | MetadataArray::String(_)
            | MetadataArray::Array(_) => None,
        }
    }

    /// The plural of the type of the elements.
    fn kind(&self) -> &'static str {
        match self {
            MetadataArray::U8(_)
            | MetadataArray::I8(_)
            | MetadataArray::U16(_)
            | MetadataArray::I16(_)
            | MetadataArray::U32(_)
            | MetadataArray::I32(_)
            | MetadataArray::U64(_)
            | MetadataArray::I64(_) => "integers",
            MetadataArray::F32(_) | MetadataArray::F64(_) => "floats",
            MetadataArray::Bool(_) => "booleans",
            MetadataArray::String(_) => "strings",
            MetadataArray::Array(_) => "arrays",
        }
    }
}

/// Prints the value. Arrays of more than 16 elements are abbreviated: `[49152 strings]`.
impl fmt::Display for MetadataValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetadataValue::U8(x) => x.fmt(f),
            MetadataValue::I8(x) => x.fmt(f),
            MetadataValue::U16(x) => x.fmt(f),
            MetadataValue::I16(x) => x.fmt(f),
            MetadataValue::U32(x) => x.fmt(f),
            MetadataValue::I32(x) => x.fmt(f),
            MetadataValue::U64(x) => x.fmt(f),
            MetadataValue::I64(x) => x.fmt(f),
            MetadataValue::F32(x) => fmt::Debug::fmt(x, f),
            MetadataValue::F64(x) => fmt::Debug::fmt(x, f),
            MetadataValue::Bool(x) => x.fmt(f),
            MetadataValue::String(x) => x.fmt(f),
            MetadataValue::Array(x) => x.fmt(f),
        }
    }
}

/// Prints the elements. Arrays of more than 16 elements are abbreviated: `[49152 strings]`.
impl fmt::Display for MetadataArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.len() > PRINTED {
            return write!(f, "[{} {}]", self.len(), self.kind());
        }
        match self {
            MetadataArray::U8(x) => print_list(f, x),
            MetadataArray::I8(x) => print_list(f, x),
            MetadataArray::U16(x) => print_list(f, x),
            MetadataArray::I16(x) => print_list(f, x),
            MetadataArray::U32(x) => print_list(f, x),
            MetadataArray::I32(x) => print_list(f, x),
            MetadataArray::U64(x) => print_list(f, x),
            MetadataArray::I64(x) => print_list(f, x),
            MetadataArray::F32(x) => fmt::Debug::fmt(x, f),
            MetadataArray::F64(x) => fmt::Debug::fmt(x, f),
            MetadataArray::Bool(x) => print_list(f, x),
            MetadataArray::String(x) => print_list(f, x),
            MetadataArray::Array(x) => print_list(f, x),
        }
    }
}

fn print_list(f: &mut fmt::Formatter<'_>, list: &[impl fmt::Display]) -> fmt::Result {
    f.write_str("[")?;
    for (place, element) in list.iter().enumerate() {
        let separator = if place > 0 { ", " } else { "" };
        write!(f, "{separator}{element}")?;
    }
    f.write_str("]")
}

macro_rules! from {
    ($($variant:ident $ty:ty),*) => {
        $(impl From<$ty> for MetadataValue {
            fn from(x: $ty) -> MetadataValue {
                MetadataValue::$variant(x)
            }
        }

        impl From<Vec<$ty>> for MetadataArray {
            fn from(x: Vec<$ty>) -> MetadataArray {
                MetadataArray::$variant(x)
            }
        }

        impl From<Vec<$ty>> for MetadataValue {
            fn from(x: Vec<$ty>) -> MetadataValue {
                MetadataValue::Array(x.into())
            }
        })*
    };
}

from!(U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, U64 u64, I64 i64, F32 f32, F64 f64, Bool bool,
    String String, Array MetadataArray);

impl From<&str> for MetadataValue {
    fn from(x: &str) -> MetadataValue {
        MetadataValue::String(x.to_owned())
    }
}
