//! `generation_config.json` of Hugging Face folders.

use super::config::GenerateConfig;
use crate::{Result, TextError, guard};
use serde_json::{Map, Value};
use std::io::ErrorKind;
use std::path::Path;

/// The name of the file in a folder.
const FILE_NAME: &str = "generation_config.json";

/// Limit on the length of the file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// `top_k` in `transformers` where the file does not state it.
const TOP_K: usize = 50;

/// Fields that change the text in `transformers` and have no effect in Kiln, with the number that has no effect there.
const UNSUPPORTED: [(&str, Option<f64>); 18] = [
    ("num_beams", Some(1.0)),
    ("num_beam_groups", Some(1.0)),
    ("num_return_sequences", Some(1.0)),
    ("penalty_alpha", Some(0.0)),
    ("typical_p", Some(1.0)),
    ("epsilon_cutoff", Some(0.0)),
    ("eta_cutoff", Some(0.0)),
    ("top_h", None),
    ("min_length", Some(0.0)),
    ("min_new_tokens", Some(0.0)),
    ("no_repeat_ngram_size", Some(0.0)),
    ("guidance_scale", Some(1.0)),
    ("bad_words_ids", None),
    ("sequence_bias", None),
    ("suppress_tokens", None),
    ("begin_suppress_tokens", None),
    ("forced_bos_token_id", None),
    ("forced_eos_token_id", None),
];

/// The settings of generation that the authors of a model recommend: `generation_config.json` of a Hugging Face folder.
/// A field that the file omits, or that is `null`, is `None`.
///
/// ```
/// use kiln_text::GenerationDefaults;
///
/// let defaults = GenerationDefaults::from_json(r#"{"do_sample": true, "temperature": 0.6, "eos_token_id": [2, 5]}"#)?;
/// assert_eq!(defaults.end_ids, [2, 5]);
/// let config = defaults.config();
/// assert_eq!((config.temperature, config.top_k), (0.6, Some(50)));
/// # Ok::<(), kiln_text::TextError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// Whether tokens are sampled. Otherwise decoding is greedy.
    pub do_sample: Option<bool>,
    /// The divisor of the logits before sampling.
    pub temperature: Option<f64>,
    /// Number of tokens that can be sampled; 0 is all.
    pub top_k: Option<usize>,
    /// Total probability of the tokens that can be sampled, in (0, 1].
    pub top_p: Option<f64>,
    /// Minimum probability of tokens that can be sampled, as a part of the greatest, in [0, 1].
    pub min_p: Option<f64>,
    /// Divisor of positive, and factor of negative, logits of earlier tokens, above 0.
    pub repetition_penalty: Option<f64>,
    /// Maximum number of new tokens.
    pub max_new_tokens: Option<usize>,
    /// Maximum number of tokens of the prompt and the new text. No effect beside `max_new_tokens`.
    pub max_length: Option<usize>,
    /// Strings that end the text: `stop_strings`, one or a list.
    pub stop: Vec<String>,
    /// Tokens that end the text: `eos_token_id`, one or a list. [`Tokenizer::from_folder`](crate::Tokenizer::from_folder)
    /// adds them to the tokens that end a generation.
    pub end_ids: Vec<u32>,
    /// Names of fields that change the text in `transformers`, such as `num_beams`, and have no effect in Kiln.
    pub unsupported: Vec<String>,
}

impl GenerationDefaults {
    /// Reads `generation_config.json` in a folder. If there is no such file, no field is set.
    ///
    /// # Errors
    /// When the file cannot be read, is longer than 1 MiB, is no JSON object, or a field has an invalid value.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        match Settings::of_folder(folder.as_ref())? {
            Some(settings) => settings.defaults(),
            None => Ok(GenerationDefaults::default()),
        }
    }

    /// Reads the contents of a `generation_config.json`.
    ///
    /// # Errors
    /// When the text is no JSON object, or a field has an invalid value.
    pub fn from_json(text: &str) -> Result<Self> {
        Settings::parse(text.as_bytes(), FILE_NAME.to_owned())?.defaults()
    }

    /// Returns the settings with the defaults of `transformers` for absent fields.
    ///
    /// | field | if absent |
    /// |---|---|
    /// | `do_sample` | false: greedy decoding. Temperature, `top_k`, `top_p` and `min_p` have no effect |
    /// | `temperature` | 1 |
    /// | `top_k` | 50 |
    /// | `top_p`, `min_p` | all tokens |
    /// | `repetition_penalty` | 1 |
    /// | `max_new_tokens` | 256, the default of [`GenerateConfig`] |
    /// | `max_length` | no limit beside the context of the model |
    ///
    /// The result does not contain `end_ids`, since the tokenizer of the folder has them.
    pub fn config(&self) -> GenerateConfig {
        let mut config = GenerateConfig::new().with_stop(self.stop.clone());
        config.repetition_penalty = self.repetition_penalty.unwrap_or(1.0);
        match self.max_new_tokens {
            Some(tokens) => config.max_new_tokens = tokens,
            None => config.max_length = self.max_length,
        }
        if self.do_sample == Some(true) {
            config.temperature = self.temperature.unwrap_or(1.0);
            config.top_k = Some(self.top_k.unwrap_or(TOP_K)).filter(|&k| k > 0);
            config.top_p = self.top_p;
            config.min_p = self.min_p;
        }
        config
    }
}

