//! Reading `config.json` of Hugging Face's `transformers`.

use serde_json::{Map, Value};

use crate::error::{ModelError, Result};

/// Limit on integers, so that no product of two of them overflows. It is above the sizes of all models.
const MAX_INTEGER: u64 = 1 << 24;

/// The fields of a `config.json`. An absent field and one that is `null` are the same.
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
}

/// Parses a configuration.
pub(crate) fn parse(json: &str) -> Result<Map<String, Value>> {
    let value: Value = serde_json::from_str(json)?;
    if let Value::Object(map) = value {
        Ok(map)
    } else {
        Err(wrong("config.json", Some(&value), "an object"))
    }
}

impl<'a> Fields<'a> {
    pub(crate) fn new(map: &'a Map<String, Value>) -> Self {
        Fields { map }
    }

    fn get(&self, field: &str) -> Option<&'a Value> {
        self.map.get(field).filter(|value| !value.is_null())
    }

    /// Returns a nested object.
    pub(crate) fn object(&self, field: &str) -> Result<Option<Fields<'a>>> {
        self.read(field, "an object", |value| value.as_object().map(Fields::new))
    }

    /// Returns an integer of at most [`MAX_INTEGER`].
    pub(crate) fn integer(&self, field: &str) -> Result<Option<usize>> {
        self.read(field, "an integer from 0 to 2^24", integer)
    }

    /// Returns a list of integers.
    pub(crate) fn integers(&self, field: &str) -> Result<Option<Vec<usize>>> {
        self.read(field, "a list of integers", |value| value.as_array()?.iter().map(integer).collect())
    }

    /// Returns an integer that must be present.
    pub(crate) fn required(&self, field: &str) -> Result<usize> {
        self.integer(field)?.ok_or_else(|| wrong(field, None, "an integer"))
    }

    pub(crate) fn number(&self, field: &str) -> Result<Option<f64>> {
        self.read(field, "a number", Value::as_f64)
    }

    /// Returns a list of numbers.
    pub(crate) fn numbers(&self, field: &str) -> Result<Option<Vec<f64>>> {
        self.read(field, "a list of numbers", |value| value.as_array()?.iter().map(Value::as_f64).collect())
    }

    pub(crate) fn flag(&self, field: &str) -> Result<Option<bool>> {
        self.read(field, "true or false", Value::as_bool)
    }

    pub(crate) fn text(&self, field: &str) -> Result<Option<&'a str>> {
        self.read(field, "a text", Value::as_str)
    }

    /// Returns a list of texts.
    pub(crate) fn texts(&self, field: &str) -> Result<Option<Vec<&'a str>>> {
        self.read(field, "a list of texts", |value| value.as_array()?.iter().map(Value::as_str).collect())
    }

    fn read<T>(
        &self,
        field: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| wrong(field, Some(value), expected))
    }
}

fn integer(value: &Value) -> Option<usize> {
    value.as_u64().filter(|&n| n <= MAX_INTEGER).and_then(|n| n.try_into().ok())
}

/// Returns the error of a field of the wrong type; `None` if it is missing.
pub(crate) fn wrong(field: &str, found: Option<&Value>, expected: &str) -> ModelError {
    let found = match found {
        None => "missing".to_owned(),
        Some(Value::Array(list)) => format!("a list of {} values", list.len()),
        Some(Value::Object(_)) => "an object".to_owned(),
        Some(value @ (Value::Null | Value::Bool(_) | Value::Number(_))) => value.to_string(),
        Some(Value::String(text)) => format!("`{}`", text.chars().take(80).collect::<String>()),
    };
    ModelError::Field { field: field.to_owned(), found, expected: expected.to_owned() }
}

/// Returns the error of a value that the models do not support.
pub(crate) fn unsupported(field: &str, value: &str, supported: &str) -> ModelError {
    let value = format!("`{}`", value.chars().take(80).collect::<String>());
    ModelError::Unsupported { field: field.to_owned(), value, supported: supported.to_owned() }
}
