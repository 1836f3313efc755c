//! Tokenizers: text to token ids and back.

mod bounds;
mod byte_pair;
mod charsmap;
mod decode_stream;
mod folder;
mod gguf;
mod gguf_file;
mod json;
mod sentence_piece;
mod word_piece;

use crate::{PaddingSide, Result, TextError, TokenBatch, guard};
use sentence_piece::SentencePiece;
use std::fmt;
use std::path::Path;

pub use decode_stream::DecodeStream;
pub use gguf::GgufVocabulary;

/// A tokenizer, from Hugging Face's `tokenizer.json` or the vocabulary of a GGUF file.
///
/// ```no_run
/// use kiln_text::Tokenizer;
///
/// # fn main() -> kiln_text::Result<()> {
/// let tokenizer = Tokenizer::from_file("MiniLM/tokenizer.json")?;
/// let ids = tokenizer.encode("a tensor library", true)?;
/// assert_eq!(tokenizer.decode(&ids, true)?, "a tensor library");
/// # Ok(())
/// # }
/// ```
pub struct Tokenizer {
    engine: Engine,
    special: SpecialTokens,
    chat_template: Option<String>,
    max_length: Option<usize>,
}

/// The implementation of a tokenizer.
enum Engine {
    Library {
        tokenizer: Box<tokenizers::Tokenizer>,
        /// The special tokens around a sequence; `None`: the post-processor of the tokenizer adds them.
        affixes: Option<Affixes>,
        /// The most bytes that a byte of text becomes before it is encoded.
        growth: usize,
    },
    SentencePiece {
        model: Box<SentencePiece>,
        affixes: Affixes,
    },
}

/// Special tokens before and after a sequence.
#[derive(Clone, Debug, Default)]
struct Affixes {
    prefix: Vec<u32>,
    suffix: Vec<u32>,
}

/// The ids of special tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// The start of a sequence (BOS).
    pub bos: Option<u32>,
    /// The end of a sequence (EOS).
    pub eos: Option<u32>,
    /// All tokens that end a generation: EOS, the end of a turn, and those in `generation_config.json`.
    pub end: Vec<u32>,
    /// The token of unknown text.
    pub unknown: Option<u32>,
    /// The token of padding.
    pub padding: Option<u32>,
}

impl SpecialTokens {
    /// Adds a token that ends a generation, once.
    fn add_end(&mut self, id: Option<u32>) {
        if let Some(id) = id.filter(|id| !self.end.contains(id)) {
            self.end.push(id);
        }
    }
}

/// Settings of [`Tokenizer::encode_batch`].
#[derive(Clone, Debug)]
pub struct BatchOptions {
    /// Whether each row has the special tokens of a sequence, such as BOS, or `[CLS]` and `[SEP]`. Default: true.
    pub add_special: bool,
    /// The maximum number of tokens of a row, special tokens included. Longer text loses its end. Default: no maximum.
    pub max_length: Option<usize>,
    /// The side of the padding. Default: right.
    pub padding: PaddingSide,
}

impl Default for BatchOptions {
    fn default() -> Self {
        BatchOptions { add_special: true, max_length: None, padding: PaddingSide::Right }
    }
}

