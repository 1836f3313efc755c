//! Byte-level byte-pair encoding ([Radford et al. 2019](https://openai.com/research/better-language-models)) of GGUF
//! vocabularies.

use super::gguf::{GgufVocabulary, ORIGIN, TokenType};
use super::{Engine, tokenization};
use crate::{Result, TextError};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior};

/// How a pre-tokenizer splits text into words.
struct PreTokenizer {
    /// The names in `tokenizer.ggml.pre`.
    names: &'static [&'static str],
    /// Patterns whose matches are isolated, one after the other.
    patterns: &'static [&'static str],
    /// Whether a word that is a token is not merged from bytes.
    ignore_merges: bool,
    /// Whether a sequence starts with BOS unless the file says otherwise.
    add_bos: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The names in `tokenizer.ggml.pre` whose `tokenizer.json` has the normalizer NFC: Qwen and tokenizers derived from it,
/// GPT-NeoX (MPT and OLMo have its tokenizer), and Command R. llama.cpp does not normalise.
const NFC_NAMES: [&str; 7] =
    ["qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "mpt", "olmo", "command-r"];

/// The patterns are those of the models' `tokenizer.json`.
const PRE_TOKENIZERS: [PreTokenizer; 7] = [
    PreTokenizer {
        names: &["gpt-2", "gpt2", "phi-2", "olmo", "mpt", "jais", "roberta-bpe", "gigachat"],
        patterns: &[GPT2],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
        patterns: &[r"\p{N}", GPT2],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "smaug-bpe", "dbrx"],
        patterns: &[LLAMA3],
        ignore_merges: true,
        add_bos: true,
    },
    PreTokenizer {
        names: &["qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan"],
        patterns: &[QWEN2],
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer { names: &["tekken"], patterns: &[TEKKEN], ignore_merges: true, add_bos: true },
    PreTokenizer { names: &["gpt-4o", "llama4"], patterns: &[O200K], ignore_merges: false, add_bos: false },
    // llama.cpp's pattern for files without a name.
    PreTokenizer {
        names: &["default"],
        patterns: &[
            r"[\p{P}\$\+<=>\^~\|]+",
            r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
            r"\p{N}+",
            r"[0-9][0-9][0-9]",
        ],
        ignore_merges: false,
        add_bos: false,
    },
];

/// Builds a byte-level BPE tokenizer.
pub(super) fn engine(vocabulary: GgufVocabulary, kinds: &[TokenType]) -> Result<Engine> {
    let name = vocabulary.pre.as_deref().unwrap_or("default");
    let (pre, is_nfc) = (find(name)?, NFC_NAMES.contains(&name));
    let affixes = vocabulary.affixes(pre.add_bos);
    let invalid = |error: tokenizers::Error| TextError::invalid_tokenizer(ORIGIN, error.to_string());
    let model = model(&vocabulary, pre)?;
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    if is_nfc {
        tokenizer.with_normalizer(Some(NFC)).map_err(invalid)?;
    }
    tokenizer.with_pre_tokenizer(Some(splitter(pre).map_err(invalid)?));
    tokenizer.with_decoder(Some(ByteLevel::new(false, false, false)));
    add_special(&mut tokenizer, &vocabulary.tokens, kinds)?;
    Ok(Engine::Library { tokenizer: Box::new(tokenizer), affixes: Some(affixes), growth: 1 })
}

/// Registers control and user-defined tokens, so that their text becomes these tokens.
pub(super) fn add_special(
    tokenizer: &mut tokenizers::Tokenizer,
    tokens: &[String],
    kinds: &[TokenType],
) -> Result<()> {
    let of = |kind: TokenType, special: bool| {
        let named = tokens.iter().zip(kinds).filter(move |(text, own)| **own == kind && !text.is_empty());
        named
            .map(move |(text, _)| AddedToken::from(text.clone(), special).normalized(false))
            .collect::<Vec<_>>()
    };
    let register = |error: tokenizers::Error| tokenization("register special tokens", &*error);
    tokenizer.add_special_tokens(of(TokenType::Control, true)).map_err(register)?;
    tokenizer.add_special_tokens(of(TokenType::Unknown, true)).map_err(register)?;
    tokenizer.add_tokens(of(TokenType::UserDefined, false)).map_err(register)?;
    Ok(())
}

fn find(name: &str) -> Result<&'static PreTokenizer> {
    PRE_TOKENIZERS.iter().find(|pre| pre.names.contains(&name)).ok_or_else(|| {
        let known: Vec<&str> = PRE_TOKENIZERS.iter().flat_map(|pre| pre.names).copied().collect();
        let problem = format!(
            "tokenizer.ggml.pre is {name:?}, which is not supported\n  hint: supported are {}; or use the model's tokenizer.json",
            known.join(", ")
        );
        TextError::invalid_tokenizer(ORIGIN, problem)
    })
}

fn model(vocabulary: &GgufVocabulary, pre: &PreTokenizer) -> Result<BPE> {
    let mut ids = Vocab::default();
    for (id, token) in (0..).zip(&vocabulary.tokens) {
        ids.entry(token.clone()).or_insert(id);
    }
    let invalid = |problem: String| TextError::invalid_tokenizer(ORIGIN, problem);
    let mut merges = Vec::with_capacity(vocabulary.merges.len());
    for (index, merge) in vocabulary.merges.iter().enumerate() {
        // A token may start with a space.
        let space = merge.char_indices().skip(1).find(|(_, character)| *character == ' ');
        let (at, _) = space.ok_or_else(|| invalid(format!("merge {index} is {merge:?}, not two tokens")))?;
        let (left, right) = (&merge[..at], &merge[at + 1..]);
        for token in [left, right, &format!("{left}{right}")] {
            if !ids.contains_key(token) {
                return Err(invalid(format!(
                    "merge {index} is {merge:?}, but {token:?} is not in the vocabulary"
                )));
            }
        }
        merges.push((left.to_owned(), right.to_owned()));
    }
    let builder = BPE::builder().vocab_and_merges(ids, merges).ignore_merges(pre.ignore_merges);
    builder.build().map_err(|error| invalid(error.to_string()))
}

/// The pre-tokenizer: the patterns, then bytes as printable characters.
fn splitter(pre: &PreTokenizer) -> tokenizers::Result<PreTokenizerWrapper> {
    let split = |pattern: &&str| {
        let pattern = SplitPattern::Regex((*pattern).to_owned());
        Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map(PreTokenizerWrapper::from)
    };
    let mut steps = pre.patterns.iter().map(split).collect::<tokenizers::Result<Vec<_>>>()?;
    steps.push(ByteLevel::new(false, false, false).into());
    Ok(Sequence::new(steps).into())
}
