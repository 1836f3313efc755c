//! The types of metadata values.

use std::fmt;

use super::header::Reader;
use crate::error::Result;

/// The kind of integers of any width.
const INTEGERS: &str = "integers";

/// The kind of floats of any width.
const FLOATS: &str = "floats";

/// Longest array that is printed in full.
const PRINTED: usize = 16;

/// A type of metadata values.
pub(super) trait MetadataType: fmt::Display + Sized {
    /// The code in files.
    const CODE: u32;
    /// The plural of the kind.
    const KIND: &'static str;
    /// The minimum number of bytes of a value in a file.
    const MIN_BYTES: u64 = size_of::<Self>() as u64;

    /// Reads a value. `depth` counts the arrays around an array, and itself.
    fn read(reader: &mut Reader<'_>, key: &str, depth: usize) -> Result<Self>;

    /// Appends the bytes of the value.
    fn put(&self, out: &mut Vec<u8>);

    /// Returns an integer of any width that fits `i64`.
    fn integer(&self) -> Option<i64> {
        None
    }

    /// Returns a float of any width; of an `f32`, the shortest decimal number that rounds to it.
    fn float(&self) -> Option<f64> {
        None
    }

    /// Returns a float of any width, rounded to `f32`.
    fn rounded(&self) -> Option<f32> {
        None
    }

    /// Prints the value.
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt(f)
    }

    /// Prints the elements of an array.
    fn print_all(list: &[Self], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (place, element) in list.iter().enumerate() {
            let separator = if place > 0 { ", " } else { "" };
            write!(f, "{separator}{element}")?;
        }
        f.write_str("]")
    }
}

macro_rules! numbers {
    ($kind:ident: $($ty:ident $code:literal { $($method:item)* })*) => {$(
        impl MetadataType for $ty {
            const CODE: u32 = $code;
            const KIND: &'static str = $kind;

            fn read(reader: &mut Reader<'_>, key: &str, _depth: usize) -> Result<$ty> {
                Ok($ty::from_le_bytes(reader.number(key)?))
            }

            fn put(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }

            $($method)*
        }
    )*};
}

macro_rules! integers {
    ($($ty:ident $code:literal)*) => {
        numbers! {
            INTEGERS: $($ty $code {
                fn integer(&self) -> Option<i64> {
                    i64::try_from(*self).ok()
                }
            })*
        }
    };
}

macro_rules! floats {
    ($($ty:ident $code:literal $float:ident)*) => {
        numbers! {
            FLOATS: $($ty $code {
                fn float(&self) -> Option<f64> {
                    Some($float(*self))
                }

                fn rounded(&self) -> Option<f32> {
                    Some(*self as f32)
                }

                fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    fmt::Debug::fmt(self, f)
                }

                fn print_all(list: &[Self], f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    fmt::Debug::fmt(list, f)
                }
            })*
        }
    };
}

integers! { u8 0 i8 1 u16 2 i16 3 u32 4 i32 5 u64 10 i64 11 }

floats! { f32 6 shortest f64 12 identity }

/// Returns the shortest decimal number that rounds to `x`.
fn shortest(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}

fn identity(x: f64) -> f64 {
    x
}

impl MetadataType for bool {
    const CODE: u32 = 7;
    const KIND: &'static str = "booleans";

    fn read(reader: &mut Reader<'_>, key: &str, _depth: usize) -> Result<bool> {
        reader.boolean(key)
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }
}

impl MetadataType for String {
    const CODE: u32 = 8;
    const KIND: &'static str = "strings";
    const MIN_BYTES: u64 = 8;

    fn read(reader: &mut Reader<'_>, key: &str, _depth: usize) -> Result<String> {
        reader.string(key)
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_string(out, self);
    }
}

/// Appends the length and the bytes of a text.
pub(super) fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

impl MetadataType for MetadataArray {
    const CODE: u32 = 9;
    const KIND: &'static str = "arrays";
    const MIN_BYTES: u64 = 12;

    fn read(reader: &mut Reader<'_>, key: &str, depth: usize) -> Result<MetadataArray> {
        reader.array(key, depth)
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.put_elements(out);
    }
}

