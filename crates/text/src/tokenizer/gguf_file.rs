//! The vocabulary in the metadata of a GGUF file.

use super::Tokenizer;
use super::gguf::GgufVocabulary;
use crate::{Result, TextError};
use kiln_store::gguf::GgufFile;
use std::path::Path;

/// Converters write these for a token that does not exist.
const NO_ID: i64 = -1;
const NO_ID_AS_U32: i64 = u32::MAX as i64;

impl Tokenizer {
    /// Opens a GGUF file and builds its tokenizer; see [`from_gguf`](Tokenizer::from_gguf).
    ///
    /// # Errors
    /// When the file cannot be read, contains no vocabulary, or one that is not supported.
    pub fn from_gguf_file(path: impl AsRef<Path>) -> Result<Self> {
        Tokenizer::from_gguf(GgufVocabulary::try_from(&GgufFile::open(path)?)?)
    }
}

impl TryFrom<&GgufFile> for GgufVocabulary {
    type Error = TextError;

    /// Reads the metadata under `tokenizer`.
    ///
    /// # Errors
    /// When the file has no vocabulary, or an id or a type is out of range.
    fn try_from(file: &GgufFile) -> Result<Self> {
        let metadata = file.metadata();
        let origin = || file.path().display().to_string();
        let key = |name: &str| format!("tokenizer.ggml.{name}");
        let missing = |name: &str| {
            let problem = format!("the file has no {}, so it contains no vocabulary", key(name));
            TextError::invalid_tokenizer(origin(), problem)
        };
        let text = |name: &str| metadata.str(&key(name)).map(str::to_owned);
        let strings = |name: &str| metadata.strings(&key(name)).map(<[String]>::to_vec);
        let id = |name: &str| {
            let Some(value) = metadata.get(&key(name)) else { return Ok(None) };
            match value.as_i64() {
                Some(NO_ID | NO_ID_AS_U32) => Ok(None),
                Some(id) if (0..NO_ID_AS_U32).contains(&id) => Ok(Some(id as u32)),
                Some(_) | None => {
                    let problem = format!("{} is {value}, which is no token id", key(name));
                    Err(TextError::invalid_tokenizer(origin(), problem))
                }
            }
        };
        let kinds = metadata.integers(&key("token_type")).unwrap_or_default();
        Ok(GgufVocabulary {
            model: text("model").ok_or_else(|| missing("model"))?,
            pre: text("pre"),
            tokens: strings("tokens").ok_or_else(|| missing("tokens"))?,
            // Types beyond 32 bits are as invalid as 0x7fffffff.
            token_types: kinds.into_iter().map(|kind| i32::try_from(kind).unwrap_or(i32::MAX)).collect(),
            scores: metadata.floats(&key("scores")).unwrap_or_default(),
            merges: strings("merges").unwrap_or_default(),
            bos: id("bos_token_id")?,
            eos: id("eos_token_id")?,
            eot: id("eot_token_id")?,
            unknown: id("unknown_token_id")?,
            padding: id("padding_token_id")?,
            classification: id("cls_token_id")?,
            // The specification has the misspelled key.
            separator: match id("seperator_token_id")? {
                Some(id) => Some(id),
                None => id("separator_token_id")?,
            },
            add_bos: metadata.bool(&key("add_bos_token")),
            add_eos: metadata.bool(&key("add_eos_token")),
            add_space_prefix: metadata.bool(&key("add_space_prefix")),
            chat_template: metadata.str("tokenizer.chat_template").map(str::to_owned),
        })
    }
}
