//! The lexer of all text formats: programs here, and kernels in `kiln-kernel`.

use crate::{Error, Result, Scalar};
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::iter::Peekable;
use core::str::CharIndices;

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub enum Token<'t> {
    /// `%3`.
    Slot(u64),
    /// A name.
    Word(&'t str),
    /// `1`, `-2.5e3`, `5u`, `-inf`.
    Number(Scalar),
    /// A quoted string, unescaped.
    Text(String),
    /// One of `( ) { } [ ] , : =`.
    Mark(char),
    /// The end of the text.
    End,
}

/// A position in the text; both numbers count from 1.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// The line number.
    pub line: usize,
    /// The column number, in characters.
    pub column: usize,
}

impl Position {
    /// Returns a parse error at this position.
    pub fn error(self, problem: impl Into<String>) -> Error {
        Error::parse(self.line, self.column, problem)
    }
}

/// The token stream of a text, with one token of look-ahead.
#[derive(Clone)]
pub struct Tokens<'t> {
    /// The next token.
    pub token: Token<'t>,
    /// The start of the next token.
    pub place: Position,
    lexer: Lexer<'t>,
}

impl<'t> Tokens<'t> {
    /// Tokenizes a text of at most `longest` bytes.
    ///
    /// # Errors
    /// When the text is longer, or does not start with a token.
    pub fn new(text: &'t str, longest: usize) -> Result<Tokens<'t>> {
        let start = Position { line: 1, column: 1 };
        if text.len() > longest {
            return Err(start.error(format!("the text has {} bytes; at most {longest} are read", text.len())));
        }
        let mut lexer = Lexer { text, chars: text.char_indices().peekable(), place: start };
        let (token, place) = lexer.next()?;
        Ok(Tokens { token, place, lexer })
    }

    /// Consumes the next token.
    ///
    /// # Errors
    /// When no token follows it.
    pub fn advance(&mut self) -> Result<()> {
        (self.token, self.place) = self.lexer.next()?;
        Ok(())
    }

    /// Returns whether a mark follows the next token.
    pub fn then(&self, mark: char) -> bool {
        matches!(self.lexer.clone().next(), Ok((Token::Mark(found), _)) if found == mark)
    }

    /// Consumes an optional mark, and returns whether it was there.
    ///
    /// # Errors
    /// As [`advance`](Tokens::advance).
    pub fn accept(&mut self, mark: char) -> Result<bool> {
        let here = self.token == Token::Mark(mark);
        if here {
            self.advance()?;
        }
        Ok(here)
    }

    /// Consumes a required mark.
    ///
    /// # Errors
    /// When the next token is another, and as [`advance`](Tokens::advance).
    pub fn mark(&mut self, mark: char) -> Result<()> {
        if self.accept(mark)? { Ok(()) } else { Err(self.unexpected(&format!("`{mark}`"))) }
    }

    /// Consumes a required word.
    ///
    /// # Errors
    /// As [`mark`](Tokens::mark).
    pub fn keyword(&mut self, word: &str) -> Result<()> {
        if self.token == Token::Word(word) {
            self.advance()
        } else {
            Err(self.unexpected(&format!("`{word}`")))
        }
    }

    /// Returns `result`, if the text ends here.
    ///
    /// # Errors
    /// When a token follows.
    pub fn end<T>(&self, result: T) -> Result<T> {
        if self.token == Token::End { Ok(result) } else { Err(self.unexpected("the end of the text")) }
    }

    /// Returns the error for an unexpected next token; `wanted` names the expected one.
    pub fn unexpected(&self, wanted: &str) -> Error {
        let found: String = match &self.token {
            Token::Slot(slot) => format!("`%{slot}`"),
            Token::Word(word) => format!("`{}`", word.chars().take(40).collect::<String>()),
            Token::Number(scalar) => format!("the number {scalar}"),
            Token::Text(_) => "a text in quotes".into(),
            Token::Mark(mark) => format!("`{mark}`"),
            Token::End => "the end of the text".into(),
        };
        self.place.error(format!("expected {wanted}, found {found}"))
    }
}

#[derive(Clone)]
struct Lexer<'t> {
    text: &'t str,
    chars: Peekable<CharIndices<'t>>,
    place: Position,
}

