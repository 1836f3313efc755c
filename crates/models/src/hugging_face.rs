//! Reading `config.json` of Hugging Face's `transformers`.

use serde_json::{Map, Value};

use crate::error::{ModelError, Result};

/// Limit on the number of layers: larger numbers are damage.
const MAX_LAYERS: usize = 1024;

/// Limit on integers, so that no product of two of them overflows. It is above the sizes of all models.
const MAX_INTEGER: u64 = 1 << 24;

/// The numbers that a field may have. Those of published models are well inside.
struct Range {
    fields: &'static [&'static str],
    least: f64,
    most: f64,
    /// The description in errors.
    expected: &'static str,
}

/// The accepted numbers of every model's fields. Others give NaN, divide by zero, or are damage. Fields that must divide
/// others are checked by the models.
const RANGES: [Range; 7] = [
    Range {
        fields: &[
            "vocab_size",
            "hidden_size",
            "n_embd",
            "intermediate_size",
            "n_inner",
            "max_position_embeddings",
            "n_positions",
            "original_max_position_embeddings",
            "type_vocab_size",
            "sliding_window",
            "max_seq_length",
            "no_rope_layer_interval",
        ],
        least: 1.0,
        most: MAX_INTEGER as f64,
        expected: "an integer, at least 1 and at most 2^24",
    },
    Range {
        fields: &["num_hidden_layers", "n_layer"],
        least: 1.0,
        most: MAX_LAYERS as f64,
        expected: "an integer, at least 1 and at most 1024",
    },
    Range {
        fields: &["rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"],
        least: 0.0,
        most: 1.0,
        expected: "a number from 0 to 1",
    },
    Range { fields: &["rope_theta"], least: 1.0, most: 1e15, expected: "a number from 1 to 1e15" },
    Range {
        fields: &[
            "factor",
            "factors",
            "low_freq_factor",
            "high_freq_factor",
            "beta_fast",
            "beta_slow",
            "attention_factor",
            "query_pre_attn_scalar",
            "attn_logit_softcapping",
            "final_logit_softcapping",
        ],
        least: 1e-6,
        most: 1e9,
        expected: "a number from 1e-6 to 1e9",
    },
    Range {
        fields: &["mscale", "mscale_all_dim"],
        least: 0.0,
        most: 1e6,
        expected: "a number from 0 to 1e6",
    },
    Range { fields: &["initializer_range"], least: 0.0, most: 1e3, expected: "a number from 0 to 1000" },
];

impl Range {
    fn of(field: &str) -> Option<&'static Range> {
        RANGES.iter().find(|range| range.fields.contains(&field))
    }

    fn contains(&self, number: f64) -> bool {
        (self.least..=self.most).contains(&number)
    }
}

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

    /// Returns an integer of at most [`MAX_INTEGER`], in the range of the field.
    pub(crate) fn integer(&self, field: &str) -> Result<Option<usize>> {
        let range = Range::of(field);
        let expected = range.map_or("an integer from 0 to 2^24", |range| range.expected);
        let accepted = |number: &usize| range.is_none_or(|range| range.contains(*number as f64));
        self.read(field, expected, |value| integer(value).filter(accepted))
    }

    /// Returns a list of integers.
    pub(crate) fn integers(&self, field: &str) -> Result<Option<Vec<usize>>> {
        self.read(field, "a list of integers", |value| value.as_array()?.iter().map(integer).collect())
    }

    /// Returns an integer that must be present.
    pub(crate) fn required(&self, field: &str) -> Result<usize> {
        self.integer(field)?.ok_or_else(|| wrong(field, None, "an integer"))
    }

    /// Returns a number in the range of the field.
    pub(crate) fn number(&self, field: &str) -> Result<Option<f64>> {
        let expected = Range::of(field).map_or("a number", |range| range.expected);
        self.read(field, expected, |value| number(field, value))
    }

    /// Returns a list of numbers, each in the range of the field.
    pub(crate) fn numbers(&self, field: &str) -> Result<Option<Vec<f64>>> {
        let expected = match Range::of(field) {
            Some(range) => format!("a list, each of them {}", range.expected),
            None => "a list of numbers".to_owned(),
        };
        let list = |value: &Value| value.as_array()?.iter().map(|value| number(field, value)).collect();
        self.read(field, &expected, list)
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

fn number(field: &str, value: &Value) -> Option<f64> {
    let range = Range::of(field);
    value.as_f64().filter(|&number| range.is_none_or(|range| range.contains(number)))
}

fn integer(value: &Value) -> Option<usize> {
    value.as_u64().filter(|&n| n <= MAX_INTEGER).and_then(|n| n.try_into().ok())
}

/// Checks a number of a configuration that was made in code, by the range of the field of that name.
pub(crate) fn check_number(field: &str, number: f64) -> Result<()> {
    match Range::of(field).filter(|range| !range.contains(number)) {
        Some(range) => Err(invalid(field, number, range.expected)),
        None => Ok(()),
    }
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
    invalid(field, found, expected)
}

/// Returns an error unless a number divides that of another field.
pub(crate) fn check_divisor(field: &str, divisor: usize, (other, number): (&str, usize)) -> Result<()> {
    if divisor == 0 || !number.is_multiple_of(divisor) {
        return Err(invalid(field, divisor, format!("a divisor of {other} = {number}")));
    }
    Ok(())
}

/// Returns an error if there are too many layers.
pub(crate) fn check_layers(field: &str, layers: usize) -> Result<()> {
    if layers > MAX_LAYERS {
        return Err(invalid(field, layers, format!("at most {MAX_LAYERS}")));
    }
    Ok(())
}

/// Returns the error of a field with an invalid value.
pub(crate) fn invalid(field: &str, found: impl ToString, expected: impl Into<String>) -> ModelError {
    ModelError::Field { field: field.to_owned(), found: found.to_string(), expected: expected.into() }
}

/// Returns the error of a value that the models do not support.
pub(crate) fn unsupported(field: &str, value: &str, supported: &str) -> ModelError {
    let value = format!("`{}`", value.chars().take(80).collect::<String>());
    ModelError::Unsupported { field: field.to_owned(), value, supported: supported.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{Fields, RANGES};
    use serde_json::{Map, Value, json};

    #[test]
    fn numbers_at_the_rims_of_ranges() {
        for range in &RANGES {
            for &field in range.fields {
                let read = |value: Value| {
                    let map = Map::from_iter([(field.to_owned(), value)]);
                    Fields::new(&map).number(field)
                };
                for number in [range.least, range.most] {
                    assert_eq!(read(json!(number)).unwrap(), Some(number), "{field}");
                }
                let outside = [range.least - 1e-9, range.most * 1.0001, -1.0, -0.1, 1e300, -1e300];
                for number in outside {
                    let message = read(json!(number)).unwrap_err().to_string();
                    assert!(message.contains(&format!("`{field}`")), "{message}");
                    assert!(message.ends_with(range.expected), "{message}");
                }
            }
        }
    }

    #[test]
    fn lists_have_the_range_of_their_field() {
        let map = Map::from_iter([("factors".to_owned(), json!([1.0, 0.0]))]);
        let message = Fields::new(&map).numbers("factors").unwrap_err().to_string();
        assert!(message.contains("a list, each of them a number from 1e-6 to 1e9"), "{message}");
    }
}
