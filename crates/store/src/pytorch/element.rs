//! The dtypes of PyTorch.

use kiln_tensor::DType;

use crate::float8::Float8;

/// A dtype of PyTorch.
#[derive(Debug, PartialEq)]
pub(super) struct Element {
    /// The name in PyTorch: `float32` in `torch.float32`.
    pub(super) torch: &'static str,
    /// The class of its storages without the suffix: `Float` in `torch.FloatStorage`; `None` if there is none.
    pub(super) storage: Option<&'static str>,
    /// The name in [`TensorInfo`](crate::TensorInfo), as in safetensors files where they have the dtype.
    pub(super) name: &'static str,
    /// The dtype in Kiln, if it has one.
    pub(super) dtype: Option<DType>,
    /// The size of an element in bytes.
    pub(super) bytes: u64,
}

const fn element(
    torch: &'static str,
    storage: Option<&'static str>,
    name: &'static str,
    dtype: Option<DType>,
    bytes: u64,
) -> Element {
    Element { torch, storage, name, dtype, bytes }
}

/// The dtypes of PyTorch 2.
pub(super) static ELEMENTS: [Element; 26] = [
    element("float64", Some("Double"), "F64", Some(DType::F64), 8),
    element("float32", Some("Float"), "F32", Some(DType::F32), 4),
    element("float16", Some("Half"), "F16", Some(DType::F16), 2),
    element("bfloat16", Some("BFloat16"), "BF16", Some(DType::BF16), 2),
    element("int64", Some("Long"), "I64", Some(DType::I64), 8),
    element("int32", Some("Int"), "I32", Some(DType::I32), 4),
    element("int16", Some("Short"), "I16", Some(DType::I16), 2),
    element("int8", Some("Char"), "I8", Some(DType::I8), 1),
    element("uint64", None, "U64", Some(DType::U64), 8),
    element("uint32", None, "U32", Some(DType::U32), 4),
    element("uint16", None, "U16", Some(DType::U16), 2),
    element("uint8", Some("Byte"), "U8", Some(DType::U8), 1),
    element("bool", Some("Bool"), "BOOL", Some(DType::Bool), 1),
    element("float8_e4m3fn", None, "F8_E4M3", None, 1),
    element("float8_e5m2", None, "F8_E5M2", None, 1),
    element("float8_e4m3fnuz", None, "F8_E4M3FNUZ", None, 1),
    element("float8_e5m2fnuz", None, "F8_E5M2FNUZ", None, 1),
    element("float8_e8m0fnu", None, "F8_E8M0", None, 1),
    element("complex32", Some("ComplexHalf"), "C32", None, 4),
    element("complex64", Some("ComplexFloat"), "C64", None, 8),
    element("complex128", Some("ComplexDouble"), "C128", None, 16),
    element("qint8", Some("QInt8"), "QINT8", None, 1),
    element("quint8", Some("QUInt8"), "QUINT8", None, 1),
    element("qint32", Some("QInt32"), "QINT32", None, 4),
    element("quint4x2", Some("QUInt4x2"), "QUINT4X2", None, 1),
    element("quint2x4", Some("QUInt2x4"), "QUINT2X4", None, 1),
];

impl Element {
    /// The dtype after reading: 8-bit floats are decoded to `f32`. `None` if the elements cannot be read.
    pub(super) fn read_as(&self) -> Option<DType> {
        self.dtype.or_else(|| self.float8().map(|_| DType::F32))
    }

    pub(super) fn float8(&self) -> Option<Float8> {
        Float8::from_name(self.name)
    }

    /// Returns the entry of a dtype of Kiln.
    pub(super) fn of(dtype: DType) -> &'static Element {
        let found = ELEMENTS.iter().find(|element| element.dtype == Some(dtype));
        found.expect("PyTorch has every dtype of Kiln")
    }

    /// Returns the entry of a NumPy type code such as `f4`; `None` for strings, dates and objects.
    pub(super) fn of_numpy(code: &str) -> Option<&'static Element> {
        let code = code.trim_start_matches(['<', '>', '=', '|']);
        let torch = match code {
            "f8" => "float64",
            "f4" => "float32",
            "f2" => "float16",
            "i8" => "int64",
            "i4" => "int32",
            "i2" => "int16",
            "i1" => "int8",
            "u8" => "uint64",
            "u4" => "uint32",
            "u2" => "uint16",
            "u1" => "uint8",
            "b1" => "bool",
            "c8" => "complex64",
            "c16" => "complex128",
            _ => return None,
        };
        ELEMENTS.iter().find(|element| element.torch == torch)
    }
}
