//! WordPiece of BERT ([Devlin et al. 2019](https://arxiv.org/abs/1810.04805)), of GGUF vocabularies.

use super::byte_pair::add_special;
use super::gguf::{GgufVocabulary, ORIGIN, TokenType};
use super::{Affixes, Engine, SpecialTokens};
use crate::{Result, TextError};
use tokenizers::models::bpe::Vocab;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;

/// The prefix of tokens inside a word.
const CONTINUATION: &str = "##";

/// Builds a WordPiece tokenizer. Text becomes lower-case without accents, unless the vocabulary has capital letters: the
/// files do not say which it is.
pub(super) fn engine(
    mut vocabulary: GgufVocabulary,
    kinds: &[TokenType],
    special: &mut SpecialTokens,
) -> Result<Engine> {
    let tokens: Vec<String> = vocabulary.tokens.iter().map(|token| original(token)).collect();
    let find =
        |text: &str| tokens.iter().position(|token| token == text).and_then(|id| u32::try_from(id).ok());
    let missing = |name: &str| {
        TextError::invalid_tokenizer(
            ORIGIN,
            format!("model bert needs the token {name}, which is not in the vocabulary"),
        )
    };
    let start = vocabulary
        .classification
        .or(vocabulary.bos)
        .or_else(|| find("[CLS]"))
        .ok_or_else(|| missing("[CLS]"))?;
    let end = vocabulary.separator.or_else(|| find("[SEP]")).ok_or_else(|| missing("[SEP]"))?;
    let unknown = vocabulary.unknown.or_else(|| find("[UNK]")).ok_or_else(|| missing("[UNK]"))?;
    special.unknown = Some(unknown);
    special.padding = special.padding.or_else(|| find("[PAD]"));
    let affixes = Affixes { prefix: vec![start], suffix: vec![end] };

    let mut ids = Vocab::default();
    for (id, token) in (0..).zip(&tokens) {
        ids.entry(token.clone()).or_insert(id);
    }
    let builder = WordPiece::builder().vocab(ids).unk_token(tokens[unknown as usize].clone());
    let model = builder.continuing_subword_prefix(CONTINUATION.into()).build();
    let model = model.map_err(|error| TextError::invalid_tokenizer(ORIGIN, error.to_string()))?;

    let is_capital = |token: &str| token.bytes().any(|byte| byte.is_ascii_uppercase());
    let mut words = tokens.iter().zip(kinds).filter(|(token, kind)| {
        **kind == TokenType::Normal && !(token.starts_with('[') && token.ends_with(']'))
    });
    let is_lowercase = !words.any(|(token, _)| is_capital(token));

    vocabulary.tokens = tokens;
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    let invalid = |error: tokenizers::Error| TextError::invalid_tokenizer(ORIGIN, error.to_string());
    tokenizer.with_normalizer(Some(BertNormalizer::new(true, true, None, is_lowercase))).map_err(invalid)?;
    tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
    tokenizer.with_decoder(Some(tokenizers::decoders::wordpiece::WordPiece::new(CONTINUATION.into(), true)));
    add_special(&mut tokenizer, &vocabulary.tokens, kinds)?;
    Ok(Engine::Library { tokenizer: Box::new(tokenizer), affixes: Some(affixes), growth: 1 })
}

/// The spelling of BERT's vocabulary. GGUF files mark the starts of words with `▁`, not their continuations with `##`.
fn original(token: &str) -> String {
    match token.strip_prefix('▁') {
        Some(start) => start.to_owned(),
        None if token.starts_with('[') && token.ends_with(']') => token.to_owned(),
        None => format!("{CONTINUATION}{token}"),
    }
}