impl<'t> Lexer<'t> {
    /// Scans the next token; returns it with its start.
    fn next(&mut self) -> Result<(Token<'t>, Position)> {
        self.skip_blanks();
        let place = self.place;
        let token = match self.peek() {
            None => Token::End,
            Some('%') => {
                self.bump();
                let digits = self.take_while(|c| c.is_ascii_digit());
                let slot =
                    digits.parse().map_err(|_| place.error("expected the number of a slot after `%`"))?;
                Token::Slot(slot)
            }
            Some('"') => Token::Text(self.quoted(place)?),
            Some(c) if c.is_ascii_digit() || c == '-' => Token::Number(self.number(place)?),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                Token::Word(self.take_while(|c| c.is_ascii_alphanumeric() || c == '_'))
            }
            Some(c) if "(){}[],:=".contains(c) => {
                self.bump();
                Token::Mark(c)
            }
            Some(c) => return Err(place.error(format!("{c:?} has no meaning here"))),
        };
        Ok((token, place))
    }

    fn peek(&mut self) -> Option<char> {
        self.chars.peek().map(|&(_, c)| c)
    }

    fn offset(&mut self) -> usize {
        self.chars.peek().map_or(self.text.len(), |&(offset, _)| offset)
    }

    fn bump(&mut self) -> Option<char> {
        let (_, c) = self.chars.next()?;
        if c == '\n' {
            self.place = Position { line: self.place.line + 1, column: 1 };
        } else {
            self.place.column += 1;
        }
        Some(c)
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'t str {
        let start = self.offset();
        while self.peek().is_some_and(&accept) {
            self.bump();
        }
        let end = self.offset();
        &self.text[start..end]
    }

    fn skip_blanks(&mut self) {
        loop {
            match self.peek() {
                Some(';') => {
                    self.take_while(|c| c != '\n');
                }
                Some(c) if c.is_whitespace() => {
                    self.bump();
                }
                Some(_) | None => return,
            }
        }
    }

    fn number(&mut self, place: Position) -> Result<Scalar> {
        let start = self.offset();
        if self.peek() == Some('-') {
            self.bump();
        }
        let mut last = '-';
        while let Some(c) = self.peek() {
            let sign_of_exponent = matches!(c, '+' | '-') && matches!(last, 'e' | 'E');
            if !(c.is_ascii_alphanumeric() || c == '.' || sign_of_exponent) {
                break;
            }
            last = c;
            self.bump();
        }
        let end = self.offset();
        scalar(&self.text[start..end]).ok_or_else(|| {
            let shown: String = self.text[start..end].chars().take(40).collect();
            place.error(format!("`{shown}` is not a number, or is out of range"))
        })
    }

    fn quoted(&mut self, place: Position) -> Result<String> {
        self.bump();
        let mut text = String::new();
        loop {
            match self.bump() {
                Some('"') => return Ok(text),
                Some('\\') => text.push(self.escape()?),
                Some(c) => text.push(c),
                None => return Err(place.error("the text in quotes does not end")),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let place = self.place;
        match self.bump() {
            Some('"') => Ok('"'),
            Some('\\') => Ok('\\'),
            Some('n') => Ok('\n'),
            Some('t') => Ok('\t'),
            Some('u') if self.bump() == Some('{') => {
                let digits = self.take_while(|c| c.is_ascii_hexdigit());
                let code = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
                if self.bump() == Some('}') { code } else { None }
                    .ok_or_else(|| place.error("no character has this number"))
            }
            _ => Err(place.error("unknown escape: known are \\\" \\\\ \\n \\t \\u{…}")),
        }
    }
}

fn scalar(text: &str) -> Option<Scalar> {
    if text == "-inf" {
        return Some(Scalar::Float(f64::NEG_INFINITY));
    }
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if let Some(unsigned) = text.strip_suffix('u') {
        return if digits(unsigned) { unsigned.parse().ok().map(Scalar::UInt) } else { None };
    }
    if digits(text.strip_prefix('-').unwrap_or(text)) {
        return text.parse().ok().map(Scalar::Int);
    }
    let real = text.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b));
    let x: f64 = if real { text.parse().ok()? } else { return None };
    x.is_finite().then_some(Scalar::Float(x))
}

/// Returns the number of a word: `true`, `false`, `inf`, `nan`, or `nan_` and the bits of a NaN.
pub fn word_scalar(word: &str) -> Option<Scalar> {
    match word {
        "true" => Some(Scalar::Bool(true)),
        "false" => Some(Scalar::Bool(false)),
        "inf" => Some(Scalar::Float(f64::INFINITY)),
        "nan" => Some(Scalar::Float(f64::NAN)),
        _ => {
            let bits = word.strip_prefix("nan_").filter(|bits| bits.len() == 16)?;
            let x = f64::from_bits(u64::from_str_radix(bits, 16).ok()?);
            x.is_nan().then_some(Scalar::Float(x))
        }
    }
}

/// Writes a number so that it parses to the same value. A NaN with other bits than the default is written with its
/// bits, `nan_fff8000000000000`.
///
/// # Errors
/// When the formatter fails.
pub fn write_scalar(f: &mut fmt::Formatter<'_>, scalar: Scalar) -> fmt::Result {
    match scalar {
        Scalar::Float(x) if x.to_bits() == f64::NAN.to_bits() => f.write_str("nan"),
        Scalar::Float(x) if x.is_nan() => write!(f, "nan_{:016x}", x.to_bits()),
        Scalar::Float(_) | Scalar::Int(_) | Scalar::UInt(_) | Scalar::Bool(_) => write!(f, "{scalar}"),
    }
}