impl Tokenizer {
    /// Reads Hugging Face's `tokenizer.json`.
    ///
    /// The padding and truncation in the file are ignored; [`max_length`](Tokenizer::max_length) returns the maximum
    /// length. [`from_folder`](Tokenizer::from_folder) also reads the files beside it, which name BOS and EOS.
    ///
    /// Files of strangers are checked before they are used. Limits beyond which there is an error:
    ///
    /// | what | limit |
    /// |---|---|
    /// | the file | 128 MiB |
    /// | a text, times the most bytes that normalization makes of a byte | 128 MiB |
    /// | bytes that normalization, or the decoder, makes of one | 48 |
    /// | a pattern or text of a step | 1 KiB |
    /// | steps of a normalizer with its pre-tokenizer, or of a decoder | 64 |
    /// | WordPiece: `max_input_chars_per_word` | 100 |
    /// | Unigram: a token; all tokens; those that start at one place | 256 bytes; 8 MiB; 4 KiB |
    /// | `precompiled_charsmap` | 16 MiB, and all that its trie refers to exists |
    ///
    /// # Errors
    /// When the file cannot be read, is no tokenizer, or exceeds a limit.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = guard::read_file(path, json::MAX_FILE).map_err(|source| TextError::io(path, source))?;
        json::tokenizer(&bytes, &path.display().to_string())
    }

    /// Reads the contents of a `tokenizer.json`; see [`from_file`](Tokenizer::from_file).
    ///
    /// # Errors
    /// When the bytes are no tokenizer.
    pub fn from_bytes(bytes: impl AsRef<[u8]>) -> Result<Self> {
        json::tokenizer(bytes.as_ref(), "tokenizer.json")
    }

    /// Reads the tokenizer of a Hugging Face folder.
    ///
    /// | file | contents |
    /// |---|---|
    /// | `tokenizer.json` | the tokenizer |
    /// | `tokenizer_config.json`, `special_tokens_map.json` | BOS, EOS, padding, the chat template, the maximum length |
    /// | `chat_template.jinja` | the chat template |
    /// | `generation_config.json` | the tokens that end a generation |
    ///
    /// # Errors
    /// When there is no `tokenizer.json`, or a file cannot be read or is invalid.
    pub fn from_folder(path: impl AsRef<Path>) -> Result<Self> {
        folder::tokenizer(path.as_ref())
    }

    /// Builds the tokenizer of a GGUF file: byte-level BPE (`gpt2`), SentencePiece BPE (`llama`), or WordPiece
    /// (`bert`).
    ///
    /// # Errors
    /// When the model or its pre-tokenizer is not supported, or the vocabulary is inconsistent.
    pub fn from_gguf(vocabulary: GgufVocabulary) -> Result<Self> {
        gguf::tokenizer(vocabulary)
    }

    /// Encodes text as token ids. Text of special tokens, such as `<|im_end|>`, becomes these tokens. `add_special`
    /// adds the special tokens of a sequence, such as BOS, or `[CLS]` and `[SEP]`; a rendered chat template contains
    /// them already.
    ///
    /// # Errors
    /// When a character has no token, and there is no token of unknown text.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        self.encode_within(text, add_special, None)
    }

    /// Encodes texts and pads them to one length.
    ///
    /// # Errors
    /// As [`encode`](Tokenizer::encode), or when `max_length` is less than the number of special tokens.
    pub fn encode_batch<T: AsRef<str>>(&self, texts: &[T], options: &BatchOptions) -> Result<TokenBatch> {
        let encode = |text: &T| self.encode_within(text.as_ref(), options.add_special, options.max_length);
        let rows = texts.iter().map(encode).collect::<Result<Vec<_>>>()?;
        Ok(TokenBatch::from_rows(&rows, self.padding_or_end(), options.padding))
    }

    fn encode_within(&self, text: &str, add_special: bool, max: Option<usize>) -> Result<Vec<u32>> {
        match &self.engine {
            Engine::Library { tokenizer, affixes: None, growth } => {
                json::encode(tokenizer, text, add_special, max, *growth)
            }
            Engine::Library { tokenizer, affixes: Some(affixes), growth } => {
                let ids = json::encode(tokenizer, text, false, None, *growth)?;
                affixes.around(ids, add_special, max)
            }
            Engine::SentencePiece { model, affixes } => affixes.around(model.encode(text)?, add_special, max),
        }
    }

    /// Decodes token ids. `skip_special` leaves out special tokens. Ids without a token are left out, and bytes that
    /// are not UTF-8 become `U+FFFD`.
    ///
    /// # Errors
    /// When the decoder of a `tokenizer.json` fails.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        match &self.engine {
            Engine::Library { tokenizer, .. } => {
                let failed = |problem| TextError::Tokenization { action: "decode the ids", problem };
                let decoded = guard::caught(|| tokenizer.decode(ids, skip_special)).map_err(failed)?;
                decoded.map_err(|error| tokenization("decode the ids", &*error))
            }
            Engine::SentencePiece { model, .. } => Ok(model.decode(ids, skip_special)),
        }
    }

    /// Returns a decoder that takes ids one by one and returns text as soon as its characters are complete.
    pub fn decode_stream(&self, skip_special: bool) -> DecodeStream<'_> {
        DecodeStream::new(self, skip_special)
    }

    /// Returns the number of tokens of a text, without special tokens of the sequence.
    ///
    /// # Errors
    /// As [`encode`](Tokenizer::encode).
    pub fn count(&self, text: &str) -> Result<usize> {
        Ok(self.encode(text, false)?.len())
    }

    /// Returns the id of a token.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        match &self.engine {
            Engine::Library { tokenizer, .. } => tokenizer.token_to_id(token),
            Engine::SentencePiece { model, .. } => model.token_to_id(token),
        }
    }

    /// Returns the token of an id, as the vocabulary spells it: byte-level BPE has `Ġ` for a space, and SentencePiece
    /// `▁`.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        match &self.engine {
            Engine::Library { tokenizer, .. } => tokenizer.id_to_token(id),
            Engine::SentencePiece { model, .. } => model.id_to_token(id).map(str::to_owned),
        }
    }

    /// Returns whether a token is special: decoding can leave it out.
    pub fn is_special(&self, id: u32) -> bool {
        match &self.engine {
            Engine::Library { tokenizer, .. } => tokenizer
                .get_added_vocabulary()
                .get_added_tokens_decoder()
                .get(&id)
                .is_some_and(|token| token.special),
            Engine::SentencePiece { model, .. } => model.is_special(id),
        }
    }

    /// Returns the number of tokens. Models may have more logits, as padding.
    pub fn vocabulary_size(&self) -> usize {
        match &self.engine {
            Engine::Library { tokenizer, .. } => tokenizer.get_vocab_size(true),
            Engine::SentencePiece { model, .. } => model.vocabulary_size(),
        }
    }

    /// Returns the ids of special tokens.
    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.special
    }

    /// Replaces the ids of special tokens, for a file that does not name them.
    #[must_use]
    pub fn with_special_tokens(mut self, special: SpecialTokens) -> Self {
        self.special = special;
        self
    }

    /// Returns the id of the token at the start of a sequence (BOS).
    pub fn bos_id(&self) -> Option<u32> {
        self.special.bos
    }

    /// Returns the id of the token at the end of a sequence (EOS).
    pub fn eos_id(&self) -> Option<u32> {
        self.special.eos
    }

    /// Returns the ids of all tokens that end a generation.
    pub fn end_ids(&self) -> &[u32] {
        &self.special.end
    }

    /// Returns the id of the padding token.
    pub fn padding_id(&self) -> Option<u32> {
        self.special.padding
    }

    /// Returns the id that fills padded rows: the padding token, EOS, or 0. Masks hide it.
    pub(crate) fn padding_or_end(&self) -> u32 {
        self.special.padding.or(self.special.eos).unwrap_or(0)
    }

    /// Returns the chat template in the language of Jinja; see [`ChatTemplate`](crate::ChatTemplate).
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }

    /// Returns the maximum number of tokens of a sequence, if the files state it.
    pub fn max_length(&self) -> Option<usize> {
        self.max_length
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = match &self.engine {
            Engine::Library { .. } => "tokenizers",
            Engine::SentencePiece { .. } => "SentencePiece",
        };
        f.debug_struct("Tokenizer")
            .field("engine", &engine)
            .field("vocabulary_size", &self.vocabulary_size())
            .field("special", &self.special)
            .field("max_length", &self.max_length)
            .finish_non_exhaustive()
    }
}

impl Affixes {
    /// Adds the special tokens, and truncates the ids so that all have at most `max` tokens.
    fn around(&self, mut ids: Vec<u32>, add_special: bool, max: Option<usize>) -> Result<Vec<u32>> {
        let special = if add_special { self.prefix.len() + self.suffix.len() } else { 0 };
        if let Some(max) = max {
            ids.truncate(room(max, special)?);
        }
        if special == 0 {
            return Ok(ids);
        }
        Ok([self.prefix.as_slice(), &ids, &self.suffix].concat())
    }
}

/// The number of tokens beside the special ones.
fn room(max: usize, special: usize) -> Result<usize> {
    max.checked_sub(special).ok_or_else(|| TextError::InvalidArgument {
        function: "Tokenizer::encode_batch",
        problem: format!("max_length is {max}, but {special} special tokens surround each row"),
    })
}

fn tokenization(action: &'static str, error: &dyn std::error::Error) -> TextError {
    TextError::Tokenization { action, problem: error.to_string() }
}
