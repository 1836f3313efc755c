//! Patterns of dotted parameter names.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use kiln_tensor::{Error, Result};

/// Characters of regular expressions that no pattern contains.
const REGEX: [char; 10] = ['^', '$', '\\', '(', ')', '[', ']', '|', '+', '?'];

/// Number of names that [`Pattern::near`] returns.
const NEAR: usize = 3;

/// A glob pattern of dotted parameter names. It matches the whole name.
///
/// | in a pattern | matches |
/// |---|---|
/// | `*` | any characters of one component, also none |
/// | `**` | any number of components, also none: `**.bias`, `backbone.**` |
/// | `{weight,bias}` | one of these texts, which may contain dots |
/// | other characters | themselves |
///
/// ```
/// use kiln_nn::Pattern;
///
/// let pattern = Pattern::new("layers.*.{q,k}_proj.**")?;
/// assert!(pattern.matches("layers.3.q_proj.weight"));
/// assert!(!pattern.matches("layers.3.v_proj.weight"));
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    tokens: Vec<Token>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Text(String),
    /// Characters of one component.
    Star,
    /// Components that each end with a dot.
    Leading,
    /// Components that each begin with a dot, at the end.
    Trailing,
    /// A whole name.
    All,
    OneOf(Vec<String>),
}

/// A part of a replacement.
enum Part<'a> {
    Text(&'a str),
    /// The text of a wildcard, counted from 1.
    Wildcard(usize),
}

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// When the text is no pattern, such as a regular expression. The message names the form that is.
    pub fn new(text: impl Into<String>) -> Result<Pattern> {
        let text = text.into();
        let mut tokens = Vec::new();
        let mut rest = text.as_str();
        while let Some(first) = rest.chars().next() {
            let at_component = rest.len() == text.len() || text[..text.len() - rest.len()].ends_with('.');
            rest = match first {
                '*' if rest.starts_with("**") => components(&text, &rest[2..], at_component, &mut tokens)?,
                '*' => {
                    tokens.push(Token::Star);
                    &rest[1..]
                }
                '{' => alternatives(&text, &rest[1..], &mut tokens)?,
                '}' => return Err(invalid(&text, "has a `}` without `{`", "write `{weight,bias}`")),
                _ if REGEX.contains(&first) => return Err(regular_expression(&text, first)),
                _ => {
                    let end = rest.find(|c: char| matches!(c, '*' | '{' | '}') || REGEX.contains(&c));
                    let (plain, others) = rest.split_at(end.unwrap_or(rest.len()));
                    tokens.push(Token::Text(plain.to_owned()));
                    others
                }
            };
        }
        if text.is_empty() || text.starts_with('.') || text.ends_with('.') {
            let hint = "a pattern matches the whole name: `backbone.**` for all names that begin with `backbone.`, \
                        `**.bias` for all that end with `.bias`";
            return Err(invalid(&text, "begins or ends within a name", hint));
        }
        Ok(Pattern { text, tokens })
    }

    /// Returns the text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the pattern matches a name.
    pub fn matches(&self, name: &str) -> bool {
        matched(&self.tokens, name, &mut Vec::new())
    }

    /// Returns the replacement of a name, or `None` if the pattern does not match it. In the replacement, `$1` or `${1}`
    /// is the text that the first wildcard (`*`, `**` or `{..}`) matched. A component that is empty because a `**`
    /// matched nothing is left out.
    ///
    /// ```
    /// use kiln_nn::Pattern;
    ///
    /// let pattern = Pattern::new("**.attn.{q,k}.*")?;
    /// let renamed = pattern.replace("layers.0.attn.q.weight", "$1.attention.$2_proj.$3");
    /// assert_eq!(renamed.as_deref(), Some("layers.0.attention.q_proj.weight"));
    /// assert_eq!(pattern.replace("attn.k.bias", "$1.$2.$3").as_deref(), Some("k.bias"));
    /// assert_eq!(pattern.replace("attn.v.bias", "$2"), None);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    pub fn replace(&self, name: &str, replacement: &str) -> Option<String> {
        let mut found = Vec::new();
        if !matched(&self.tokens, name, &mut found) {
            return None;
        }
        let component = |component: &str| {
            let mut text = String::new();
            let mut has_wildcard = false;
            for part in parts(component) {
                text += match part {
                    Part::Text(plain) => plain,
                    Part::Wildcard(place) => {
                        has_wildcard = true;
                        place.checked_sub(1).and_then(|place| found.get(place)).copied().unwrap_or_default()
                    }
                };
            }
            (!has_wildcard || !text.is_empty()).then_some(text)
        };
        Some(replacement.split('.').filter_map(component).collect::<Vec<_>>().join("."))
    }

    /// Checks a replacement.
    ///
    /// # Errors
    /// When it has a `$` without the number of a wildcard of this pattern.
    pub fn check_replacement(&self, replacement: &str) -> Result<()> {
        let count = self.tokens.iter().filter(|token| !matches!(token, Token::Text(_))).count();
        let is_known = |part| match part {
            Part::Text(text) => !text.contains('$'),
            Part::Wildcard(place) => (1..=count).contains(&place),
        };
        if replacement.split('.').flat_map(parts).all(is_known) {
            return Ok(());
        }
        let problem =
            format!("and the replacement `{replacement}` do not suit: wildcards in the pattern: {count}");
        Err(invalid(&self.text, &problem, "`$1` is the text of the first `*`, `**` or `{..}`"))
    }

    /// Returns the names that are most similar to the pattern, at most three: suggestions where it matches none.
    pub fn near<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let components: Vec<&str> = self.text.split('.').filter(|component| *component != "**").collect();
        let wanted = components.join(".");
        let from_start = !self.text.starts_with("**");
        let mut near: Vec<(usize, &str)> = names
            .into_iter()
            .map(|name| {
                let parts: Vec<&str> = name.split('.').collect();
                let count = components.len().min(parts.len());
                let part = if from_start { &parts[..count] } else { &parts[parts.len() - count..] };
                (edit_distance(&wanted, &part.join(".")), name)
            })
            .collect();
        near.sort_by_key(|(distance, _)| *distance);
        near.into_iter().take(NEAR).map(|(_, name)| name).collect()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Parses `**`. `rest` is the text after it.
