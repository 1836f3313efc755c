//! Values as Python prints them.

use minijinja::Value;
use minijinja::value::ValueKind;
use std::fmt::Write;

/// Nesting beyond this depth is refused.
const MAX_DEPTH: usize = 128;

/// Returns the text of a value where Python's `str` differs from that of the template engine: constants, floats and
/// containers. `None` for others. The error says that the text exceeds the budget, or is nested too deeply.
pub(super) fn literal(value: &Value, mut budget: Budget) -> Result<Option<String>, String> {
    let kinds = [ValueKind::None, ValueKind::Bool, ValueKind::Seq, ValueKind::Map];
    let differs = kinds.contains(&value.kind()) || float_of(value).is_some() || is_list(value);
    if !differs {
        return Ok(None);
    }
    let mut text = String::new();
    write_literal(value, &mut text, &mut budget, 0)?;
    Ok(Some(text))
}

/// Returns the text of a value as Python's `str`. The error is that of [`literal`].
pub(super) fn text(value: &Value, budget: Budget) -> Result<String, String> {
    Ok(literal(value, budget)?.unwrap_or_else(|| value.to_string()))
}

/// Returns the `repr` of a value. The error is that of [`literal`].
pub(super) fn repr(value: &Value, mut budget: Budget) -> Result<String, String> {
    let mut text = String::new();
    write_literal(value, &mut text, &mut budget, 0)?;
    Ok(text)
}

/// Escapes all characters beyond ASCII in a `repr`, as Python's `ascii`.
pub(super) fn ascii(repr: &str) -> String {
    let mut text = String::with_capacity(repr.len());
    for character in repr.chars() {
        if character.is_ascii() { text.push(character) } else { push_escape(character, &mut text) }
    }
    text
}

/// Whether a value is a list that the engine has not computed yet, such as a sum of lists.
fn is_list(value: &Value) -> bool {
    value.kind() == ValueKind::Iterable && value.len().is_some()
}

/// Writes the `repr` of a value. A value can contain others many times, so that its text can be much longer than
/// itself.
fn write_literal(value: &Value, text: &mut String, budget: &mut Budget, depth: usize) -> Result<(), String> {
    budget.take(text, depth)?;
    let items = || value.try_iter().map_err(|error| error.to_string());
    let separator = |index: usize| if index == 0 { "" } else { ", " };
    let kind = value.kind();
    if kind == ValueKind::None {
        text.push_str("None");
    } else if kind == ValueKind::Undefined {
        text.push_str("Undefined");
    } else if kind == ValueKind::Bool {
        text.push_str(if value.is_true() { "True" } else { "False" });
    } else if kind == ValueKind::String {
        write_string(value.as_str().unwrap_or_default(), text);
    } else if kind == ValueKind::Seq || is_list(value) {
        let [open, close] = if value.is_tuple() { ['(', ')'] } else { ['[', ']'] };
        text.push(open);
        for (index, item) in items()?.enumerate() {
            text.push_str(separator(index));
            write_literal(&item, text, budget, depth + 1)?;
        }
        if value.is_tuple() && value.len() == Some(1) {
            text.push(',');
        }
        text.push(close);
    } else if kind == ValueKind::Map {
        text.push('{');
        for (index, key) in items()?.enumerate() {
            text.push_str(separator(index));
            write_literal(&key, text, budget, depth + 1)?;
            text.push_str(": ");
            let item = value.get_item(&key).map_err(|error| error.to_string())?;
            write_literal(&item, text, budget, depth + 1)?;
        }
        text.push('}');
    } else if let Some(number) = float_of(value) {
        text.push_str(&float(number));
    } else {
        write!(text, "{value}").map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Returns the number of a float; `None` for integers and other values.
pub(super) fn float_of(value: &Value) -> Option<f64> {
    let is_float = value.is_number() && !value.is_integer();
    if is_float { f64::try_from(value.clone()).ok() } else { None }
}

/// The shortest decimal number that is read as the same float, with an exponent from 10^16 on and below 10^-4, as Python's
/// `repr` and Rust's `Debug` have them.
fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    let text = format!("{number:?}");
    match text.split_once('e') {
        Some((digits, exponent)) => match exponent.parse::<i32>() {
            Ok(exponent) => format!("{digits}e{exponent:+03}"),
            Err(_) => text,
        },
        None => text,
    }
}

/// The work that the text of a value may take.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    /// Number of values.
    pub(super) values: usize,
    /// Number of bytes of text.
    pub(super) bytes: usize,
}

impl Budget {
    /// Pays for a value.
    fn take(&mut self, text: &str, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err("the value is nested too deeply".to_owned());
        }
        if self.values == 0 || text.len() > self.bytes {
            return Err("the text of the value exceeds the limit of work".to_owned());
        }
        self.values -= 1;
        Ok(())
    }
}

/// The `repr` of a string: single quotes, unless the string contains them and no double quotes.
fn write_string(string: &str, text: &mut String) {
    let quote = if string.contains('\'') && !string.contains('"') { '"' } else { '\'' };
    text.push(quote);
    for character in string.chars() {
        match character {
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\\' => text.push_str("\\\\"),
            other if other == quote => text.extend(['\\', quote]),
            other if is_printable(other) => text.push(other),
            other => push_escape(other, text),
        }
    }
    text.push(quote);
}

