//! JSON values that keep every float, such as the values of a checkpoint.
//!
//! JSON has no NaN and no infinity, and serde_json writes `null` in their place. Here they are the objects
//! `{"$float": "NaN"}`, `{"$float": "inf"}` and `{"$float": "-inf"}`, at any depth. All other data has the form that
//! serde_json gives it, so that JSON without these objects is read as ever. The sign and the payload of a NaN are not kept.

mod reader;
mod writer;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Result, Value};

/// The key of an object that stands for a float.
const FLOAT: &str = "$float";

/// Returns data as JSON.
///
/// ```
/// use kiln_store::json;
///
/// let value = json::to_value(&(f64::INFINITY, Some(0.5)))?;
/// assert_eq!(value.to_string(), r#"[{"$float":"inf"},0.5]"#);
/// assert_eq!(json::from_value::<(f64, Option<f64>)>(&value)?, (f64::INFINITY, Some(0.5)));
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Errors
/// When serde cannot serialize the data, a key of a map is no string, number, boolean or character, or the data contains a
/// map with the key `$float` alone.
pub fn to_value<V: Serialize + ?Sized>(data: &V) -> Result<Value> {
    data.serialize(writer::Writer)
}

/// Returns the data of a JSON value: the inverse of [`to_value`].
///
/// # Errors
/// When the value is of another type.
pub fn from_value<V: DeserializeOwned>(value: &Value) -> Result<V> {
    V::deserialize(reader::Reader(value))
}

/// The float that an object stands for, if it stands for one.
fn float_of(value: &Value) -> Option<f64> {
    let object = value.as_object().filter(|object| object.len() == 1)?;
    match object.get(FLOAT)?.as_str()? {
        "NaN" => Some(f64::NAN),
        "inf" => Some(f64::INFINITY),
        "-inf" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}
