//! Decoding of tokens as they arrive.

use super::Tokenizer;
use crate::Result;

/// Number of tokens without a complete character at the end after which their bytes count as invalid UTF-8.
const MAX_PENDING: usize = 16;

/// Number of tokens of a context: enough for the bytes of a character.
const MAX_CONTEXT: usize = 4;

/// Decodes tokens one by one and returns text as soon as its characters are complete; see
/// [`Tokenizer::decode_stream`]. The cost of a token does not depend on the number of tokens before.
///
/// ```no_run
/// # fn main() -> kiln_text::Result<()> {
/// let tokenizer = kiln_text::Tokenizer::from_file("tokenizer.json")?;
/// let mut stream = tokenizer.decode_stream(true);
/// for id in tokenizer.encode("naïve 👩‍🚀", false)? {
///     print!("{}", stream.push(id)?);
/// }
/// print!("{}", stream.finish()?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DecodeStream<'a> {
    tokenizer: &'a Tokenizer,
    skip_special: bool,
    /// Tokens whose text was returned, as context, then pending tokens: decoders treat the first token of a text
    /// differently.
    window: Vec<u32>,
    /// Number of tokens of context.
    context: usize,
    /// Number of bytes of the window's text that were returned.
    returned: usize,
}

impl<'a> DecodeStream<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, skip_special: bool) -> Self {
        DecodeStream { tokenizer, skip_special, window: Vec::new(), context: 0, returned: 0 }
    }

    /// Sets the tokens before those of the stream, such as the prompt of a generation. Their text is not returned.
    /// Without them, decoders of SentencePiece leave out the space before the first word.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    pub fn after(mut self, context: &[u32]) -> Result<Self> {
        let is_text = |id: &u32| !(self.skip_special && self.tokenizer.is_special(*id));
        let mut last: Vec<u32> =
            context.iter().rev().copied().take_while(is_text).take(MAX_CONTEXT).collect();
        last.reverse();
        self.context = last.len();
        let text = self.tokenizer.decode(&last, self.skip_special)?;
        self.returned = text.trim_end_matches(char::REPLACEMENT_CHARACTER).len();
        self.window = last;
        Ok(self)
    }

    /// Takes a token and returns the text that it completes; empty if a character is incomplete.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    pub fn push(&mut self, id: u32) -> Result<String> {
        if self.skip_special && self.tokenizer.is_special(id) {
            return Ok(String::new());
        }
        self.window.push(id);
        let text = self.tokenizer.decode(&self.window, self.skip_special)?;
        let complete = text.trim_end_matches(char::REPLACEMENT_CHARACTER).len();
        if complete == text.len() || self.window.len() - self.context >= MAX_PENDING {
            return self.take_all(&text);
        }
        let new = text.get(self.returned..complete).unwrap_or_default().to_owned();
        self.returned = self.returned.max(complete);
        Ok(new)
    }

    /// Returns the text of incomplete characters at the end, with `U+FFFD` for bytes that are not UTF-8.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    pub fn finish(&mut self) -> Result<String> {
        if self.window.len() == self.context {
            return Ok(String::new());
        }
        let text = self.tokenizer.decode(&self.window, self.skip_special)?;
        self.take_all(&text)
    }

    /// Returns the new part of the window's text. The pending tokens become the context of the next.
    fn take_all(&mut self, text: &str) -> Result<String> {
        let new = text.get(self.returned..).unwrap_or_default().to_owned();
        self.window.drain(..self.context);
        self.context = self.window.len();
        self.returned = self.tokenizer.decode(&self.window, self.skip_special)?.len();
        Ok(new)
    }
}