/// Appends the escape of a character: `\\x7f`, `\\u200b` or `\\U000e0001`.
fn push_escape(character: char, text: &mut String) {
    let code = u32::from(character);
    // Writing to a string does not fail.
    let _ = match code {
        0..=0xff => write!(text, "\\x{code:02x}"),
        0x100..=0xffff => write!(text, "\\u{code:04x}"),
        _ => write!(text, "\\U{code:08x}"),
    };
}

/// Whether Python prints a character as it is: all but the Unicode categories "other" and "separator", and the space. The
/// standard library has these categories in `escape_debug`, which also escapes quotes, backslashes and, at the start of a
/// string, combining characters.
fn is_printable(character: char) -> bool {
    matches!(character, '\'' | '"' | '\\')
        || ['a', character].iter().collect::<String>().escape_debug().count() == 2
}

/// A float as `json.dumps` writes it.
fn json_float(number: f64) -> String {
    match number {
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        _ if number.is_nan() => "NaN".to_owned(),
        _ => float(number),
    }
}

/// The layout of `json.dumps`.
pub(super) struct JsonStyle {
    pub(super) between: String,
    pub(super) after_key: String,
    indent: Option<usize>,
    ensure_ascii: bool,
}

impl JsonStyle {
    pub(super) fn new(indent: Option<usize>, ensure_ascii: bool) -> Self {
        let between = if indent.is_some() { "," } else { ", " };
        JsonStyle { between: between.to_owned(), after_key: ": ".to_owned(), indent, ensure_ascii }
    }
}

/// Writes a value as `json.dumps` does. The error says that a value has no JSON, is nested too deeply,
/// or exceeds the budget.
pub(super) fn json(
    value: &Value,
    style: &JsonStyle,
    sort_keys: bool,
    budget: Budget,
) -> Result<String, String> {
    let mut writer = JsonWriter { style, sort_keys, budget, text: String::new() };
    writer.write(value, 0)?;
    Ok(writer.text)
}

struct JsonWriter<'a> {
    style: &'a JsonStyle,
    sort_keys: bool,
    budget: Budget,
    text: String,
}

impl JsonWriter<'_> {
    fn write(&mut self, value: &Value, depth: usize) -> Result<(), String> {
        self.budget.take(&self.text, depth)?;
        let items = || value.try_iter().map_err(|error| error.to_string());
        let kind = value.kind();
        if kind == ValueKind::Seq || kind == ValueKind::Iterable {
            let items: Vec<Value> = items()?.collect();
            self.write_items('[', ']', &items, depth, |writer, item| writer.write(item, depth + 1))
        } else if kind == ValueKind::Map {
            let mut keys: Vec<Value> = items()?.collect();
            if self.sort_keys {
                keys.sort();
            }
            self.write_items('{', '}', &keys, depth, |writer, key| {
                writer.write_key(key)?;
                writer.text.push_str(&writer.style.after_key);
                let item = value.get_item(key).map_err(|error| error.to_string())?;
                writer.write(&item, depth + 1)
            })
        } else if kind == ValueKind::Undefined {
            Err("tojson: the value is undefined".to_owned())
        } else if kind == ValueKind::String {
            self.write_string(value.as_str().unwrap_or_default())
        } else if let Some(number) = float_of(value) {
            self.text.push_str(&json_float(number));
            Ok(())
        } else {
            let scalar = serde_json::to_string(value).map_err(|error| error.to_string())?;
            self.text.push_str(&scalar);
            Ok(())
        }
    }

    /// Writes a key, which is text in JSON.
    fn write_key(&mut self, key: &Value) -> Result<(), String> {
        let kind = key.kind();
        if let Some(text) = key.as_str() {
            self.write_string(text)
        } else if kind == ValueKind::None {
            self.write_string("null")
        } else if kind == ValueKind::Bool {
            self.write_string(if key.is_true() { "true" } else { "false" })
        } else if kind == ValueKind::Number {
            let text = float_of(key).map_or_else(|| key.to_string(), json_float);
            self.write_string(&text)
        } else {
            Err(format!("tojson: a key is of type {kind}, not a string, a number, a constant or None"))
        }
    }

    fn write_items(
        &mut self,
        open: char,
        close: char,
        items: &[Value],
        depth: usize,
        write: impl Fn(&mut Self, &Value) -> Result<(), String>,
    ) -> Result<(), String> {
        self.text.push(open);
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.text.push_str(&self.style.between);
            }
            self.new_line(depth + 1);
            write(self, item)?;
        }
        if !items.is_empty() {
            self.new_line(depth);
        }
        self.text.push(close);
        Ok(())
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = self.style.indent {
            self.text.push('\n');
            // Wider indentation is of no use, and would let a template allocate without bound.
            self.text.extend(std::iter::repeat_n(' ', indent.min(16) * depth));
        }
    }

    fn write_string(&mut self, string: &str) -> Result<(), String> {
        let quoted = serde_json::to_string(string).map_err(|error| error.to_string())?;
        if !self.style.ensure_ascii {
            self.text.push_str(&quoted);
            return Ok(());
        }
        for character in quoted.chars() {
            if character.is_ascii() && character != '\x7f' {
                self.text.push(character);
                continue;
            }
            for unit in character.encode_utf16(&mut [0; 2]) {
                write!(self.text, "\\u{unit:04x}").map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }
}