fn components<'a>(text: &str, rest: &'a str, at_component: bool, tokens: &mut Vec<Token>) -> Result<&'a str> {
    let has_before = matches!(tokens.last(), Some(Token::Leading));
    if !at_component || has_before || !(rest.is_empty() || rest.starts_with('.')) {
        let hint = "`**` is between dots, once: `layers.**.bias`; within a component write `*`";
        return Err(invalid(text, "has a `**` that is not a component of its own", hint));
    }
    if let Some(rest) = rest.strip_prefix('.') {
        tokens.push(Token::Leading);
        return Ok(rest);
    }
    match tokens.last_mut() {
        None => tokens.push(Token::All),
        Some(Token::Text(before)) => {
            before.pop();
            if before.is_empty() {
                tokens.pop();
            }
            tokens.push(Token::Trailing);
        }
        Some(_) => {}
    }
    Ok(rest)
}

/// Parses the alternatives after `{`. Returns the text after `}`.
fn alternatives<'a>(text: &str, rest: &'a str, tokens: &mut Vec<Token>) -> Result<&'a str> {
    let Some((inside, rest)) = rest.split_once('}') else {
        return Err(invalid(text, "has a `{` without `}`", "write `{weight,bias}`"));
    };
    if inside.contains(|c: char| matches!(c, '*' | '{') || REGEX.contains(&c)) {
        return Err(invalid(text, "has a wildcard within `{}`", "write plain texts there: `{weight,bias}`"));
    }
    tokens.push(Token::OneOf(inside.split(',').map(str::to_owned).collect()));
    Ok(rest)
}

