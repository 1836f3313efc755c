//! The metadata of a tokenizer from Hugging Face's `tokenizer.json`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::metadata::Metadata;
use crate::error::{Result, StoreError};

/// Limit on the ids of tokens: the size of the largest vocabularies is about 260,000.
const MAX_TOKENS: u64 = 4_000_000;

/// Types of tokens in `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

/// The roles of tokens in `tokenizer_config.json`, with their keys in GGUF.
const ROLES: &[(&str, &str)] = &[
    ("bos_token", "tokenizer.ggml.bos_token_id"),
    ("eos_token", "tokenizer.ggml.eos_token_id"),
    ("unk_token", "tokenizer.ggml.unknown_token_id"),
    // The key is misspelled in llama.cpp.
    ("sep_token", "tokenizer.ggml.seperator_token_id"),
    ("pad_token", "tokenizer.ggml.padding_token_id"),
    ("mask_token", "tokenizer.ggml.mask_token_id"),
];

/// A rule that normalises and splits text before byte-pair encoding, known to llama.cpp by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PreTokenizer {
    /// `gpt-2`: the rule of GPT-2.
    Gpt2,
    /// `llama-bpe`: the rule of Llama 3. Up to three digits form a token.
    LlamaBpe,
    /// `qwen2`: the rule of Qwen 2, 2.5 and 3, after NFC. Each digit is a token.
    Qwen2,
    /// `smollm`: the rule of GPT-2 after splitting at each digit.
    SmolLm,
    /// `olmo`: the rule of GPT-2 after NFC, as of GPT-NeoX and OLMo.
    Olmo,
    /// `command-r`: the rule of SmolLM after NFC.
    CommandR,
}

impl PreTokenizer {
    /// The name in `tokenizer.ggml.pre`.
    pub const fn name(self) -> &'static str {
        match self {
            PreTokenizer::Gpt2 => "gpt-2",
            PreTokenizer::LlamaBpe => "llama-bpe",
            PreTokenizer::Qwen2 => "qwen2",
            PreTokenizer::SmolLm => "smollm",
            PreTokenizer::Olmo => "olmo",
            PreTokenizer::CommandR => "command-r",
        }
    }

    /// Detects the rule from a `tokenizer.json`. `None` for other rules.
    pub fn detect(tokenizer: &Value) -> Option<PreTokenizer> {
        let rule = tokenizer.get("pre_tokenizer")?;
        let steps = match rule.get("pretokenizers").and_then(Value::as_array) {
            Some(steps) => steps.iter().collect(),
            None => vec![rule],
        };
        let kinds: Vec<&str> = steps.iter().filter_map(|step| step.get("type")?.as_str()).collect();
        let rule = match *kinds {
            ["ByteLevel"] => Some(PreTokenizer::Gpt2),
            ["Digits", "ByteLevel"] => {
                let each = steps[0].get("individual_digits").and_then(Value::as_bool);
                each.filter(|each| *each).map(|_| PreTokenizer::SmolLm)
            }
            ["Split", "ByteLevel"] => split_rule(steps[0].get("pattern")?.get("Regex")?.as_str()?),
            _ => None,
        };
        // The name stands for the normalizer too.
        match (rule?, has_nfc(tokenizer)?) {
            (PreTokenizer::Gpt2, true) => Some(PreTokenizer::Olmo),
            (PreTokenizer::SmolLm, true) => Some(PreTokenizer::CommandR),
            (PreTokenizer::LlamaBpe, true) | (PreTokenizer::Qwen2, false) => None,
            (rule, _) => Some(rule),
        }
    }
}

/// Whether a `tokenizer.json` has the normalizer NFC; `None` if it has another.
fn has_nfc(tokenizer: &Value) -> Option<bool> {
    let Some(normalizer) = tokenizer.get("normalizer").filter(|normalizer| !normalizer.is_null()) else {
        return Some(false);
    };
    let steps = match normalizer.get("normalizers").and_then(Value::as_array) {
        Some(steps) => steps.as_slice(),
        None => std::slice::from_ref(normalizer),
    };
    let is_nfc = |step: &Value| step.get("type").and_then(Value::as_str) == Some("NFC");
    steps.iter().all(is_nfc).then_some(!steps.is_empty())
}

/// Tells rules apart by how many digits they keep together, and checks the parts that both have.
fn split_rule(regex: &str) -> Option<PreTokenizer> {
    let common = regex.contains(r"[^\r\n\p{L}\p{N}]?\p{L}+") && regex.contains(r" ?[^\s\p{L}\p{N}]+[\r\n]*");
    if !common {
        None
    } else if regex.contains(r"|\p{N}{1,3}|") {
        Some(PreTokenizer::LlamaBpe)
    } else if regex.contains(r"|\p{N}|") {
        Some(PreTokenizer::Qwen2)
    } else {
        None
    }
}

