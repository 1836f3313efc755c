//! Bounds on the parts of a `tokenizer.json` that the library does not check: it would panic, abort, or need hours or
//! gigabytes for a short text.

use super::charsmap;
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;

/// The longest pattern or text of a step in bytes.
const MAX_TEXT: usize = 1 << 10;

/// The most steps of a normalizer, a pre-tokenizer, a post-processor or a decoder.
const MAX_STEPS: usize = 64;

/// The most steps that double the bytes of a text (`ByteLevel`), or add spaces around its characters.
const MAX_WIDENING: usize = 4;

/// The most bytes that the steps make of a byte. Charsmaps of published models make 11, and `Replace` makes 3.
const MAX_GROWTH: usize = 48;

/// The longest token of Unigram in bytes, and the longest prefix or suffix of parts of a word.
const MAX_TOKEN: usize = 256;

/// The most bytes of all tokens of Unigram: the library has a node for each. Published models have 3 MB.
const MAX_TOKENS: usize = 8 << 20;

/// The most bytes of the tokens of Unigram that start at one place, which the library looks up one by one.
const MAX_PREFIXES: usize = 1 << 12;

/// The longest word of WordPiece in characters: its time grows with the cube. Published models have 100.
const MAX_WORD: u64 = 100;

/// The parts of a `tokenizer.json`.
#[derive(Deserialize)]
pub(super) struct Document<'a> {
    #[serde(borrow)]
    model: Option<Model<'a>>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
}

#[derive(Deserialize)]
struct Model<'a> {
    #[serde(borrow, default)]
    vocab: Vocabulary<'a>,
    #[serde(borrow, default)]
    merges: Vec<Merge<'a>>,
    #[serde(borrow)]
    continuing_subword_prefix: Option<Cow<'a, str>>,
    #[serde(borrow)]
    end_of_word_suffix: Option<Cow<'a, str>>,
    max_input_chars_per_word: Option<u64>,
}

/// A vocabulary is a map, or in Unigram models a list with scores.
#[derive(Deserialize)]
#[serde(untagged)]
enum Vocabulary<'a> {
    Map(#[serde(borrow)] HashMap<Cow<'a, str>, u32>),
    List(#[serde(borrow)] Vec<(Cow<'a, str>, f64)>),
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

impl Document<'_> {
    /// Checks a file, and returns the most bytes that encoding makes of a byte of text. The error is the problem.
    pub(super) fn check(&self) -> Result<usize, String> {
        if let Some(model) = &self.model {
            model.check_affixes()?;
            match &model.vocab {
                Vocabulary::Map(vocab) => model.check_merges(vocab)?,
                Vocabulary::List(tokens) => check_unigram(tokens)?,
                Vocabulary::Other(_) => {}
            }
        }
        let mut encoding = Steps::new("normalizer and pre_tokenizer");
        encoding.visit(&self.normalizer)?;
        encoding.visit(&self.pre_tokenizer)?;
        Steps::new("decoder").visit(&self.decoder)?;
        check_texts(&self.post_processor)?;
        Ok(encoding.growth)
    }
}

impl Model<'_> {
    fn check_affixes(&self) -> Result<(), String> {
        let affixes = [
            ("continuing_subword_prefix", &self.continuing_subword_prefix),
            ("end_of_word_suffix", &self.end_of_word_suffix),
        ];
        for (name, affix) in affixes {
            let bytes = affix.as_ref().map_or(0, |text| text.len());
            if bytes > MAX_TOKEN {
                return Err(format!("{name} has {bytes} bytes, more than the {MAX_TOKEN} allowed"));
            }
        }
        match self.max_input_chars_per_word.filter(|&most| most > MAX_WORD) {
            Some(most) => Err(format!("max_input_chars_per_word is {most}, expected at most {MAX_WORD}")),
            None => Ok(()),
        }
    }

    /// Refuses merges whose result is longer than every token: the library would panic.
    fn check_merges(&self, vocab: &HashMap<Cow<'_, str>, u32>) -> Result<(), String> {
        let longest = vocab.keys().map(|token| token.len()).max().unwrap_or(0);
        let prefix = self.continuing_subword_prefix.as_ref().map_or(0, |prefix| prefix.len());
        for (index, merge) in self.merges.iter().enumerate() {
            let (left, right) = match merge {
                Merge::Pair(left, right) => (left.len(), right.len()),
                Merge::Joined(both) => match both.split_once(' ') {
                    Some((left, right)) => (left.len(), right.len()),
                    None => continue,
                },
            };
            if right < prefix || left + right - prefix > longest {
                return Err(format!("merge {index} makes no token of the vocabulary"));
            }
        }
        Ok(())
    }
}

