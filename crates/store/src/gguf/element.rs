//! Types of the elements of GGUF tensors.

use std::fmt;

use kiln_tensor::{BlockFormat, DType, Shape};

/// The type of the elements of a tensor that can be written to a GGUF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// Plain elements: `f64`, `f32`, `f16`, `bf16` or signed integers.
    Plain(DType),
    /// Quantised blocks.
    Blocks(BlockFormat),
}

/// The type of the elements of a tensor in a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum StoredType {
    Supported(ElementType),
    /// A type of ggml that Kiln cannot decode.
    Unsupported(&'static GgmlType),
    /// A type that is not in the table.
    Unknown(u32),
}

/// A type of ggml: `bytes` bytes hold `len` elements.
#[derive(Debug, PartialEq)]
pub(super) struct GgmlType {
    code: u32,
    pub(super) name: &'static str,
    len: u64,
    bytes: u64,
}

/// The types of ggml. Source: `enum ggml_type` and the block structs of
/// <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.
#[rustfmt::skip]
const TYPES: &[GgmlType] = &[
    GgmlType { code: 0, name: "F32", len: 1, bytes: 4 },
    GgmlType { code: 1, name: "F16", len: 1, bytes: 2 },
    GgmlType { code: 2, name: "Q4_0", len: 32, bytes: 18 },
    GgmlType { code: 3, name: "Q4_1", len: 32, bytes: 20 },
    GgmlType { code: 6, name: "Q5_0", len: 32, bytes: 22 },
    GgmlType { code: 7, name: "Q5_1", len: 32, bytes: 24 },
    GgmlType { code: 8, name: "Q8_0", len: 32, bytes: 34 },
    GgmlType { code: 9, name: "Q8_1", len: 32, bytes: 36 },
    GgmlType { code: 10, name: "Q2_K", len: 256, bytes: 84 },
    GgmlType { code: 11, name: "Q3_K", len: 256, bytes: 110 },
    GgmlType { code: 12, name: "Q4_K", len: 256, bytes: 144 },
    GgmlType { code: 13, name: "Q5_K", len: 256, bytes: 176 },
    GgmlType { code: 14, name: "Q6_K", len: 256, bytes: 210 },
    GgmlType { code: 15, name: "Q8_K", len: 256, bytes: 292 },
    GgmlType { code: 16, name: "IQ2_XXS", len: 256, bytes: 66 },
    GgmlType { code: 17, name: "IQ2_XS", len: 256, bytes: 74 },
    GgmlType { code: 18, name: "IQ3_XXS", len: 256, bytes: 98 },
    GgmlType { code: 19, name: "IQ1_S", len: 256, bytes: 50 },
    GgmlType { code: 20, name: "IQ4_NL", len: 32, bytes: 18 },
    GgmlType { code: 21, name: "IQ3_S", len: 256, bytes: 110 },
    GgmlType { code: 22, name: "IQ2_S", len: 256, bytes: 82 },
    GgmlType { code: 23, name: "IQ4_XS", len: 256, bytes: 136 },
    GgmlType { code: 24, name: "I8", len: 1, bytes: 1 },
    GgmlType { code: 25, name: "I16", len: 1, bytes: 2 },
    GgmlType { code: 26, name: "I32", len: 1, bytes: 4 },
    GgmlType { code: 27, name: "I64", len: 1, bytes: 8 },
    GgmlType { code: 28, name: "F64", len: 1, bytes: 8 },
    GgmlType { code: 29, name: "IQ1_M", len: 256, bytes: 56 },
    GgmlType { code: 30, name: "BF16", len: 1, bytes: 2 },
    GgmlType { code: 34, name: "TQ1_0", len: 256, bytes: 54 },
    GgmlType { code: 35, name: "TQ2_0", len: 256, bytes: 66 },
    GgmlType { code: 39, name: "MXFP4", len: 32, bytes: 17 },
    GgmlType { code: 40, name: "NVFP4", len: 64, bytes: 36 },
];

impl ElementType {
    /// Returns the dtype of the elements after dequantisation.
    pub fn dtype(self) -> DType {
        match self {
            ElementType::Plain(dtype) => dtype,
            ElementType::Blocks(_) => DType::F32,
        }
    }

    /// Returns the format of quantised blocks; `None` for plain elements.
    pub fn blocks(self) -> Option<BlockFormat> {
        match self {
            ElementType::Plain(_) => None,
            ElementType::Blocks(format) => Some(format),
        }
    }

