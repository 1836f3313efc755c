//! Rewrites the source of a template for the engine, which has no operator `%` of strings, no `varargs` and `kwargs` of
//! macros and no `{% generation %}`, and whose `~` has another text for numbers and tuples than Python.
//!
//! | source | rewritten |
//! |---|---|
//! | `a % b` | `__mod(a, b)` |
//! | `a ~ b` | `__text(a) ~ __text(b)` |
//! | `{% macro f(a) %}...varargs...{% endmacro %}` | `{% macro __f(a,varargs=(),kwargs={}) %}...{% endmacro %}{% set f = __variadic(__f, true, false) %}` |
//! | `{% generation %}`, `{% endgeneration %}` | `{% if true %}`, `{% endif %}` |
//!
//! Everything else stays as it is, byte by byte, so that errors name the same line. A source that is not understood is
//! not changed: the engine reports its errors.

use std::fmt::Write;

/// Brackets nested deeper are beyond the limit of the engine.
const MAX_DEPTH: usize = 100;

/// The most operators that an operand may be inside of: the engine recurses for each.
const MAX_OPERATORS: usize = 500;

/// Names that are no operands.
const KEYWORDS: [&str; 9] = ["and", "or", "not", "in", "if", "else", "recursive", "is", "import"];

/// Returns the source for the engine.
///
/// # Errors
/// When an expression has too many operators.
pub(super) fn rewritten(source: &str) -> Result<String, String> {
    let mut writer = Writer { output: String::with_capacity(source.len()), macros: Vec::new() };
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        let (before, tag) = rest.split_at(start);
        writer.output.push_str(before);
        let end = match tag.as_bytes().get(1) {
            Some(b'{' | b'%') if raw_end(tag).is_none() => {
                let (parsed, length) = Tag::parse(tag);
                if nested_operators(&parsed.tokens) > MAX_OPERATORS {
                    return Err(format!("an expression has more than the {MAX_OPERATORS} operators allowed"));
                }
                let Some(length) = length else {
                    rest = tag;
                    break;
                };
                writer.tag(&parsed);
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
    for token in tokens {
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

/// The length of a `{% raw %}` block; `None` of other tags.
fn raw_end(tag: &str) -> Option<usize> {
    let after = unsigned(tag.strip_prefix("{%")?).strip_prefix("raw")?.trim_start();
    if !after.trim_start_matches(['-', '+']).starts_with("%}") {
        return None;
    }
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
}

impl Writer {
    fn tag(&mut self, tag: &Tag) {
        self.output.push_str(tag.open);
        let words = (tag.is_block(), tag.word(0), tag.tokens.len());
        match words {
            (true, "generation", 1) => write_word(&mut self.output, tag, "if true"),
            (true, "endgeneration", 1) => write_word(&mut self.output, tag, "endif"),
            (true, "macro", 3..) => self.open_macro(tag),
            _ => {
                self.mark(&tag.tokens);
                // The first word of a block is its kind.
                let (kind, rest) = tag.tokens.split_at(usize::from(tag.is_block()).min(tag.tokens.len()));
                self.output += &plain(kind);
                self.output += &rewrite(rest).unwrap_or_else(|| plain(rest));
            }
        }
        self.output.push_str(tag.close);
        if words.0 && words.1 == "endmacro" {
            self.close_macro(tag);
        }
    }

    fn open_macro(&mut self, tag: &Tag) {
        let [kind, name, parameters @ .., last] = &*tag.tokens else { return };
        push(&mut self.output, kind);
        let name_at = self.output.len() + name.space.len();
        push(&mut self.output, name);
        self.output += &rewrite(parameters).unwrap_or_else(|| plain(parameters));
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

/// Rewrites the operators of expressions; `None` if they are nested too deeply.
fn rewrite(tokens: &[Token]) -> Option<String> {
    if !tokens.iter().any(|token| token.kind == Kind::Operator && ["%", "~"].contains(&token.text)) {
        return Some(plain(tokens));
    }
    let mut parser = Parser { tokens, at: 0, depth: 0 };
    let text = parser.sequence()?;
    // A bracket that closes none.
    (parser.at == tokens.len()).then_some(text)
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
    fn sequence(&mut self) -> Option<String> {
        let (mut text, mut after_operand) = (String::new(), false);
        while let Some(token) = self.peek().filter(|token| token.kind != Kind::Close) {
            let is_sign = token.kind == Kind::Operator && token.text == "-" && !after_operand;
            after_operand = self.is_operand() || is_sign;
            match after_operand {
                true => text += &self.concatenation()?,
                false => self.take(&mut text),
            }
        }
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
            self.primary(&mut text)?;
            while self.is_next(&["|", "is"]) {
                let is_test = self.is_next(&["is"]);
                self.take(&mut text);
                if is_test && self.is_next(&["not"]) {
                    self.take(&mut text);
                }
                self.name(&mut text);
                if self.is_next(&["("]) {
                    self.group(&mut text)?;
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
        while self.is_next(&[".", "(", "["]) {
            if self.is_next(&["."]) {
                self.take(text);
                self.take(text);
            } else {
                self.group(text)?;
            }
        }
        Some(())
    }

    /// A bracket and its contents.
    fn group(&mut self, text: &mut String) -> Option<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        self.take(text);
        *text += &self.sequence()?;
        self.take(text);
        self.depth -= 1;
        Some(())
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
mod tests {
    use super::rewritten;

    #[test]
    fn operators_have_the_precedence_of_jinja() {
        let cases = [
            ("{{ a % b }}", "{{ __mod(a, b) }}"),
            ("{{ 'x' % (a, b % 2) ~ c * d }}", "{{ __text(__mod('x', (a, __mod(b, 2)))) ~ __text(c * d) }}"),
            ("{{ -a % b ** c|f % d }}", "{{ __mod(__mod(-a, b ** c|f), d) }}"),
            ("{{ a - b % c + d }}", "{{ a - __mod(b, c) + d }}"),
            (
                "{% if x is divisibleby 3 and y % 2 == 0 %}",
                "{% if x is divisibleby 3 and __mod(y, 2) == 0 %}",
            ),
            ("{%- if -a % b -%}", "{%- if __mod(-a, b) -%}"),
            (
                "{% set x = f(a)[b % c].d ~ \"%}\" %}",
                "{% set x = __text(f(a)[__mod(b, c)].d) ~ __text(\"%}\") %}",
            ),
            ("{% for x in a ~ b if x % 2 %}", "{% for x in __text(a) ~ __text(b) if __mod(x, 2) %}"),
            (
                "{{ 1e-05 ~ a.b }} {{ {'a': {'b': c % d}} }}",
                "{{ __text(1e-05) ~ __text(a.b) }} {{ {'a': {'b': __mod(c, d)}} }}",
            ),
            ("{% if not a % b %}", "{% if not __mod(a, b) %}"),
            ("{{ a if b else c % d }}", "{{ a if b else __mod(c, d) }}"),
            ("{{ f(x=a % b, *c) }}", "{{ f(x=__mod(a, b), *c) }}"),
        ];
        for (source, expected) in cases {
            assert_eq!(rewritten(source).unwrap(), expected);
        }
    }

    #[test]
    fn other_text_stays_as_it_is() {
        let deep = format!("{{{{ {}a % b{} }}}}", "(".repeat(200), ")".repeat(200));
        for source in [
            "{# a % b #} 100 % 3 { % } {{ '%' }} {{ 'a ~ b' }} %}",
            "{% raw %}{{ a % b }}{%- endraw %}",
            "{%- raw -%} {{ a ~ b {% x %} {% endraw -%}",
            "{{ a % b",
            "{{ 'a % b }}",
            "{{ a % b) }}",
            "{% macro f(a) %}{{ a.varargs }}{% endmacro %}{{ kwargs }}",
            "{% macro f(a, kwargs) %}{{ kwargs }}{% endmacro %}",
            "{",
            "",
            &deep,
        ] {
            assert_eq!(rewritten(source).unwrap(), source);
        }
    }

    #[test]
    fn macros_with_more_arguments_are_wrapped() {
        let source = "{% macro f(a, b='x' ~ 'y') %}{{ varargs }}{%- endmacro -%}\n";
        let expected = "{% macro __f(a, b=__text('x') ~ __text('y'),varargs=(),kwargs={}) %}{{ varargs }}{%- endmacro -%}\
                        {%- set f = __variadic(__f, true, false) -%}\n";
        assert_eq!(rewritten(source).unwrap(), expected);
        let empty = "{% macro f() %}{{ varargs }}{% endmacro %}{% macro g(a,) %}{{ kwargs }}{% endmacro %}";
        let expected = "{% macro __f(varargs=(),kwargs={}) %}{{ varargs }}{% endmacro %}\
                        {% set f = __variadic(__f, true, false) %}\
                        {% macro __g(a,varargs=(),kwargs={}) %}{{ kwargs }}{% endmacro %}\
                        {% set g = __variadic(__g, false, true) %}";
        assert_eq!(rewritten(empty).unwrap(), expected);
        let nested = "{% macro f() %}{% macro g(a) %}{{ kwargs.a }}{% endmacro %}{{ g(1) }}{% endmacro %}";
        let expected = "{% macro f() %}{% macro __g(a,varargs=(),kwargs={}) %}{{ kwargs.a }}{% endmacro %}\
                        {% set g = __variadic(__g, false, true) %}{{ g(1) }}{% endmacro %}";
        assert_eq!(rewritten(nested).unwrap(), expected);
    }

    #[test]
    fn blocks_of_generation_always_render() {
        let source = "{%- generation -%}x{%+ endgeneration %}{% generation_x %}";
        assert_eq!(rewritten(source).unwrap(), "{%- if true -%}x{%+ endif %}{% generation_x %}");
    }
}
