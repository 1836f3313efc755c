//! Rewrites the source of a template for the engine, which has no operator `%` of strings, no `varargs` and `kwargs` of
//! macros and no `{% generation %}`, and whose `~` has another text for numbers and tuples than Python.
//!
//! | source | rewritten |
//! |---|---|
//! | `a % b` | `__mod(a, b)` |
//! | `a ~ b` | `__text(a) ~ __text(b)` |
//! | `a == b`, `a in b` and other comparisons, `a[b]`, `{a: b}` | `__bounded(a) == __bounded(b)`, `a[__bounded(b)]`, `{__bounded(a): b}` |
//! | `{% set x = a %}` | `{% set x = __stored((a)) %}` |
//! | `loop.changed(a)` | `loop.changed(*__all_bounded(a))` |
//! | `{% macro f(a) %}...varargs...{% endmacro %}` | `{% macro __f(a,varargs=(),kwargs={}) %}...{% endmacro %}{% set f = __variadic(__f, true, false) %}` |
//! | `{% generation %}`, `{% endgeneration %}` | `{% if true %}`, `{% endif %}` |
//!
//! Everything else stays as it is, byte by byte, so that errors name the same line. A source that is not understood is
//! not changed: the engine reports its errors.

use std::fmt::Write;
use std::ops::Range;

/// The longest template in bytes. Those of published models have at most 60 KB.
const MAX_SOURCE: usize = 1 << 18;

/// The most brackets around an operand.
const MAX_DEPTH: usize = 100;

/// The most branches of an `if`: the engine recurses for each.
const MAX_BRANCHES: usize = 500;

/// The most operators that an operand may be inside of: the engine recurses for each.
const MAX_OPERATORS: usize = 500;

/// Operators that compare or hash their operands, which the engine does not bound.
const COMPARISONS: [&str; 7] = ["==", "!=", "<", "<=", ">", ">=", "in"];

/// What separates operands that are not compared with each other.
const SEPARATORS: [&str; 6] = [",", "=", "and", "or", "if", "else"];

/// Names that are no operands.
const KEYWORDS: [&str; 9] = ["and", "or", "not", "in", "if", "else", "recursive", "is", "import"];

/// Returns the source for the engine.
///
/// # Errors
/// When the source is too long, an expression has too many operators or brackets, or an `if` too many branches.
pub(super) fn rewritten(source: &str) -> Result<String, String> {
    if source.len() > MAX_SOURCE {
        return Err(format!("it has {} bytes, more than the {MAX_SOURCE} allowed", source.len()));
    }
    let output = String::with_capacity(source.len());
    let mut writer = Writer { output, macros: Vec::new(), branches: Vec::new() };
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        let (before, tag) = rest.split_at(start);
        writer.output.push_str(before);
        let end = match tag.as_bytes().get(1) {
            Some(b'{' | b'%') if !is_raw(tag) => {
                let (parsed, length) = Tag::parse(tag);
                if nested_operators(&parsed.tokens) > MAX_OPERATORS {
                    return Err(format!("an expression has more than the {MAX_OPERATORS} operators allowed"));
                }
                let Some(length) = length else {
                    rest = tag;
                    break;
                };
                writer.count_branches(&parsed)?;
                writer.tag(&parsed)?;
                length
            }
            Some(b'%') => copy(&mut writer.output, tag, raw_end(tag).unwrap_or(tag.len())),
            Some(b'#') => copy(&mut writer.output, tag, tag.find("#}").map_or(tag.len(), |end| end + 2)),
            _ => copy(&mut writer.output, tag, 1),
        };
        rest = &tag[end..];
    }
    Ok(writer.output + rest)
}

