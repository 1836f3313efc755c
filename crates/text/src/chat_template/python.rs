//! Values as Python prints them.

use minijinja::Value;
use minijinja::value::ValueKind;
use std::fmt::Write;

/// Nesting beyond this depth is refused.
const MAX_DEPTH: usize = 128;

/// Returns the text of a value where Python's `str` differs from that of the template engine: constants and
/// containers. `None` for others. The error says that the text exceeds the budget, or is nested too deeply.
pub(super) fn literal(value: &Value, mut budget: Budget) -> Result<Option<String>, String> {
    let differs = [ValueKind::None, ValueKind::Bool, ValueKind::Seq, ValueKind::Map];
    if !differs.contains(&value.kind()) {
        return Ok(None);
    }
    let mut text = String::new();
    write_literal(value, &mut text, &mut budget, 0)?;
    Ok(Some(text))
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
    } else if kind == ValueKind::Bool {
        text.push_str(if value.is_true() { "True" } else { "False" });
    } else if kind == ValueKind::String {
        write_string(value.as_str().unwrap_or_default(), text);
    } else if kind == ValueKind::Seq {
        text.push('[');
        for (index, item) in items()?.enumerate() {
            text.push_str(separator(index));
            write_literal(&item, text, budget, depth + 1)?;
        }
        text.push(']');
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
    } else {
        write!(text, "{value}").map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The work that the text of a value may take.
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
            other => text.push(other),
        }
    }
    text.push(quote);
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
                writer.write_string(&key.to_string())?;
                writer.text.push_str(&writer.style.after_key);
                let item = value.get_item(key).map_err(|error| error.to_string())?;
                writer.write(&item, depth + 1)
            })
        } else if kind == ValueKind::Undefined {
            Err("tojson: the value is undefined".to_owned())
        } else if kind == ValueKind::String {
            self.write_string(value.as_str().unwrap_or_default())
        } else {
            let scalar = serde_json::to_string(value).map_err(|error| error.to_string())?;
            self.text.push_str(&scalar);
            Ok(())
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
            if character.is_ascii() {
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