/// Returns the metadata `tokenizer.*` of a GGUF file for a byte-level BPE tokenizer of Hugging Face.
///
/// `tokenizer` is `tokenizer.json`, and `tokenizer_config` is `tokenizer_config.json`, which names special tokens and the
/// chat template. `pre` is the name of the rule that splits text, for `tokenizer.ggml.pre`; `None` detects the rules of
/// [`PreTokenizer`].
///
/// Gaps in the ids get the tokens `[PAD0]`, `[PAD1]` and so on, of the type "unused".
///
/// # Errors
/// When the tokenizer is not a byte-level BPE, its ids are inconsistent, or `pre` is `None` and the rule is unknown.
pub fn tokenizer_metadata(
    tokenizer: &Value,
    tokenizer_config: Option<&Value>,
    pre: Option<&str>,
) -> Result<Metadata> {
    let model = tokenizer.get("model").ok_or_else(|| problem("has no `model`"))?;
    check_model(tokenizer, model)?;
    let pre = match pre.or_else(|| PreTokenizer::detect(tokenizer).map(PreTokenizer::name)) {
        Some(pre) => pre,
        None => {
            return Err(problem(
                "has a `pre_tokenizer` and `normalizer` whose name in llama.cpp is unknown\n  hint: pass the name, such as \
                 `gpt-2`",
            ));
        }
    };
    let vocabulary = Vocabulary::parse(tokenizer, model)?;
    let mut metadata = Metadata::new();
    metadata.insert("tokenizer.ggml.model", "gpt2");
    metadata.insert("tokenizer.ggml.pre", pre);
    let (tokens, types) = vocabulary.list();
    metadata.insert("tokenizer.ggml.tokens", tokens);
    metadata.insert("tokenizer.ggml.token_type", types);
    metadata.insert("tokenizer.ggml.merges", merges(model)?);
    if let Some(config) = tokenizer_config {
        special_tokens(&mut metadata, &vocabulary, tokenizer, config);
        chat_templates(&mut metadata, config);
    }
    Ok(metadata)
}

fn check_model(tokenizer: &Value, model: &Value) -> Result<()> {
    let kind = model.get("type").and_then(Value::as_str);
    // Old files leave the type out.
    let is_bpe = kind.map_or(model.get("merges").is_some(), |kind| kind == "BPE");
    if !is_bpe {
        let found = kind.unwrap_or("without a type");
        return Err(problem(format!("has a model `{found}`; only byte-level BPE can be written to GGUF")));
    }
    let byte_level = |step: &Value| step.get("type").and_then(Value::as_str) == Some("ByteLevel");
    let decoder = tokenizer.get("decoder");
    if decoder.is_some_and(|decoder| decoder.is_object() && !byte_level(decoder)) {
        return Err(problem(
            "is a BPE of characters, as from SentencePiece; only byte-level BPE can be written to GGUF",
        ));
    }
    Ok(())
}

/// Tokens by id, with their types, and ids by token.
struct Vocabulary<'a> {
    tokens: BTreeMap<u64, (&'a str, i32)>,
    ids: BTreeMap<&'a str, u64>,
}

impl<'a> Vocabulary<'a> {
    fn parse(tokenizer: &'a Value, model: &'a Value) -> Result<Vocabulary<'a>> {
        let entries = model.get("vocab").and_then(Value::as_object);
        let entries = entries.ok_or_else(|| problem("has no object `model.vocab`"))?;
        let mut vocabulary = Vocabulary { tokens: BTreeMap::new(), ids: BTreeMap::new() };
        for (token, id) in entries {
            vocabulary.add(token, id, NORMAL)?;
        }
        for added in tokenizer.get("added_tokens").and_then(Value::as_array).into_iter().flatten() {
            let (Some(token), Some(id)) = (added.get("content").and_then(Value::as_str), added.get("id"))
            else {
                return Err(problem("has an entry of `added_tokens` without `content` or `id`"));
            };
            let special = added.get("special").and_then(Value::as_bool).unwrap_or(false);
            vocabulary.add(token, id, if special { CONTROL } else { USER_DEFINED })?;
        }
        Ok(vocabulary)
    }

    fn add(&mut self, token: &'a str, id: &Value, kind: i32) -> Result<()> {
        let shown = token.escape_debug();
        let Some(id) = id.as_u64().filter(|id| *id < MAX_TOKENS) else {
            return Err(problem(format!("has the id {id} for `{shown}`; ids are below {MAX_TOKENS}")));
        };
        if let Some((other, _)) = self.tokens.insert(id, (token, kind)).filter(|(other, _)| *other != token) {
            return Err(problem(format!("has the id {id} for `{}` and `{shown}`", other.escape_debug())));
        }
        self.ids.insert(token, id);
        Ok(())
    }

    /// All tokens in the order of their ids, and their types.
    fn list(&self) -> (Vec<String>, Vec<i32>) {
        let size = self.tokens.last_key_value().map_or(0, |(id, _)| id + 1);
        let token = |id| match self.tokens.get(&id) {
            Some(&(token, kind)) => (token.to_owned(), kind),
            None => (format!("[PAD{id}]"), UNUSED),
        };
        (0..size).map(token).unzip()
    }
}

