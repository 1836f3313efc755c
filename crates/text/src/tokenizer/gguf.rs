//! Vocabularies of GGUF files.

use super::sentence_piece::SentencePiece;
use super::{Affixes, Engine, SpecialTokens, Tokenizer, byte_pair, word_piece};
use crate::{Result, TextError};

/// The origin that errors name.
pub(super) const ORIGIN: &str = "GGUF vocabulary";

/// The longest token in bytes. Those of published models have at most 512.
const MAX_TOKEN: usize = 1 << 12;

/// Tokens that end a turn or a text in well-known families, beside EOS.
const END_TOKENS: [&str; 9] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|return|>",
    "<｜end▁of▁sentence｜>",
];

/// The vocabulary of a GGUF file: its metadata under `tokenizer.ggml` (see the
/// [specification](https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)).
///
/// ```
/// use kiln_text::{GgufVocabulary, Tokenizer};
///
/// let tokens = ["a", "b", "ab", "<|end|>"].map(String::from).to_vec();
/// let tokenizer = Tokenizer::from_gguf(GgufVocabulary {
///     model: "gpt2".into(),
///     pre: Some("gpt-2".into()),
///     tokens,
///     token_types: vec![1, 1, 1, 3],
///     merges: vec!["a b".into()],
///     eos: Some(3),
///     ..GgufVocabulary::default()
/// })?;
/// assert_eq!(tokenizer.encode("abb<|end|>", false)?, [2, 1, 3]);
/// # Ok::<(), kiln_text::TextError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GgufVocabulary {
    /// The kind of model, `tokenizer.ggml.model`: `gpt2`, `llama` or `bert`.
    pub model: String,
    /// The pre-tokenizer of byte-level BPE, `tokenizer.ggml.pre`, such as `llama-bpe`, `qwen2` or `smollm`.
    pub pre: Option<String>,
    /// The text of each token.
    pub tokens: Vec<String>,
    /// The type of each token: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte. Empty: all are normal.
    pub token_types: Vec<i32>,
    /// The score of each token, for `llama`.
    pub scores: Vec<f32>,
    /// Pairs that merge, separated by a space, the first to merge first, for `gpt2`.
    pub merges: Vec<String>,
    /// The id of BOS.
    pub bos: Option<u32>,
    /// The id of EOS.
    pub eos: Option<u32>,
    /// The id of the end of a turn.
    pub eot: Option<u32>,
    /// The id of unknown text.
    pub unknown: Option<u32>,
    /// The id of padding.
    pub padding: Option<u32>,
    /// The id of the start of a sequence for `bert`, `[CLS]`. Default: `bos`, or the token of that text.
    pub classification: Option<u32>,
    /// The id of the end of a sequence for `bert`, `[SEP]`. Default: the token of that text.
    pub separator: Option<u32>,
    /// Whether a sequence starts with BOS. Default: true for `llama` and for `llama-bpe`.
    pub add_bos: Option<bool>,
    /// Whether a sequence ends with EOS. Default: false.
    pub add_eos: Option<bool>,
    /// Whether `llama` adds a space before the text. Default: true.
    pub add_space_prefix: Option<bool>,
    /// The chat template.
    pub chat_template: Option<String>,
}

/// The type of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenType {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// Builds the tokenizer of a vocabulary.
pub(super) fn tokenizer(mut vocabulary: GgufVocabulary) -> Result<Tokenizer> {
    vocabulary.check_ids()?;
    vocabulary.check_tokens()?;
    let kinds = vocabulary.kinds()?;
    let mut special = SpecialTokens {
        bos: vocabulary.bos,
        eos: vocabulary.eos,
        end: Vec::new(),
        unknown: vocabulary.unknown,
        padding: vocabulary.padding,
    };
    special.add_end(vocabulary.eos);
    special.add_end(vocabulary.eot);
    for (id, (token, kind)) in (0..).zip(vocabulary.tokens.iter().zip(&kinds)) {
        if *kind == TokenType::Control && END_TOKENS.contains(&token.as_str()) {
            special.add_end(Some(id));
        }
    }
    let chat_template = vocabulary.chat_template.take();
    let engine = match vocabulary.model.as_str() {
        "gpt2" => byte_pair::engine(vocabulary, &kinds)?,
        "llama" => sentence_piece(vocabulary, &kinds)?,
        "bert" => word_piece::engine(vocabulary, &kinds, &mut special)?,
        other => {
            let problem = format!(
                "tokenizer.ggml.model is {other:?}\n  hint: supported are gpt2, llama and bert; use the model's tokenizer.json"
            );
            return Err(TextError::invalid_tokenizer(ORIGIN, problem));
        }
    };
    Ok(Tokenizer { engine, special, chat_template, max_length: None })
}

