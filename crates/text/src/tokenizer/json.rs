//! Tokenizers of the `tokenizers` crate, from `tokenizer.json`.

use super::{Engine, SpecialTokens, Tokenizer, room, tokenization};
use crate::{Result, TextError};
use kiln_store::StoreError;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashMap;
use tokenizers::{PostProcessor, TruncationDirection};

/// Tokens of well-known families, for a file that does not name its special tokens.
const BOS: [&str; 6] = ["<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>", "[CLS]", "<|endoftext|>"];
const EOS: [&str; 6] = ["</s>", "<|end_of_text|>", "<eos>", "[SEP]", "<|endoftext|>", "<|im_end|>"];
const PADDING: [&str; 4] = ["<pad>", "[PAD]", "<|padding|>", "<|finetune_right_pad_id|>"];
const UNKNOWN: [&str; 2] = ["<unk>", "[UNK]"];

/// Reads a `tokenizer.json`.
pub(super) fn tokenizer(bytes: &[u8], origin: &str) -> Result<Tokenizer> {
    refuse_stand_in(bytes, origin)?;
    check_merges(bytes, origin)?;
    let invalid = |problem: String| TextError::invalid_tokenizer(origin, problem);
    let mut library = tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| invalid(error.to_string()))?;
    let max_length = library.get_truncation().map(|truncation| truncation.max_length);
    let of_padding = library.get_padding().map(|padding| padding.pad_id);
    library.with_truncation(None).map_err(|error| invalid(error.to_string()))?;
    library.with_padding(None);
    let find = |names: &[&str]| names.iter().find_map(|name| library.token_to_id(name));
    let mut special = SpecialTokens {
        bos: find(&BOS),
        eos: find(&EOS),
        end: Vec::new(),
        unknown: find(&UNKNOWN),
        padding: of_padding.or_else(|| find(&PADDING)),
    };
    special.add_end(special.eos);
    let engine = Engine::Library { tokenizer: Box::new(library), affixes: None };
    Ok(Tokenizer { engine, special, chat_template: None, max_length })
}

/// Refuses a pointer of Git LFS, a page or an empty file.
pub(super) fn refuse_stand_in(bytes: &[u8], origin: &str) -> Result<()> {
    match kiln_store::refuse_stand_in(origin.as_ref(), bytes) {
        Err(StoreError::NotWeights { found, hint, .. }) => {
            Err(TextError::invalid_tokenizer(origin, format!("{found}\n  hint: {hint}")))
        }
        other => Ok(other?),
    }
}

/// Encodes text. `max` counts special tokens.
pub(super) fn encode(
    library: &tokenizers::Tokenizer,
    text: &str,
    add_special: bool,
    max: Option<usize>,
) -> Result<Vec<u32>> {
    let encode = |add_special| {
        library.encode_fast(text, add_special).map_err(|error| tokenization("encode the text", &*error))
    };
    let Some(max) = max else {
        return Ok(encode(add_special)?.get_ids().to_vec());
    };
    let mut encoding = encode(false)?;
    let added = |processor: &tokenizers::PostProcessorWrapper| processor.added_tokens(false);
    let special = if add_special { library.get_post_processor().map_or(0, added) } else { 0 };
    encoding.truncate(room(max, special)?, 0, TruncationDirection::Right);
    let encoding = library
        .post_process(encoding, None, add_special)
        .map_err(|error| tokenization("add the special tokens", &*error))?;
    Ok(encoding.get_ids().to_vec())
}

/// The parts of a `tokenizer.json` whose lengths the library does not check.
#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    model: Option<Model<'a>>,
}

#[derive(Deserialize)]
struct Model<'a> {
    #[serde(borrow, default)]
    vocab: Vocabulary<'a>,
    #[serde(borrow, default)]
    merges: Vec<Merge<'a>>,
    #[serde(borrow)]
    continuing_subword_prefix: Option<Cow<'a, str>>,
}

/// A vocabulary is a map, or in Unigram models a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Vocabulary<'a> {
    Map(#[serde(borrow)] HashMap<Cow<'a, str>, u32>),
    Other(serde::de::IgnoredAny),
}

impl Default for Vocabulary<'_> {
    fn default() -> Self {
        Vocabulary::Other(serde::de::IgnoredAny)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge<'a> {
    Pair(#[serde(borrow)] Cow<'a, str>, #[serde(borrow)] Cow<'a, str>),
    Joined(#[serde(borrow)] Cow<'a, str>),
}

/// Refuses merges whose result is longer than every token: the library would panic.
fn check_merges(bytes: &[u8], origin: &str) -> Result<()> {
    let document: Document<'_> = serde_json::from_slice(bytes)
        .map_err(|error| TextError::invalid_tokenizer(origin, format!("not a tokenizer.json: {error}")))?;
    let Some(Model { vocab: Vocabulary::Map(vocab), merges, continuing_subword_prefix }) = document.model
    else {
        return Ok(());
    };
    let longest = vocab.keys().map(|token| token.len()).max().unwrap_or(0);
    let prefix = continuing_subword_prefix.map_or(0, |prefix| prefix.len());
    for (index, merge) in merges.iter().enumerate() {
        let (left, right) = match merge {
            Merge::Pair(left, right) => (left.len(), right.len()),
            Merge::Joined(both) => match both.split_once(' ') {
                Some((left, right)) => (left.len(), right.len()),
                None => continue,
            },
        };
        if right < prefix || left + right - prefix > longest {
            let problem = format!("merge {index} makes no token of the vocabulary");
            return Err(TextError::invalid_tokenizer(origin, problem));
        }
    }
    Ok(())
}