/// The greatest number of operators, keywords and brackets around an operand.
fn nested_operators(tokens: &[Token]) -> usize {
    let (mut levels, mut total, mut most) = (vec![0], 0usize, 0);
    let mut follows_operand = false;
    for token in tokens {
        // A call and an item are operators of the expression before them.
        if token.kind == Kind::Open && follows_operand {
            total += 1;
            if let Some(level) = levels.last_mut() {
                *level += 1;
            }
        }
        follows_operand = match token.kind {
            Kind::Name => !KEYWORDS.contains(&token.text),
            Kind::Literal | Kind::Close => true,
            Kind::Open | Kind::Operator => false,
        };
        match token.kind {
            Kind::Open => levels.push(0),
            Kind::Close => total -= levels.pop().unwrap_or(0),
            Kind::Operator if token.text == "," => {
                total -= levels.last_mut().map_or(0, std::mem::take);
            }
            Kind::Name if !KEYWORDS.contains(&token.text) => {}
            Kind::Literal => {}
            Kind::Name | Kind::Operator => {
                total += 1;
                if let Some(level) = levels.last_mut() {
                    *level += 1;
                }
            }
        }
        most = most.max(total + levels.len());
    }
    most
}

fn copy(output: &mut String, source: &str, length: usize) -> usize {
    output.push_str(&source[..length]);
    length
}

/// Whether a tag is `{% raw %}`.
fn is_raw(tag: &str) -> bool {
    let inner = tag.strip_prefix("{%").and_then(|inner| unsigned(inner).strip_prefix("raw"));
    inner.is_some_and(|after| after.trim_start().trim_start_matches(['-', '+']).starts_with("%}"))
}

/// The length of a block that starts with `{% raw %}`; `None` if it has no end.
fn raw_end(tag: &str) -> Option<usize> {
    let mut at = tag.find("%}")? + 2;
    loop {
        let start = at + tag.get(at..)?.find("{%")?;
        if unsigned(&tag[start + 2..]).starts_with("endraw") {
            return Some(start + tag[start..].find("%}")? + 2);
        }
        at = start + 2;
    }
}

/// The contents of a tag without the sign for whitespace.
fn unsigned(inner: &str) -> &str {
    inner.trim_start_matches(['-', '+']).trim_start()
}

/// A token and the whitespace before it.
#[derive(Clone, Copy, Debug)]
struct Token<'s> {
    space: &'s str,
    text: &'s str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Name,
    Literal,
    Open,
    Close,
    Operator,
}

/// A tag: `{{ ... }}` or `{% ... %}`.
struct Tag<'s> {
    /// With the sign for whitespace.
    open: &'s str,
    tokens: Vec<Token<'s>>,
    /// With the whitespace and the sign before it.
    close: &'s str,
}

impl<'s> Tag<'s> {
    /// Reads a tag at the start of a text, and returns its length too. Without an end, there are the tokens before the
    /// error, and no length.
    fn parse(text: &'s str) -> (Tag<'s>, Option<usize>) {
        let signed = text[2..].starts_with(['-', '+']);
        let open = &text[..if signed { 3 } else { 2 }];
        let mut tag = Tag { open, tokens: Vec::new(), close: "" };
        let length = tag.read(text);
        (tag, length)
    }

    /// Reads the tokens and the end.
    fn read(&mut self, text: &'s str) -> Option<usize> {
        let end = if text.starts_with("{{") { "}}" } else { "%}" };
        let (mut at, mut depth) = (self.open.len(), 0usize);
        loop {
            let start = at;
            at += text[at..].len() - text[at..].trim_start().len();
            let rest = &text[at..];
            let sign = usize::from(rest.starts_with(['-', '+']));
            if depth == 0 && rest.get(sign..)?.starts_with(end) {
                let length = at + sign + 2;
                self.close = &text[start..length];
                return Some(length);
            }
            let (length, kind) = token(rest)?;
            match kind {
                Kind::Open => depth += 1,
                Kind::Close => depth = depth.checked_sub(1)?,
                Kind::Name | Kind::Literal | Kind::Operator => {}
            }
            self.tokens.push(Token { space: &text[start..at], text: &rest[..length], kind });
            at += length;
        }
    }

    fn is_block(&self) -> bool {
        self.open.starts_with("{%")
    }