/// Returns the ids in `eos_token_id` of the file in a folder; none without the file. Other fields are not checked.
#[cfg(feature = "tokenizers")]
pub(crate) fn end_ids(folder: &Path) -> Result<Vec<u32>> {
    Settings::of_folder(folder)?.map_or(Ok(Vec::new()), |settings| settings.end_ids())
}

/// The fields of a file.
struct Settings {
    fields: Map<String, Value>,
    /// The name of the file in errors.
    origin: String,
}

impl Settings {
    /// Opens the file in a folder; `None` if there is none.
    fn of_folder(folder: &Path) -> Result<Option<Settings>> {
        let path = folder.join(FILE_NAME);
        match guard::read_file(&path, MAX_BYTES) {
            Ok(bytes) => Settings::parse(&bytes, path.display().to_string()).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(TextError::io(&path, error)),
        }
    }

    fn parse(bytes: &[u8], origin: String) -> Result<Settings> {
        let invalid = |problem: String| TextError::InvalidDefaults { origin: origin.clone(), problem };
        if bytes.len() as u64 > MAX_BYTES {
            return Err(invalid("the text is longer than 1 MiB".to_owned()));
        }
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(fields)) => Ok(Settings { fields, origin }),
            Ok(other) => Err(invalid(format!("the file contains {}, expected an object", described(&other)))),
            Err(error) => Err(invalid(format!("the file is not JSON: {error}"))),
        }
    }

    fn defaults(&self) -> Result<GenerationDefaults> {
        let is_part = |p: &f64| (0.0..=1.0).contains(p);
        Ok(GenerationDefaults {
            do_sample: self.read("do_sample", "true or false", Value::as_bool)?,
            temperature: self.number("temperature", "a number, 0 or above", |&t| t >= 0.0)?,
            top_k: self.count("top_k", 0)?,
            top_p: self.number("top_p", "a number above 0, 1 at most", |&p| p > 0.0 && p <= 1.0)?,
            min_p: self.number("min_p", "a number from 0 to 1", is_part)?,
            repetition_penalty: self.number("repetition_penalty", "a number above 0", |&p| p > 0.0)?,
            max_new_tokens: self.count("max_new_tokens", 1)?,
            max_length: self.count("max_length", 1)?,
            stop: self
                .read("stop_strings", "a text that is not empty, or a list of them", texts)?
                .unwrap_or_default(),
            end_ids: self.end_ids()?,
            unsupported: self.unsupported(),
        })
    }

    fn end_ids(&self) -> Result<Vec<u32>> {
        let expected = "a token id, or a list of token ids";
        Ok(self.read("eos_token_id", expected, token_ids)?.unwrap_or_default())
    }

    fn unsupported(&self) -> Vec<String> {
        let stated = |(name, without_effect): &(&str, Option<f64>)| match self.fields.get(*name) {
            None | Some(Value::Null | Value::Bool(false)) => None,
            Some(Value::Array(list)) if list.is_empty() => None,
            Some(Value::Number(number)) if number.as_f64() == *without_effect => None,
            Some(
                Value::Bool(true) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_),
            ) => Some((*name).to_owned()),
        };
        UNSUPPORTED.iter().filter_map(stated).collect()
    }

    /// Reads an integer of at least `least`.
    fn count(&self, field: &str, least: u64) -> Result<Option<usize>> {
        let expected = format!("an integer, {least} or above");
        let read = |value: &Value| usize::try_from(value.as_u64().filter(|&n| n >= least)?).ok();
        self.read(field, &expected, read)
    }

    fn number(&self, field: &str, expected: &str, is_valid: impl Fn(&f64) -> bool) -> Result<Option<f64>> {
        self.read(field, expected, |value| value.as_f64().filter(is_valid))
    }

    fn read<T>(
        &self,
        field: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.fields.get(field).filter(|value| !value.is_null()) else { return Ok(None) };
        let invalid = || TextError::InvalidDefaults {
            origin: self.origin.clone(),
            problem: format!("`{field}` is {}, expected {expected}", described(value)),
        };
        read(value).map(Some).ok_or_else(invalid)
    }
}

/// One id, or a list.
fn token_ids(value: &Value) -> Option<Vec<u32>> {
    let id = |value: &Value| u32::try_from(value.as_u64()?).ok();
    match value.as_array() {
        Some(list) => list.iter().map(id).collect(),
        None => id(value).map(|id| vec![id]),
    }
}

/// One text, or a list.
fn texts(value: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    match value.as_array() {
        Some(list) => list.iter().map(text).collect(),
        None => text(value).map(|text| vec![text]),
    }
}

/// A short description of a value.
fn described(value: &Value) -> String {
    match value {
        Value::Array(list) => format!("a list of {} values", list.len()),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => format!("{:?}", text.chars().take(80).collect::<String>()),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