fn regular_expression(text: &str, found: char) -> Error {
    let problem = format!("contains `{found}`: it is a glob pattern and no regular expression");
    let hint = "write `encoder.**` for `^encoder\\.`, `**.bias` for `\\.bias$`, `**.attn.**` for `\\.attn\\.`, `*` for \
                `\\d+` and `{weight,bias}` for `(weight|bias)`";
    invalid(text, &problem, hint)
}

fn invalid(text: &str, problem: &str, hint: &str) -> Error {
    Error::value("pattern", format!("`{text}` {problem}")).hint(hint)
}

/// Whether the tokens match the whole text. `found` receives the texts of the wildcards.
fn matched<'a>(tokens: &[Token], text: &'a str, found: &mut Vec<&'a str>) -> bool {
    let Some((token, rest)) = tokens.split_first() else { return text.is_empty() };
    let mut go_on = |wildcard: &'a str, text: &'a str| {
        found.push(wildcard);
        let is_match = matched(rest, text, found);
        if !is_match {
            found.pop();
        }
        is_match
    };
    match token {
        Token::Text(plain) => {
            text.strip_prefix(plain.as_str()).is_some_and(|text| matched(rest, text, found))
        }
        Token::Star => {
            let end = text.find('.').unwrap_or(text.len());
            let ends = text[..end].char_indices().map(|(place, _)| place).chain([end]);
            ends.into_iter().any(|end| go_on(&text[..end], &text[end..]))
        }
        Token::Leading => {
            go_on("", text) || text.match_indices('.').any(|(dot, _)| go_on(&text[..dot], &text[dot + 1..]))
        }
        Token::Trailing => match text.strip_prefix('.') {
            Some(components) => go_on(components, ""),
            None => go_on("", text),
        },
        Token::All => go_on(text, ""),
        Token::OneOf(texts) => texts.iter().any(|plain| {
            text.strip_prefix(plain.as_str()).is_some_and(|others| go_on(&text[..plain.len()], others))
        }),
    }
}

/// The parts of a component of a replacement. A `$` that is no reference remains in a text.
fn parts(component: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = component;
    while let Some(dollar) = rest.find('$') {
        let after = &rest[dollar + 1..];
        let (number, others) = match after.strip_prefix('{').and_then(|inside| inside.split_once('}')) {
            Some(found) => found,
            None => after.split_at(after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len())),
        };
        let Ok(place) = number.parse() else { break };
        parts.extend([Part::Text(&rest[..dollar]), Part::Wildcard(place)]);
        rest = others;
    }
    parts.push(Part::Text(rest));
    parts
}