    /// Returns the number of bytes of a tensor, or a description of the reason why there is no such tensor.
    pub(super) fn num_bytes(self, shape: &Shape) -> Result<u64, String> {
        match self.in_ggml() {
            Some(ggml) => ggml.num_bytes(shape),
            None => Err(format!("GGUF has no elements of type {self}")),
        }
    }

    /// The code in files; `None` if ggml has no such type.
    pub(super) fn code(self) -> Option<u32> {
        self.in_ggml().map(|ggml| ggml.code)
    }

    fn in_ggml(self) -> Option<&'static GgmlType> {
        let name = match self {
            ElementType::Plain(dtype) => dtype.name(),
            ElementType::Blocks(format) => format.name(),
        };
        TYPES.iter().find(|ggml| ggml.name.eq_ignore_ascii_case(name))
    }
}

/// Prints the name in llama.cpp: `BF16`, `Q4_K` and so on.
impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            ElementType::Plain(dtype) => dtype.name(),
            ElementType::Blocks(format) => format.name(),
        };
        f.write_str(&name.to_ascii_uppercase())
    }
}

impl StoredType {
    pub(super) fn from_code(code: u32) -> StoredType {
        let Some(ggml) = TYPES.iter().find(|ggml| ggml.code == code) else {
            return StoredType::Unknown(code);
        };
        let name = ggml.name.to_ascii_lowercase();
        let plain = DType::from_name(&name).map(ElementType::Plain);
        let element = plain.or_else(|| BlockFormat::from_name(&name).map(ElementType::Blocks));
        element.map_or(StoredType::Unsupported(ggml), StoredType::Supported)
    }

    /// The number of bytes of a tensor, or a description of the reason why there is no such tensor. `None` if the size of
    /// the elements is unknown.
    pub(super) fn num_bytes(self, shape: &Shape) -> Result<Option<u64>, String> {
        match self {
            StoredType::Supported(element) => element.num_bytes(shape).map(Some),
            StoredType::Unsupported(ggml) => ggml.num_bytes(shape).map(Some),
            StoredType::Unknown(_) => Ok(None),
        }
    }
}

impl fmt::Display for StoredType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoredType::Supported(element) => element.fmt(f),
            StoredType::Unsupported(ggml) => f.write_str(ggml.name),
            StoredType::Unknown(code) => write!(f, "type {code}"),
        }
    }
}

impl GgmlType {
    fn num_bytes(&self, shape: &Shape) -> Result<u64, String> {
        let too_large = || format!("a tensor of shape {shape} is larger than any memory");
        let elements = shape.checked_num_elements().ok_or_else(too_large)? as u64;
        let row = shape.last().map_or(1, |&row| row as u64);
        if !row.is_multiple_of(self.len) {
            return Err(format!(
                "rows of {row} elements are not whole blocks of {} elements, as {} requires",
                self.len, self.name
            ));
        }
        (elements / self.len).checked_mul(self.bytes).ok_or_else(too_large)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_format_has_its_size_and_code() {
        for &format in BlockFormat::ALL {
            let element = ElementType::Blocks(format);
            let shape = Shape::new([3, 2 * format.len()]);
            let bytes = 3 * format.row_bytes(2 * format.len()).unwrap();
            assert_eq!(element.num_bytes(&shape), Ok(bytes as u64), "{format:?}");
            let code = element.code().unwrap();
            assert_eq!(StoredType::from_code(code), StoredType::Supported(element));
            assert!(element.num_bytes(&Shape::new([2 * format.len(), 31])).is_err());
        }
    }

    #[test]
    fn plain_elements_have_the_size_of_their_dtype() {
        let shape = Shape::new([3, 5]);
        for dtype in DType::ALL {
            let expected = (dtype.is_float() || dtype.is_signed_int()).then_some(15 * dtype.size() as u64);
            assert_eq!(ElementType::Plain(dtype).num_bytes(&shape).ok(), expected, "{dtype}");
        }
    }

    #[test]
    fn other_types_keep_their_name() {
        assert_eq!(StoredType::from_code(16).to_string(), "IQ2_XXS");
        assert_eq!(StoredType::from_code(16).num_bytes(&Shape::new([512])), Ok(Some(132)));
        assert_eq!(StoredType::from_code(99).to_string(), "type 99");
    }
}