/// Bounds the tokens of Unigram: their lengths, and the bytes of those that are prefixes of one another.
fn check_unigram(tokens: &[(Cow<'_, str>, f64)]) -> Result<(), String> {
    let mut total = 0;
    for (id, (token, score)) in tokens.iter().enumerate() {
        total += token.len();
        if token.len() > MAX_TOKEN {
            return Err(format!("token {id} has {} bytes, more than the {MAX_TOKEN} allowed", token.len()));
        }
        if !score.is_finite() {
            return Err(format!("the score of token {id} is {score}, expected a finite number"));
        }
    }
    if total > MAX_TOKENS {
        return Err(format!("the tokens have {total} bytes, more than the {MAX_TOKENS} allowed"));
    }
    let mut sorted: Vec<&str> = tokens.iter().map(|(token, _)| &**token).collect();
    sorted.sort_unstable();
    sorted.dedup();
    // Sorted, the prefixes of a token precede it: those of the last token that are its own are on the stack.
    let (mut prefixes, mut bytes): (Vec<&str>, usize) = (Vec::new(), 0);
    for token in sorted {
        while let Some(last) = prefixes.pop_if(|last| !token.starts_with(*last)) {
            bytes -= last.len();
        }
        prefixes.push(token);
        bytes += token.len();
        if bytes > MAX_PREFIXES {
            return Err(format!(
                "the tokens that {token:?} starts with have more than the {MAX_PREFIXES} bytes allowed"
            ));
        }
    }
    Ok(())
}

/// The steps of a normalizer, a pre-tokenizer or a decoder.
struct Steps {
    part: &'static str,
    count: usize,
    widening: usize,
    /// The most bytes that the steps make of a byte.
    growth: usize,
}

impl Steps {
    fn new(part: &'static str) -> Steps {
        Steps { part, count: 0, widening: 0, growth: 1 }
    }

    /// Checks a step, and those of a sequence.
    fn visit(&mut self, step: &Value) -> Result<(), String> {
        let Some(fields) = step.as_object() else { return Ok(()) };
        self.count += 1;
        if self.count > MAX_STEPS {
            return Err(format!("{} has more than the {MAX_STEPS} steps allowed", self.part));
        }
        for list in ["normalizers", "pretokenizers", "decoders"] {
            let steps = fields.get(list).and_then(Value::as_array);
            steps.into_iter().flatten().try_for_each(|step| self.visit(step))?;
        }
        for (name, field) in fields {
            match field {
                Value::String(charsmap) if name == "precompiled_charsmap" => {
                    self.grow(charsmap::growth(charsmap)?)?;
                }
                // Steps of a sequence.
                Value::Array(_) => {}
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                    check_texts(field)?;
                }
            }
        }
        match fields.get("type").and_then(Value::as_str) {
            Some("Replace") => self.grow(replaced(step)),
            Some("ByteLevel" | "BertNormalizer") => {
                self.widening += 1;
                match self.widening > MAX_WIDENING {
                    true => Err(format!("{} has more than {MAX_WIDENING} steps that widen text", self.part)),
                    false => Ok(()),
                }
            }
            Some(_) | None => Ok(()),
        }
    }

    fn grow(&mut self, factor: usize) -> Result<(), String> {
        self.growth = self.growth.saturating_mul(factor.max(1));
        if self.growth > MAX_GROWTH {
            let part = self.part;
            return Err(format!(
                "{part} may make {} bytes of one, more than the {MAX_GROWTH} allowed",
                self.growth
            ));
        }
        Ok(())
    }
}

/// The most bytes that a step of type `Replace` makes of a byte. A regular expression may match nothing.
fn replaced(step: &Value) -> usize {
    let content = step.get("content").and_then(Value::as_str).unwrap_or_default().len();
    match step.get("pattern").and_then(|pattern| pattern.get("String")?.as_str()) {
        Some(text) if !text.is_empty() => content.div_ceil(text.len()),
        Some(_) | None => content + 1,
    }
}

/// Refuses long patterns and contents.
fn check_texts(value: &Value) -> Result<(), String> {
    match value {
        Value::String(text) if text.len() > MAX_TEXT => {
            Err(format!("a pattern or text has {} bytes, more than the {MAX_TEXT} allowed", text.len()))
        }
        Value::Array(list) => list.iter().try_for_each(check_texts),
        Value::Object(fields) => fields.values().try_for_each(check_texts),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}
