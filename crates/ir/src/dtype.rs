//! Element types.

use core::fmt;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename = "dtype", rename_all = "lowercase")]
pub enum DType {
    /// IEEE 754 double precision.
    F64,
    /// IEEE 754 single precision: the default for floating-point tensors.
    F32,
    /// IEEE 754 half precision.
    F16,
    /// bfloat16: the upper half of an `f32`.
    BF16,
    /// Signed 64-bit integer.
    I64,
    /// Signed 32-bit integer: the default for integer tensors.
    I32,
    /// Signed 16-bit integer.
    I16,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 64-bit integer.
    U64,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 8-bit integer.
    U8,
    /// Boolean, stored as one byte with value 0 or 1.
    Bool,
}

impl DType {
    /// Every dtype, in declaration order.
    pub const ALL: [DType; 13] = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I64,
        DType::I32,
        DType::I16,
        DType::I8,
        DType::U64,
        DType::U32,
        DType::U16,
        DType::U8,
        DType::Bool,
    ];

    /// Returns the size of one element, in bytes.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            DType::F64 | DType::I64 | DType::U64 => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// Returns whether this is a floating-point type.
    #[inline]
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
    }

    /// Returns whether this is an integer type, signed or not. `Bool` is not.
    #[inline]
    pub const fn is_int(self) -> bool {
        self.is_signed_int() || self.is_unsigned_int()
    }

    /// Returns whether this is a signed integer type.
    #[inline]
    pub const fn is_signed_int(self) -> bool {
        matches!(self, DType::I64 | DType::I32 | DType::I16 | DType::I8)
    }

    /// Returns whether this is an unsigned integer type. `Bool` is not.
    #[inline]
    pub const fn is_unsigned_int(self) -> bool {
        matches!(self, DType::U64 | DType::U32 | DType::U16 | DType::U8)
    }

    /// Returns whether this is `Bool`.
    #[inline]
    pub const fn is_bool(self) -> bool {
        matches!(self, DType::Bool)
    }

    /// Returns the name used in messages and in the text form: `f32`, `bool` and so on.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::I16 => "i16",
            DType::I8 => "i8",
            DType::U64 => "u64",
            DType::U32 => "u32",
            DType::U16 => "u16",
            DType::U8 => "u8",
            DType::Bool => "bool",
        }
    }

    /// Parses a dtype [`name`](DType::name).
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Returns the promoted dtype of two dtypes: the smallest that can represent the values of both; floats represent
    /// all integers approximately. `None` if there is none: `u64` beside a signed integer.
    ///
    /// It is [PyTorch's table](https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc),
    /// extended to the unsigned integers of 16 bits and more. A rank-0 tensor counts like any other; in PyTorch one of
    /// the same or a lower category does not change the dtype. Plain numbers never do:
    ///
    /// |          | f64 | f32 | f16 | bf16 | i64 | i32 | i16 | i8  | u64 | u32 | u16 | u8  | bool |
    /// |----------|-----|-----|-----|------|-----|-----|-----|-----|-----|-----|-----|-----|------|
    /// | **f64**  | f64 | f64 | f64 | f64  | f64 | f64 | f64 | f64 | f64 | f64 | f64 | f64 | f64  |
    /// | **f32**  | f64 | f32 | f32 | f32  | f32 | f32 | f32 | f32 | f32 | f32 | f32 | f32 | f32  |
    /// | **f16**  | f64 | f32 | f16 | f32  | f16 | f16 | f16 | f16 | f16 | f16 | f16 | f16 | f16  |
    /// | **bf16** | f64 | f32 | f32 | bf16 | bf16| bf16| bf16| bf16| bf16| bf16| bf16| bf16| bf16 |
    /// | **i64**  | f64 | f32 | f16 | bf16 | i64 | i64 | i64 | i64 | -   | i64 | i64 | i64 | i64  |
    /// | **i32**  | f64 | f32 | f16 | bf16 | i64 | i32 | i32 | i32 | -   | i64 | i32 | i32 | i32  |
    /// | **i16**  | f64 | f32 | f16 | bf16 | i64 | i32 | i16 | i16 | -   | i64 | i32 | i16 | i16  |
    /// | **i8**   | f64 | f32 | f16 | bf16 | i64 | i32 | i16 | i8  | -   | i64 | i32 | i16 | i8   |
    /// | **u64**  | f64 | f32 | f16 | bf16 | -   | -   | -   | -   | u64 | u64 | u64 | u64 | u64  |
    /// | **u32**  | f64 | f32 | f16 | bf16 | i64 | i64 | i64 | i64 | u64 | u32 | u32 | u32 | u32  |
    /// | **u16**  | f64 | f32 | f16 | bf16 | i64 | i32 | i32 | i32 | u64 | u32 | u16 | u16 | u16  |
    /// | **u8**   | f64 | f32 | f16 | bf16 | i64 | i32 | i16 | i16 | u64 | u32 | u16 | u8  | u8   |
    /// | **bool** | f64 | f32 | f16 | bf16 | i64 | i32 | i16 | i8  | u64 | u32 | u16 | u8  | bool |
    ///
    /// ```
    /// use kiln_ir::DType;
    ///
    /// assert_eq!(DType::promote(DType::I32, DType::F16), Some(DType::F16));
    /// assert_eq!(DType::promote(DType::I8, DType::U8), Some(DType::I16));
    /// assert_eq!(DType::promote(DType::I64, DType::U64), None);
    /// ```
    pub fn promote(a: DType, b: DType) -> Option<DType> {
        if a == b || b.is_bool() {
            return Some(a);
        }
        if a.is_bool() {
            return Some(b);
        }
        match (a.is_float(), b.is_float()) {
            // `f16` and `bf16` represent different values.
            (true, true) if a.size() == b.size() => Some(DType::F32),
            (true, true) => Some(if a.size() > b.size() { a } else { b }),
            (true, false) => Some(a),
            (false, true) => Some(b),
            (false, false) if a.is_signed_int() == b.is_signed_int() => {
                Some(if a.size() > b.size() { a } else { b })
            }
            (false, false) => {
                let (signed, unsigned) = if a.is_signed_int() { (a, b) } else { (b, a) };
                let fits = |dtype: &DType| dtype.size() >= signed.size() && dtype.size() > unsigned.size();
                // Declared from wide to narrow; searched from narrow to wide.
                DType::ALL.into_iter().rev().filter(|dtype| dtype.is_signed_int()).find(fits)
            }
        }
    }

    /// Returns the type in which engines accumulate sums and products of this type: `f32` for the 16-bit floats,
    /// itself otherwise.
    pub const fn accumulator(self) -> DType {
        if matches!(self, DType::F16 | DType::BF16) { DType::F32 } else { self }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of dtypes, for [`Caps`](crate::Caps). Serializes as the list of their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DTypeSet(u16);

impl DTypeSet {
    /// Every dtype.
    pub const ALL: DTypeSet = DTypeSet::of(&DType::ALL);

    /// Returns the set of the given dtypes.
    pub const fn of(dtypes: &[DType]) -> DTypeSet {
        let mut bits = 0;
        let mut i = 0;
        while i < dtypes.len() {
            bits |= 1 << dtypes[i] as u16;
            i += 1;
        }
        DTypeSet(bits)
    }

    /// Returns whether `dtype` is in the set.
    pub const fn contains(self, dtype: DType) -> bool {
        self.0 & (1 << dtype as u16) != 0
    }

    /// Returns the dtypes of the set, in declaration order.
    pub fn iter(self) -> impl Iterator<Item = DType> {
        DType::ALL.into_iter().filter(move |dtype| self.contains(*dtype))
    }
}

impl Serialize for DTypeSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for DTypeSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DTypeSet, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = DTypeSet;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of dtypes")
            }

            // Only the set is stored, however long the list is.
            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<DTypeSet, A::Error> {
                let mut set = DTypeSet::default();
                while let Some(dtype) = names.next_element::<DType>()? {
                    set.0 |= DTypeSet::of(&[dtype]).0;
                }
                Ok(set)
            }
        }
        deserializer.deserialize_seq(Names)
    }
}

#[cfg(test)]
mod tests {
    use super::DType;
    use alloc::string::String;
    use alloc::vec::Vec;

    /// The table of [`DType::promote`], read from its documentation.
    fn table() -> Vec<Vec<String>> {
        let source = include_str!("dtype.rs");
        let lines = source.lines().filter_map(|line| line.trim().strip_prefix("/// | **"));
        lines.map(|line| line.split('|').skip(1).map(|cell| cell.trim().into()).collect()).collect()
    }

    #[test]
    fn promotion_matches_the_documented_table() {
        let table = table();
        assert_eq!(table.len(), DType::ALL.len());
        for (a, row) in DType::ALL.into_iter().zip(&table) {
            for (b, cell) in DType::ALL.into_iter().zip(row) {
                assert_eq!(DType::promote(a, b), DType::from_name(cell), "{a} and {b}");
                assert_eq!(DType::promote(a, b), DType::promote(b, a));
            }
        }
    }
}
