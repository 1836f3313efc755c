//! Tokenizers of the `tokenizers` crate, from `tokenizer.json`.

use super::bounds::Document;
use super::{Engine, SpecialTokens, Tokenizer, room, tokenization};
use crate::{Result, TextError, guard};
use kiln_store::StoreError;
use tokenizers::{PostProcessor, TruncationDirection};

/// The longest `tokenizer.json` in bytes. Those of published models have at most 40 MB.
pub(super) const MAX_FILE: u64 = 128 << 20;

/// The most bytes of a text after its normalization.
const MAX_ENCODED: usize = 128 << 20;

/// A text to try a tokenizer with.
const TRIAL: &str = "a B 1.";

/// Tokens of well-known families, for a file that does not name its special tokens.
const BOS: [&str; 6] = ["<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>", "[CLS]", "<|endoftext|>"];
const EOS: [&str; 6] = ["</s>", "<|end_of_text|>", "<eos>", "[SEP]", "<|endoftext|>", "<|im_end|>"];
const PADDING: [&str; 4] = ["<pad>", "[PAD]", "<|padding|>", "<|finetune_right_pad_id|>"];
const UNKNOWN: [&str; 2] = ["<unk>", "[UNK]"];

/// Reads a `tokenizer.json`.
pub(super) fn tokenizer(bytes: &[u8], origin: &str) -> Result<Tokenizer> {
    refuse_stand_in(bytes, origin)?;
    let invalid = |problem: String| TextError::invalid_tokenizer(origin, problem);
    if bytes.len() as u64 > MAX_FILE {
        return Err(invalid(format!("it has {} bytes, more than the {MAX_FILE} allowed", bytes.len())));
    }
    guard::on_own_stack(|| read(bytes, origin)).map_err(invalid)?
}

fn read(bytes: &[u8], origin: &str) -> Result<Tokenizer> {
    let invalid = |problem: String| TextError::invalid_tokenizer(origin, problem);
    let document: Document<'_> =
        serde_json::from_slice(bytes).map_err(|error| invalid(format!("not a tokenizer.json: {error}")))?;
    let growth = document.check().map_err(invalid)?;
    drop(document);
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
    let engine = Engine::Library { tokenizer: Box::new(library), affixes: None, growth };
    let tokenizer = Tokenizer { engine, special, chat_template: None, max_length };
    // Special tokens that do not exist, and steps without a length, fail with every text.
    match tokenizer.encode(TRIAL, true) {
        Err(TextError::Tokenization { problem, .. }) if problem.starts_with(guard::PANIC) => {
            Err(invalid(problem))
        }
        Ok(_) | Err(_) => Ok(tokenizer),
    }
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

/// Encodes text. `max` counts special tokens, and `growth` is the most bytes that a byte of text becomes.
pub(super) fn encode(
    library: &tokenizers::Tokenizer,
    text: &str,
    add_special: bool,
    max: Option<usize>,
    growth: usize,
) -> Result<Vec<u32>> {
    let failed = |problem| TextError::Tokenization { action: "encode the text", problem };
    if text.len() > MAX_ENCODED / growth {
        return Err(failed(format!(
            "it has {} bytes, more than the {} that this tokenizer accepts\n  hint: split the text",
            text.len(),
            MAX_ENCODED / growth
        )));
    }
    guard::caught(|| encode_unguarded(library, text, add_special, max)).map_err(failed)?
}

fn encode_unguarded(
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