/// The merges, each as two tokens with a space between.
fn merges(model: &Value) -> Result<Vec<String>> {
    let merges = model.get("merges").and_then(Value::as_array);
    let merges = merges.ok_or_else(|| problem("has no array `model.merges`"))?;
    let merge = |merge: &Value| match (merge, merge.as_array().map(Vec::as_slice)) {
        (Value::String(pair), _) => Some(pair.clone()),
        // A space within a token is written in the alphabet of byte-level BPE.
        (_, Some([Value::String(left), Value::String(right)])) => {
            Some(format!("{} {}", left.replace(' ', "\u{120}"), right.replace(' ', "\u{120}")))
        }
        _ => None,
    };
    let merges: Option<Vec<String>> = merges.iter().map(merge).collect();
    merges.ok_or_else(|| problem("has an entry of `model.merges` that is not a pair of tokens"))
}

fn special_tokens(metadata: &mut Metadata, vocabulary: &Vocabulary<'_>, tokenizer: &Value, config: &Value) {
    for &(role, key) in ROLES {
        if let Some(&id) = special(config, role).and_then(|token| vocabulary.ids.get(token)) {
            // Ids are below the limit.
            metadata.insert(key, id as u32);
        }
    }
    let ends = template_ends(tokenizer);
    for (role, key, end) in
        [("bos", "tokenizer.ggml.add_bos_token", ends.0), ("eos", "tokenizer.ggml.add_eos_token", ends.1)]
    {
        let stated = config.get(format!("add_{role}_token")).and_then(Value::as_bool);
        let from_template = || Some(special(config, &format!("{role}_token"))? == end?);
        if let Some(adds) = stated.or_else(from_template) {
            metadata.insert(key, adds);
        }
    }
    if let Some(adds) = config.get("add_prefix_space").and_then(Value::as_bool) {
        metadata.insert("tokenizer.ggml.add_space_prefix", adds);
    }
}

/// A special token of `tokenizer_config.json`: a string, or an object with the string.
fn special<'a>(config: &'a Value, role: &str) -> Option<&'a str> {
    let token = config.get(role)?;
    token.as_str().or_else(|| token.get("content")?.as_str())
}

/// The special tokens at the start and at the end of a single sequence.
fn template_ends(tokenizer: &Value) -> (Option<&str>, Option<&str>) {
    let Some(processor) = tokenizer.get("post_processor") else { return (None, None) };
    let steps = match processor.get("processors").and_then(Value::as_array) {
        Some(steps) => steps.as_slice(),
        None => std::slice::from_ref(processor),
    };
    let template = steps.iter().find_map(|step| step.get("single")?.as_array()).map(Vec::as_slice);
    match template {
        Some([first, .., last]) => (special_id(first), special_id(last)),
        Some([_] | []) | None => (None, None),
    }
}

fn special_id(piece: &Value) -> Option<&str> {
    piece.get("SpecialToken")?.get("id")?.as_str()
}

/// Chat templates: one string, or a list of templates with names.
fn chat_templates(metadata: &mut Metadata, config: &Value) {
    match config.get("chat_template") {
        Some(Value::String(template)) => {
            metadata.insert("tokenizer.chat_template", template.as_str());
        }
        Some(Value::Array(templates)) => {
            let mut names = Vec::new();
            for choice in templates {
                let text = |key: &str| choice.get(key).and_then(Value::as_str);
                let (Some(name), Some(template)) = (text("name"), text("template")) else { continue };
                if name == "default" {
                    metadata.insert("tokenizer.chat_template", template);
                    continue;
                }
                let name = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
                metadata.insert(format!("tokenizer.chat_template.{name}"), template);
                names.push(name);
            }
            if !names.is_empty() {
                metadata.insert("tokenizer.chat_templates", names);
            }
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {}
    }
}

fn problem(problem: impl Into<String>) -> StoreError {
    StoreError::json(Path::new("tokenizer.json"), problem.into())
}