/// Defines values and arrays, and their methods that depend on the type.
macro_rules! variants {
    ($($variant:ident $ty:ty, $value:literal, $list:literal;)*) => {
        /// A value of the metadata of a GGUF file.
        #[derive(Clone, Debug, PartialEq)]
        pub enum MetadataValue {
            $(
                #[doc = $value]
                $variant($ty),
            )*
        }

        /// An array in the metadata of a GGUF file: values of one type.
        #[derive(Clone, Debug, PartialEq)]
        pub enum MetadataArray {
            $(
                #[doc = $list]
                $variant(Vec<$ty>),
            )*
        }

        impl MetadataValue {
            /// Returns an integer of any width that fits `i64`.
            pub fn as_i64(&self) -> Option<i64> {
                match self {
                    $(MetadataValue::$variant(x) => x.integer(),)*
                }
            }

            /// Returns a float of any width; see [`Metadata::f64`](super::metadata::Metadata::f64).
            pub fn as_f64(&self) -> Option<f64> {
                match self {
                    $(MetadataValue::$variant(x) => x.float(),)*
                }
            }

            /// Returns a float of any width, rounded to `f32`.
            pub(super) fn as_f32(&self) -> Option<f32> {
                match self {
                    $(MetadataValue::$variant(x) => x.rounded(),)*
                }
            }

            /// Reads a value of the type with a code; `None` if there is no such type.
            pub(super) fn read(reader: &mut Reader<'_>, code: u32, key: &str) -> Result<Option<MetadataValue>> {
                Ok(Some(match code {
                    $(<$ty as MetadataType>::CODE => MetadataValue::$variant(<$ty>::read(reader, key, 1)?),)*
                    _ => return Ok(None),
                }))
            }

            /// Appends the type and the bytes of the value.
            pub(super) fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(MetadataValue::$variant(x) => {
                        out.extend(<$ty as MetadataType>::CODE.to_le_bytes());
                        x.put(out);
                    })*
                }
            }
        }

        impl MetadataArray {
            /// Returns the number of elements.
            pub fn len(&self) -> usize {
                match self {
                    $(MetadataArray::$variant(x) => x.len(),)*
                }
            }

            /// Returns whether there are no elements.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Returns integers of any width that fit `i64`.
            pub fn integers(&self) -> Option<Vec<i64>> {
                match self {
                    $(MetadataArray::$variant(x) if <$ty>::KIND == INTEGERS => {
                        x.iter().map(MetadataType::integer).collect()
                    })*
                    _ => None,
                }
            }

            /// Returns floats of any width, rounded to `f32`.
            pub fn floats(&self) -> Option<Vec<f32>> {
                match self {
                    $(MetadataArray::$variant(x) if <$ty>::KIND == FLOATS => {
                        x.iter().map(MetadataType::rounded).collect()
                    })*
                    _ => None,
                }
            }

            /// Reads `count` elements of the type with a code; `None` if there is no such type.
            pub(super) fn read_elements(
                reader: &mut Reader<'_>,
                (code, count): (u32, u64),
                key: &str,
                depth: usize,
            ) -> Result<Option<MetadataArray>> {
                Ok(Some(match code {
                    $(<$ty as MetadataType>::CODE => MetadataArray::$variant(reader.many(count, key, depth)?),)*
                    _ => return Ok(None),
                }))
            }

            fn put_elements(&self, out: &mut Vec<u8>) {
                match self {
                    $(MetadataArray::$variant(list) => {
                        out.extend(<$ty as MetadataType>::CODE.to_le_bytes());
                        out.extend((list.len() as u64).to_le_bytes());
                        list.iter().for_each(|x| x.put(out));
                    })*
                }
            }
        }

        /// Prints the value. Arrays of more than 16 elements are abbreviated: `[49152 strings]`.
        impl fmt::Display for MetadataValue {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(MetadataValue::$variant(x) => x.print(f),)*
                }
            }
        }

        /// Prints the elements. Arrays of more than 16 elements are abbreviated: `[49152 strings]`.
        impl fmt::Display for MetadataArray {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(MetadataArray::$variant(x) if x.len() > PRINTED => {
                        write!(f, "[{} {}]", x.len(), <$ty>::KIND)
                    }
                    MetadataArray::$variant(x) => MetadataType::print_all(x, f),)*
                }
            }
        }

        $(
            impl From<$ty> for MetadataValue {
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
            }
        )*
    };
}

variants! {
    U8 u8, "An unsigned 8-bit integer.", "Unsigned 8-bit integers.";
    I8 i8, "A signed 8-bit integer.", "Signed 8-bit integers.";
    U16 u16, "An unsigned 16-bit integer.", "Unsigned 16-bit integers.";
    I16 i16, "A signed 16-bit integer.", "Signed 16-bit integers.";
    U32 u32, "An unsigned 32-bit integer.", "Unsigned 32-bit integers.";
    I32 i32, "A signed 32-bit integer.", "Signed 32-bit integers.";
    U64 u64, "An unsigned 64-bit integer.", "Unsigned 64-bit integers.";
    I64 i64, "A signed 64-bit integer.", "Signed 64-bit integers.";
    F32 f32, "A 32-bit float.", "32-bit floats.";
    F64 f64, "A 64-bit float.", "64-bit floats.";
    Bool bool, "A boolean.", "Booleans.";
    String String, "A string.", "Strings.";
    Array MetadataArray, "An array of values of one type.", "Arrays, each with elements of its own type.";
}

impl From<&str> for MetadataValue {
    fn from(x: &str) -> MetadataValue {
        MetadataValue::String(x.to_owned())
    }
}