    /// The words of a tag, such as `macro` and the name.
    fn word(&self, index: usize) -> &'s str {
        self.tokens.get(index).filter(|token| token.kind == Kind::Name).map_or("", |token| token.text)
    }
}

/// The length and kind of the token at the start of a text.
fn token(text: &str) -> Option<(usize, Kind)> {
    let first = text.chars().next()?;
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    Some(match first {
        '\'' | '"' => (string(text, first)?, Kind::Literal),
        '0'..='9' => (number(text), Kind::Literal),
        '(' | '[' | '{' => (1, Kind::Open),
        ')' | ']' | '}' => (1, Kind::Close),
        _ if is_name(first) => (text.find(|c| !is_name(c)).unwrap_or(text.len()), Kind::Name),
        _ => {
            let pair = text.get(..2).filter(|pair| ["**", "//", "==", "!=", "<=", ">="].contains(pair));
            (pair.map_or(first.len_utf8(), str::len), Kind::Operator)
        }
    })
}

fn string(text: &str, quote: char) -> Option<usize> {
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        if character == quote {
            return Some(at + 1);
        }
        if character == '\\' {
            characters.next();
        }
    }
    None
}

fn number(text: &str) -> usize {
    let digits = |from: usize| {
        from + text[from..]
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(text.len() - from)
    };
    let mut end = digits(0);
    let follows = |at: usize| text[at..].chars().next().is_some_and(|c| c.is_ascii_digit());
    if text[end..].starts_with('.') && follows(end + 1) {
        end = digits(end + 1);
    }
    // `1e-05`: the sign belongs to the number.
    let is_decimal = !text[..end].starts_with("0x") && text[..end].ends_with(['e', 'E']);
    if is_decimal && text[end..].starts_with(['-', '+']) && follows(end + 1) {
        end = digits(end + 1);
    }
    end
}

/// A macro whose end was not reached.
struct Open {
    name: String,
    /// Where the name and the end of the parameters are in the output.
    name_at: usize,
    parameters_end: Option<usize>,
    /// The text before a further parameter: a comma, if there is a parameter without one.
    separator: &'static str,
    /// Whether the body has `varargs` and `kwargs`.
    variadic: [bool; 2],
}

/// The names of arguments without a parameter.
const VARIADIC: [&str; 2] = ["varargs", "kwargs"];

struct Writer {
    output: String,
    macros: Vec<Open>,
    /// The number of branches of each `if` whose end was not reached.
    branches: Vec<usize>,
}

