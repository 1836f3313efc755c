//! Values of a checkpoint that are not tensors.

use half::f16;

/// A value of a checkpoint that is not a tensor: epochs, hyper-parameters, vocabularies.
///
/// ```
/// use kiln_store::pytorch::PickleValue;
///
/// let settings = PickleValue::Dict(vec![(PickleValue::Text("lr".into()), PickleValue::Float(0.1))]);
/// assert_eq!(settings.get("lr").and_then(PickleValue::as_f64), Some(0.1));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PickleValue {
    /// `None`.
    None,
    /// A bool.
    Bool(bool),
    /// An integer of up to 64 bits.
    Int(i64),
    /// A float.
    Float(f64),
    /// A string.
    Text(String),
    /// Bytes that are not UTF-8.
    Bytes(Vec<u8>),
    /// A list, tuple, set or `torch.Size`.
    List(Vec<PickleValue>),
    /// A dict, with its items in their order.
    Dict(Vec<(PickleValue, PickleValue)>),
    /// An object of a class, with its attributes.
    Object {
        /// The full name of the class.
        class: String,
        /// Names and values of the attributes.
        attributes: Vec<(PickleValue, PickleValue)>,
    },
    /// Another value, by its description: the name of a class or dtype, or `tensor`.
    Other(String),
}

impl PickleValue {
    /// Returns the value of a key of a dict, or of an attribute of an object.
    pub fn get(&self, key: &str) -> Option<&PickleValue> {
        let (PickleValue::Dict(items) | PickleValue::Object { attributes: items, .. }) = self else {
            return None;
        };
        items.iter().rev().find(|(name, _)| name.as_str() == Some(key)).map(|(_, value)| value)
    }

    /// Returns the elements of a list.
    pub fn as_list(&self) -> Option<&[PickleValue]> {
        if let PickleValue::List(values) = self { Some(values) } else { None }
    }

    /// Returns a string.
    pub fn as_str(&self) -> Option<&str> {
        if let PickleValue::Text(text) = self { Some(text) } else { None }
    }

    /// Returns a bool.
    pub fn as_bool(&self) -> Option<bool> {
        if let PickleValue::Bool(value) = self { Some(*value) } else { None }
    }

    /// Returns an integer.
    pub fn as_i64(&self) -> Option<i64> {
        if let PickleValue::Int(number) = self { Some(*number) } else { None }
    }

    /// Returns a float, or an integer as a float.
    pub fn as_f64(&self) -> Option<f64> {
        if let PickleValue::Float(number) = self {
            Some(*number)
        } else {
            self.as_i64().map(|number| number as f64)
        }
    }

    /// Returns a number, string or bool as text, as in a dotted name; `None` for other values.
    pub(super) fn into_text(self) -> Option<String> {
        match self {
            PickleValue::Bool(value) => Some(if value { "True" } else { "False" }.to_owned()),
            PickleValue::Int(number) => Some(number.to_string()),
            PickleValue::Float(number) => Some(number.to_string()),
            PickleValue::Text(text) => Some(text),
            PickleValue::None
            | PickleValue::Bytes(_)
            | PickleValue::List(_)
            | PickleValue::Dict(_)
            | PickleValue::Object { .. }
            | PickleValue::Other(_) => None,
        }
    }

    /// Reads an element of a dtype of PyTorch from little-endian bytes.
    pub(super) fn of_element(torch: &str, bytes: &[u8]) -> Option<PickleValue> {
        Some(match torch {
            "float64" => PickleValue::Float(f64::from_le_bytes(bytes.try_into().ok()?)),
            "float32" => PickleValue::Float(f64::from(f32::from_le_bytes(bytes.try_into().ok()?))),
            "float16" => PickleValue::Float(f16::from_le_bytes(bytes.try_into().ok()?).to_f64()),
            "int64" => PickleValue::Int(i64::from_le_bytes(bytes.try_into().ok()?)),
            "int32" => PickleValue::Int(i32::from_le_bytes(bytes.try_into().ok()?).into()),
            "int16" => PickleValue::Int(i16::from_le_bytes(bytes.try_into().ok()?).into()),
            "int8" => PickleValue::Int(i8::from_le_bytes(bytes.try_into().ok()?).into()),
            "uint64" => PickleValue::Int(u64::from_le_bytes(bytes.try_into().ok()?).try_into().ok()?),
            "uint32" => PickleValue::Int(u32::from_le_bytes(bytes.try_into().ok()?).into()),
            "uint16" => PickleValue::Int(u16::from_le_bytes(bytes.try_into().ok()?).into()),
            "uint8" => PickleValue::Int(u8::from_le_bytes(bytes.try_into().ok()?).into()),
            "bool" => PickleValue::Bool(*bytes.first()? != 0),
            _ => return None,
        })
    }
}