/// Returns the edit distance of two names in bytes: insertions, deletions and replacements (Levenshtein 1966).
#[doc(hidden)]
pub fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distances() {
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("same", "same"), 0);
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("weight", "weight", true),
            ("weight", "head.weight", false),
            ("weight", "weights", false),
            ("*", "a.b", false),
            ("*.weight", "head.weight", true),
            ("*.weight", "a.head.weight", false),
            ("**", "a.b.c", true),
            ("**.bias", "bias", true),
            ("**.bias", "a.b.bias", true),
            ("**.bias", "a.bias.b", false),
            ("**.bias", "a.my_bias", false),
            ("backbone.**", "backbone.conv.weight", true),
            ("backbone.**", "backbone", true),
            ("backbone.**", "backbones.conv", false),
            ("a.**.z", "a.z", true),
            ("a.**.z", "a.b.c.z", true),
            ("a.**.z", "a.b.c", false),
            ("layers.1.**", "layers.10.weight", false),
            ("layers.*.norm*.weight", "layers.10.norm2.weight", true),
            ("layers.*.norm*.weight", "layers.10.conv.weight", false),
            ("layers.*.weight", "layers.weight", false),
            ("layers.**.q_proj.weight", "layers.0.attention.q_proj.weight", true),
            ("**.linear*x.weight", "linear1.weight", false),
            ("**.*_proj.*", "layers.0.q_proj.weight", true),
            ("*_proj", "q_proj", true),
            ("*é*", "café_1", true),
            ("{encoder,decoder}.**", "decoder.0.bias", true),
            ("{encoder,decoder}.**", "coder.0.bias", false),
            ("{model.,}head.weight", "head.weight", true),
            ("{model.,}head.weight", "model.head.weight", true),
            ("**.{attn.bias,inv_freq}", "h.0.attn.bias", true),
        ] {
            assert_eq!(Pattern::new(pattern).unwrap().matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn replacements_have_the_texts_of_wildcards() {
        for (pattern, name, replacement, expected) in [
            ("features.0.**", "features.0.weight", "conv.$1", "conv.weight"),
            ("encoder.layer.*.**", "encoder.layer.11.norm.bias", "layers.$1.$2", "layers.11.norm.bias"),
            ("a.*.**", "a.0.x", "blocks.${1}_$2", "blocks.0_x"),
            ("**.gamma", "gamma", "$1.weight", "weight"),
            ("**.gamma", "a.b.gamma", "$1.weight", "a.b.weight"),
            ("a.**", "a", "b.$1", "b"),
            ("{model.,}head.weight", "model.head.weight", "$1embed.weight", "model.embed.weight"),
            ("**.*{qkv,Wqkv}.*", "blk.0.attn_qkv.bias", "$1.$2q.$4", "blk.0.attn_q.bias"),
            ("**", "a.b", "x.$1", "x.a.b"),
        ] {
            let parsed = Pattern::new(pattern).unwrap();
            parsed.check_replacement(replacement).unwrap();
            assert_eq!(parsed.replace(name, replacement).as_deref(), Some(expected), "{pattern} {name}");
        }
        let pattern = Pattern::new("*.bias").unwrap();
        for replacement in ["$2", "$0", "$name", "${1", "a$"] {
            let error = pattern.check_replacement(replacement).unwrap_err().to_string();
            assert!(error.contains("do not suit: wildcards in the pattern: 1"), "{replacement}: {error}");
        }
    }

    #[test]
    fn other_languages_are_refused_with_the_remedy() {
        for (pattern, problem, remedy) in [
            (r"^encoder\.", "contains `^`", "`encoder.**` for `^encoder\\.`"),
            (r"\.bias$", "contains `\\`", "`**.bias` for `\\.bias$`"),
            ("(weight|bias)", "contains `(`", "`{weight,bias}` for `(weight|bias)`"),
            ("encoder.", "begins or ends within a name", "`backbone.**`"),
            ("", "begins or ends within a name", "`**.bias`"),
            ("a**.b", "has a `**`", "within a component write `*`"),
            ("**.**.b", "has a `**`", "once"),
            ("{a,b", "without `}`", "`{weight,bias}`"),
            ("a}", "without `{`", "`{weight,bias}`"),
            ("{a*,b}", "wildcard within `{}`", "plain texts"),
        ] {
            let error = Pattern::new(pattern).unwrap_err().to_string();
            assert!(error.starts_with(&format!("[pattern] `{pattern}` ")), "{error}");
            assert!(error.contains(problem) && error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn near_names_are_the_most_similar() {
        let names = ["backbone.conv.weight", "backbone.conv.bias", "head.weight", "head.bias"];
        let near = |pattern| Pattern::new(pattern).unwrap().near(names);
        assert_eq!(near("bacbone.**")[..2], ["backbone.conv.weight", "backbone.conv.bias"]);
        assert_eq!(near("haed.bias")[0], "head.bias");
        assert_eq!(near("**.bais")[..2], ["backbone.conv.bias", "head.bias"]);
    }
}