impl Writer {
    fn count_branches(&mut self, tag: &Tag) -> Result<(), String> {
        match (tag.is_block(), tag.word(0)) {
            (true, "if") => self.branches.push(1),
            (true, "endif") => drop(self.branches.pop()),
            (true, "elif") => {
                if let Some(count) = self.branches.last_mut() {
                    *count += 1;
                    if *count > MAX_BRANCHES {
                        return Err(format!("an if has more than the {MAX_BRANCHES} branches allowed"));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn tag(&mut self, tag: &Tag) -> Result<(), String> {
        self.output.push_str(tag.open);
        let words = (tag.is_block(), tag.word(0), tag.tokens.len());
        match words {
            (true, "generation", 1) => write_word(&mut self.output, tag, "if true"),
            (true, "endgeneration", 1) => write_word(&mut self.output, tag, "endif"),
            (true, "macro", 3..) => self.open_macro(tag)?,
            _ => {
                self.mark(&tag.tokens);
                self.expression(tag)?;
            }
        }
        self.output.push_str(tag.close);
        if words.0 && words.1 == "endmacro" {
            self.close_macro(tag);
        }
        Ok(())
    }

    /// Writes the contents of a tag. The first words of a block are its kind, and its targets.
    fn expression(&mut self, tag: &Tag) -> Result<(), String> {
        let after = |text: &str| outside_brackets(&tag.tokens, text).map(|at| at + 1);
        let start = match (tag.is_block(), tag.word(0)) {
            (false, _) => 0,
            (true, "set") => after("=").unwrap_or(tag.tokens.len()),
            (true, "for") => after("in").unwrap_or(1),
            (true, _) => tag.tokens.len().min(1),
        };
        let (targets, rest) = tag.tokens.split_at(start);
        self.output += &plain(targets);
        let expression = rewrite(rest)?;
        self.output += &match tag.is_block() && tag.word(0) == "set" && !rest.is_empty() {
            // In brackets, `1, 2` is one tuple.
            true => called("__stored(", &expression) + ")",
            false => expression,
        };
        Ok(())
    }

    fn open_macro(&mut self, tag: &Tag) -> Result<(), String> {
        let [kind, name, parameters @ .., last] = &*tag.tokens else { return Ok(()) };
        push(&mut self.output, kind);
        let name_at = self.output.len() + name.space.len();
        push(&mut self.output, name);
        // The first bracket is not of an expression.
        let (bracket, parameters_alone) = parameters.split_at(parameters.len().min(1));
        self.output += &plain(bracket);
        self.output += &rewrite(parameters_alone)?;
        let parameters_end = (last.text == ")").then_some(self.output.len());
        push(&mut self.output, last);
        let declared = tag.tokens.iter().any(|token| VARIADIC.contains(&token.text));
        let parameters_end = parameters_end.filter(|_| !declared);
        let has_comma = parameters.last().is_some_and(|token| [",", "("].contains(&token.text));
        self.macros.push(Open {
            name: name.text.to_owned(),
            name_at,
            parameters_end,
            separator: if has_comma { "" } else { "," },
            variadic: [false; 2],
        });
        Ok(())
    }

    /// Notes which names of arguments an expression has.
    fn mark(&mut self, tokens: &[Token]) {
        let Some(open) = self.macros.last_mut() else { return };
        for (index, token) in tokens.iter().enumerate().filter(|(_, token)| token.kind == Kind::Name) {
            let is_attribute = index > 0 && [".", "|"].contains(&tokens[index - 1].text);
            if let Some(which) = VARIADIC.iter().position(|name| *name == token.text && !is_attribute) {
                open.variadic[which] = true;
            }
        }
    }

    fn close_macro(&mut self, tag: &Tag) {
        let Some(Open { name, name_at, parameters_end: Some(end), separator, variadic }) = self.macros.pop()
        else {
            return;
        };
        if variadic == [false; 2] {
            return;
        }
        self.output.insert_str(end, &format!("{separator}varargs=(),kwargs={{}}"));
        self.output.insert_str(name_at, "__");
        let sign = tag.close.trim_start().trim_end_matches("%}");
        let [varargs, kwargs] = variadic;
        let set =
            format!("{{%{} set {name} = __variadic(__{name}, {varargs}, {kwargs}) {sign}%}}", left(sign));
        self.output.push_str(&set);
    }
}

/// The sign on the left of a tag that follows a tag with a sign on the right: whitespace between them is removed anyway.
fn left(sign: &str) -> &str {
    if sign == "-" { "-" } else { "" }
}

fn write_word(output: &mut String, tag: &Tag, word: &str) {
    output.push_str(tag.tokens[0].space);
    output.push_str(word);
}

fn push(output: &mut String, token: &Token) {
    output.push_str(token.space);
    output.push_str(token.text);
}

fn plain(tokens: &[Token]) -> String {
    let mut text = String::new();
    tokens.iter().for_each(|token| push(&mut text, token));
    text
}

/// Rewrites the operators of expressions. The error says that brackets are nested too deeply.
fn rewrite(tokens: &[Token]) -> Result<String, String> {
    let mut parser = Parser { tokens, at: 0, depth: 0 };
    let text = parser.sequence(false);
    let text = text.ok_or_else(|| format!("more than the {MAX_DEPTH} brackets allowed are nested"))?;
    // After a bracket that closes none, the engine reports the error.
    Ok(if parser.at == tokens.len() { text } else { plain(tokens) })
}

/// A parser of the operators, with the levels of the engine's grammar: `~` binds less than `*`, `/`, `//` and `%`, and these
/// less than `**`, a sign, and what follows an operand.
struct Parser<'t, 's> {
    tokens: &'t [Token<'s>],
    at: usize,
    depth: usize,
}

impl<'s> Parser<'_, 's> {
    fn peek(&self) -> Option<Token<'s>> {
        self.tokens.get(self.at).copied()
    }

    fn is_next(&self, texts: &[&str]) -> bool {
        self.peek().is_some_and(|token| token.kind != Kind::Literal && texts.contains(&token.text))
    }

    fn take(&mut self, text: &mut String) {
        if let Some(token) = self.peek() {
            push(text, &token);
            self.at += 1;
        }
    }

    /// Whether an operand starts here.
    fn is_operand(&self) -> bool {
        self.peek().is_some_and(|token| match token.kind {
            Kind::Name => !KEYWORDS.contains(&token.text),
            Kind::Literal | Kind::Open => true,
            Kind::Close | Kind::Operator => false,
        })
    }

    /// Operands and what is between them, up to a closing bracket or the end.
    /// The operands of arguments are bounded, since functions compare them and make text of them.
    fn sequence(&mut self, are_arguments: bool) -> Option<String> {
        let (mut text, mut after_operand) = (String::new(), false);
        let mut compared = Compared::default();
        while let Some(token) = self.peek().filter(|token| token.kind != Kind::Close) {
            let is_sign = token.kind == Kind::Operator && token.text == "-" && !after_operand;
            after_operand = self.is_operand() || is_sign;
            if after_operand {
                let (at, start) = (self.at, text.len());
                text += &self.concatenation()?;
                if token.kind != Kind::Literal || self.at > at + 1 {
                    compared.operands.push(start..text.len());
                }
                continue;
            }
            compared.is_compared |= COMPARISONS.contains(&token.text) || are_arguments && token.text == ",";
            if SEPARATORS.contains(&token.text) {
                compared.end(&mut text);
            } else if token.text == ":" {
                // The key of a dict.
                compared.is_compared = true;
                compared.end(&mut text);
            }
            self.take(&mut text);
        }
        compared.is_compared |= are_arguments;
        compared.end(&mut text);
        Some(text)
    }

    fn concatenation(&mut self) -> Option<String> {
        let mut text = self.product()?;
        if !self.is_next(&["~"]) {
            return Some(text);
        }
        text = called("__text", &text);
        while self.is_next(&["~"]) {
            self.take(&mut text);
            text += &called("__text", &self.product()?);
        }
        Some(text)
    }

    fn product(&mut self) -> Option<String> {
        let mut text = self.operand()?;
        while self.is_next(&["*", "/", "//", "%"]) {
            if self.is_next(&["%"]) {
                self.at += 1;
                text = called("__mod", &format!("{text},{}", self.operand()?));
            } else {
                self.take(&mut text);
                text += &self.operand()?;
            }
        }
        Some(text)
    }

    /// An operand with signs, attributes, calls, filters, tests and powers.
    fn operand(&mut self) -> Option<String> {
        let mut text = String::new();
        loop {
            let start = text.len();
            self.primary(&mut text)?;
            // A filter makes text of a list. Literals and numbers with a sign are short.
            let own = text[start..].trim_start();
            if self.is_next(&["|"]) && !own.starts_with(['-', '\'', '"']) {
                let bounded = called("__bounded", &text[start..]);
                text.replace_range(start.., &bounded);
            }
            while self.is_next(&["|", "is"]) {
                let is_test = self.is_next(&["is"]);
                self.take(&mut text);
                if is_test && self.is_next(&["not"]) {
                    self.take(&mut text);
                }
                self.name(&mut text);
                if self.is_next(&["("]) {
                    self.arguments(&mut text)?;
                } else if is_test && (self.is_operand() || self.is_next(&["-"])) {
                    self.primary(&mut text)?;
                }
            }
            if !self.is_next(&["**"]) {
                return Some(text);
            }
            self.take(&mut text);
        }
    }

    /// The name of a filter or test.
    fn name(&mut self, text: &mut String) {
        self.take(text);
        while self.is_next(&["."]) {
            self.take(text);
            self.take(text);
        }
    }

    /// A name, literal or bracket with signs before it, and attributes, items and calls after it.
    fn primary(&mut self, text: &mut String) -> Option<()> {
        while self.is_next(&["-"]) {
            self.take(text);
        }
        match self.peek().map(|token| token.kind) {
            Some(Kind::Open) => self.group(text)?,
            Some(Kind::Literal) => {
                // Strings that follow each other are one.
                while self.peek().is_some_and(|token| token.kind == Kind::Literal) {
                    self.take(text);
                }
            }
            Some(Kind::Name | Kind::Operator | Kind::Close) | None => self.take(text),
        }
        let mut name = "";
        while let Some(token) = self.peek().filter(|_| self.is_next(&[".", "(", "["])) {
            if token.text == "." {
                self.take(text);
                name = self.peek().map_or("", |token| token.text);
                self.take(text);
            } else if token.text == "[" {
                self.wrapped_group(text, "__bounded((", "))")?;
            } else if name == "changed" {
                self.wrapped_group(text, "*__all_bounded(", ")")?;
            } else {
                self.arguments(text)?;
            }
        }
        Some(())
    }

    /// A bracket whose contents are surrounded by texts, unless they are literals, nothing, or a slice.
    fn wrapped_group(&mut self, text: &mut String, before: &str, after: &str) -> Option<()> {
        let start = text.len();
        let (first, opened) = (self.at, self.at + 1);
        self.group(text)?;
        let last = self.at - 1;
        if self.tokens[last].kind != Kind::Close {
            // The parser reports it.
            return Some(());
        }
        let inner = self.tokens.get(opened..last).unwrap_or_default();
        let is_literal = inner.iter().all(|token| token.kind == Kind::Literal);
        if is_literal || outside_brackets(inner, ":").is_some() {
            return Some(());
        }
        let open = start + self.tokens[first].space.len() + self.tokens[first].text.len();
        text.insert_str(text.len() - self.tokens[last].text.len(), after);
        text.insert_str(open, before);
        Some(())
    }

    /// A bracket and its contents.
    fn group(&mut self, text: &mut String) -> Option<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        self.take(text);
        *text += &self.sequence(false)?;
        self.take(text);
        self.depth -= 1;
        Some(())
    }

    /// The arguments of a call, in brackets.
    fn arguments(&mut self, text: &mut String) -> Option<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        self.take(text);
        *text += &self.sequence(true)?;
        self.take(text);
        self.depth -= 1;
        Some(())
    }
}

/// The place of a text outside of brackets.
fn outside_brackets(tokens: &[Token], text: &str) -> Option<usize> {
    let mut depth = 0usize;
    tokens.iter().position(|token| {
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close => depth = depth.saturating_sub(1),
            Kind::Name | Kind::Literal | Kind::Operator => {}
        }
        depth == 0 && token.text == text
    })
}

/// Operands up to a separator.
#[derive(Default)]
struct Compared {
    /// Their places in the text, without literals.
    operands: Vec<Range<usize>>,
    is_compared: bool,
}

impl Compared {
    /// Bounds the operands if they are compared.
    fn end(&mut self, text: &mut String) {
        let Compared { operands, is_compared } = std::mem::take(self);
        for place in operands.into_iter().rev().filter(|_| is_compared) {
            let bounded = called("__bounded", &text[place.clone()]);
            text.replace_range(place, &bounded);
        }
    }
}

/// A call, after the whitespace of its arguments.
fn called(function: &str, arguments: &str) -> String {
    let bare = arguments.trim_start();
    let mut text = arguments[..arguments.len() - bare.len()].to_owned();
    // Writing to a string does not fail.
    let _ = write!(text, "{function}({bare})");
    text
}

#[cfg(test)]
mod tests;