fn sentence_piece(vocabulary: GgufVocabulary, kinds: &[TokenType]) -> Result<Engine> {
    let affixes = vocabulary.affixes(true);
    let GgufVocabulary { tokens, scores, unknown, add_space_prefix, .. } = vocabulary;
    if scores.len() != tokens.len() {
        let problem =
            format!("{} scores for {} tokens; model llama needs one for each", scores.len(), tokens.len());
        return Err(TextError::invalid_tokenizer(ORIGIN, problem));
    }
    let of_type =
        || kinds.iter().position(|&kind| kind == TokenType::Unknown).and_then(|id| u32::try_from(id).ok());
    let unknown = unknown.or_else(of_type);
    let model = SentencePiece::new(tokens, kinds, &scores, unknown, add_space_prefix.unwrap_or(true));
    Ok(Engine::SentencePiece { model: Box::new(model), affixes })
}

impl GgufVocabulary {
    /// The special tokens around a sequence.
    pub(super) fn affixes(&self, add_bos_by_default: bool) -> Affixes {
        let add = |flag: Option<bool>, default: bool, id: Option<u32>| {
            id.filter(|_| flag.unwrap_or(default)).into_iter().collect()
        };
        Affixes {
            prefix: add(self.add_bos, add_bos_by_default, self.bos),
            suffix: add(self.add_eos, false, self.eos),
        }
    }

    fn kinds(&self) -> Result<Vec<TokenType>> {
        if self.token_types.is_empty() {
            return Ok(vec![TokenType::Normal; self.tokens.len()]);
        }
        if self.token_types.len() != self.tokens.len() {
            let problem = format!("{} token types for {} tokens", self.token_types.len(), self.tokens.len());
            return Err(TextError::invalid_tokenizer(ORIGIN, problem));
        }
        self.token_types.iter().enumerate().map(|(id, &kind)| TokenType::new(id, kind)).collect()
    }

    /// Refuses long tokens: encoding looks up the text of each length that a token has.
    fn check_tokens(&self) -> Result<()> {
        match self.tokens.iter().position(|token| token.len() > MAX_TOKEN) {
            Some(id) => {
                let bytes = self.tokens[id].len();
                let problem = format!("token {id} has {bytes} bytes, more than the {MAX_TOKEN} allowed");
                Err(TextError::invalid_tokenizer(ORIGIN, problem))
            }
            None => Ok(()),
        }
    }

    /// Refuses special tokens outside the vocabulary.
    fn check_ids(&self) -> Result<()> {
        let ids = [
            ("bos", self.bos),
            ("eos", self.eos),
            ("eot", self.eot),
            ("unknown", self.unknown),
            ("padding", self.padding),
            ("classification", self.classification),
            ("separator", self.separator),
        ];
        for (name, id) in ids {
            if let Some(id) = id.filter(|&id| id as usize >= self.tokens.len()) {
                let problem = format!("the id of {name} is {id}, but there are {} tokens", self.tokens.len());
                return Err(TextError::invalid_tokenizer(ORIGIN, problem));
            }
        }
        Ok(())
    }
}

impl TokenType {
    fn new(id: usize, kind: i32) -> Result<Self> {
        match kind {
            // Some converters leave the type of padding undefined (0).
            0 | 5 => Ok(TokenType::Unused),
            1 => Ok(TokenType::Normal),
            2 => Ok(TokenType::Unknown),
            3 => Ok(TokenType::Control),
            4 => Ok(TokenType::UserDefined),
            6 => Ok(TokenType::Byte),
            other => {
                let problem = format!("the type of token {id} is {other}\n  hint: types are 1 to 6");
                Err(TextError::invalid_tokenizer(ORIGIN, problem))
            }
        }
    }
}
