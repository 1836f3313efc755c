//! Tokenizers of Hugging Face folders.

use super::{SpecialTokens, Tokenizer, json};
use crate::generate::end_ids_of_folder;
use crate::{Result, TextError, guard};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::path::Path;

/// Reads the tokenizer of a folder.
pub(super) fn tokenizer(folder: &Path) -> Result<Tokenizer> {
    let file = folder.join("tokenizer.json");
    let Some(bytes) = read(&file)? else {
        return Err(TextError::MissingFile {
            path: folder.to_path_buf(),
            file: "tokenizer.json",
            hint: "save the tokenizer with transformers: `AutoTokenizer.from_pretrained(..).save_pretrained(..)`",
        });
    };
    let mut tokenizer = json::tokenizer(&bytes, &file.display().to_string())?;
    let map: SpecialTokensMap = read_json(&folder.join("special_tokens_map.json"))?.unwrap_or_default();
    let config: TokenizerConfig = read_json(&folder.join("tokenizer_config.json"))?.unwrap_or_default();

    let mut special = SpecialTokens { end: Vec::new(), ..tokenizer.special.clone() };
    for names in [&map, &config.special] {
        names.apply(&tokenizer, &mut special);
    }
    special.add_end(special.eos);
    end_ids_of_folder(folder)?.into_iter().for_each(|id| special.add_end(Some(id)));
    tokenizer.special = special;
    tokenizer.max_length = config.max_length().or(tokenizer.max_length);
    tokenizer.chat_template =
        chat_template(folder)?.or_else(|| config.chat_template.and_then(Templates::into_default));
    Ok(tokenizer)
}

/// The template in a file of its own, which has precedence over that in `tokenizer_config.json`.
fn chat_template(folder: &Path) -> Result<Option<String>> {
    let file = folder.join("chat_template.jinja");
    let Some(bytes) = read(&file)? else { return Ok(None) };
    let invalid = |error| TextError::io(&file, std::io::Error::new(ErrorKind::InvalidData, error));
    String::from_utf8(bytes).map(Some).map_err(invalid)
}

/// Names of special tokens, in `special_tokens_map.json` and `tokenizer_config.json`.
#[derive(Default, Deserialize)]
struct SpecialTokensMap {
    bos_token: Option<TokenName>,
    eos_token: Option<TokenName>,
    cls_token: Option<TokenName>,
    sep_token: Option<TokenName>,
    unk_token: Option<TokenName>,
    pad_token: Option<TokenName>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TokenName {
    Text(String),
    Token { content: String },
}

impl SpecialTokensMap {
    /// Sets the tokens that the file names. BERT's files name `[CLS]` and `[SEP]` in place of BOS and EOS.
    fn apply(&self, tokenizer: &Tokenizer, special: &mut SpecialTokens) {
        let id = |name: &Option<TokenName>| {
            let text = match name.as_ref()? {
                TokenName::Text(text) => text,
                TokenName::Token { content } => content,
            };
            tokenizer.token_to_id(text)
        };
        special.bos = id(&self.bos_token).or_else(|| id(&self.cls_token)).or(special.bos);
        special.eos = id(&self.eos_token).or_else(|| id(&self.sep_token)).or(special.eos);
        special.unknown = id(&self.unk_token).or(special.unknown);
        special.padding = id(&self.pad_token).or(special.padding);
    }
}

#[derive(Default, Deserialize)]
struct TokenizerConfig {
    #[serde(flatten)]
    special: SpecialTokensMap,
    chat_template: Option<Templates>,
    /// A float where it is "no maximum": 1e30.
    model_max_length: Option<f64>,
}

impl TokenizerConfig {
    fn max_length(&self) -> Option<usize> {
        let length = self.model_max_length.filter(|length| (1.0..1e9).contains(length))?;
        Some(length as usize)
    }
}

/// One template, or several with names.
#[derive(Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

impl Templates {
    fn into_default(self) -> Option<String> {
        match self {
            Templates::One(template) => Some(template),
            Templates::Named(templates) => {
                templates.into_iter().find(|named| named.name == "default").map(|named| named.template)
            }
        }
    }
}

fn read_json<T: DeserializeOwned>(file: &Path) -> Result<Option<T>> {
    let Some(bytes) = read(file)? else { return Ok(None) };
    super::json::refuse_stand_in(&bytes, &file.display().to_string())?;
    let invalid = |error: serde_json::Error| {
        TextError::invalid_tokenizer(file.display().to_string(), error.to_string())
    };
    serde_json::from_slice(&bytes).map(Some).map_err(invalid)
}

/// Reads a file; `None` if it does not exist.
fn read(file: &Path) -> Result<Option<Vec<u8>>> {
    match guard::read_file(file, json::MAX_FILE) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(TextError::io(file, error)),
    }
}
