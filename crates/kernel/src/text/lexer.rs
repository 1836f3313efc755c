//! From characters to tokens.

use alloc::format;
use alloc::string::String;
use kiln_ir::{Error, Result, Scalar};

/// What the text is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'t> {
    /// `%3`.
    Param(u32),
    /// `v3`.
    Value(u32),
    /// A name.
    Word(&'t str),
    /// `1`, `-2.5e3`, `5u`, `-inf`, `nan`, `true`.
    Number(Scalar),
    /// One of `( ) { } [ ] , : =`.
    Mark(char),
    /// The end of the text.
    End,
}

/// A place in the text; both count from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Place {
    pub(super) fn error(self, problem: impl Into<String>) -> Error {
        Error::parse(self.line, self.column, problem)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Lexer<'t> {
    rest: &'t str,
    place: Place,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Lexer<'t> {
        Lexer { rest: text, place: Place { line: 1, column: 1 } }
    }

    /// The next token and where it starts.
    pub(super) fn next(&mut self) -> Result<(Token<'t>, Place)> {
        self.skip_blanks();
        let place = self.place;
        let Some(first) = self.rest.chars().next() else { return Ok((Token::End, place)) };
        if "(){}[],:=".contains(first) {
            self.take(1);
            return Ok((Token::Mark(first), place));
        }
        let body = |text: &str| text.len() - text.trim_start_matches(in_word).len();
        let token = match first {
            '%' => {
                let word = self.take(1 + body(&self.rest[1..]));
                Token::Param(number(&word[1..]).ok_or_else(|| unknown(word, place))?)
            }
            '-' | '0'..='9' => {
                let word = self.take_number();
                Token::Number(scalar(word).ok_or_else(|| unknown(word, place))?)
            }
            first if in_word(first) => {
                let word = self.take(body(self.rest));
                match (word.strip_prefix('v').and_then(number), scalar(word)) {
                    (Some(value), _) => Token::Value(value),
                    (None, Some(scalar)) => Token::Number(scalar),
                    (None, None) => Token::Word(word),
                }
            }
            other => return Err(place.error(format!("{other:?} has no meaning here"))),
        };
        Ok((token, place))
    }

    fn skip_blanks(&mut self) {
        loop {
            let blank = self.rest.len() - self.rest.trim_start().len();
            self.take(blank);
            if !self.rest.starts_with(';') {
                return;
            }
            self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
        }
    }

    fn take_number(&mut self) -> &'t str {
        let bytes = self.rest.as_bytes();
        let mut end = 1;
        while let Some(&byte) = bytes.get(end) {
            let sign_of_exponent = matches!(byte, b'+' | b'-') && matches!(bytes[end - 1], b'e' | b'E');
            if !(byte.is_ascii_alphanumeric() || byte == b'.' || sign_of_exponent) {
                break;
            }
            end += 1;
        }
        self.take(end)
    }

    fn take(&mut self, len: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        for c in taken.chars() {
            if c == '\n' {
                self.place = Place { line: self.place.line + 1, column: 1 };
            } else {
                self.place.column += 1;
            }
        }
        taken
    }
}

fn unknown(word: &str, place: Place) -> Error {
    let shown: String = word.chars().take(40).collect();
    place.error(format!("`{shown}` is no number, or is out of range"))
}

fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn number(digits: &str) -> Option<u32> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

fn scalar(text: &str) -> Option<Scalar> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text {
        "true" => return Some(Scalar::Bool(true)),
        "false" => return Some(Scalar::Bool(false)),
        "inf" => return Some(Scalar::Float(f64::INFINITY)),
        "-inf" => return Some(Scalar::Float(f64::NEG_INFINITY)),
        "nan" => return Some(Scalar::Float(f64::NAN)),
        _ => {}
    }
    if let Some(bits) = text.strip_prefix("nan_").filter(|bits| bits.len() == 16) {
        let x = f64::from_bits(u64::from_str_radix(bits, 16).ok()?);
        return x.is_nan().then_some(Scalar::Float(x));
    }
    if let Some(unsigned) = text.strip_suffix('u') {
        return if digits(unsigned) { unsigned.parse().ok().map(Scalar::UInt) } else { None };
    }
    if digits(text.strip_prefix('-').unwrap_or(text)) {
        return text.parse().ok().map(Scalar::Int);
    }
    let real = text.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    let x: f64 = if real { text.parse().ok()? } else { return None };
    x.is_finite().then_some(Scalar::Float(x))
}
