//! Functions, filters and blocks that chat templates of Hugging Face expect.

use super::{python, time};
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, State, Value};
use std::borrow::Cow;
use std::error::Error as _;
use std::fmt;
use std::time::SystemTime;

/// Registers functions, filters and the methods of Python's values.
pub(super) fn register(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_formatter(|out, state, value| match literal(state, value)? {
        Some(text) => minijinja::escape_formatter(out, state, &text),
        None => minijinja::escape_formatter(out, state, value),
    });
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", string);
    environment.add_function("raise_exception", raise_exception);
}

/// The text that the remaining fuel pays for: a unit for each value and for each 64 bytes.
fn budget(state: &State) -> python::Budget {
    let (_, remaining) = state.fuel_levels().unwrap_or((0, super::FUEL));
    let units = |bytes: u64| usize::try_from(remaining.saturating_mul(bytes)).unwrap_or(usize::MAX);
    python::Budget { values: units(1), bytes: units(64) }
}

fn invalid(problem: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem)
}

/// The text of constants and containers.
fn literal(state: &State, value: &Value) -> Result<Option<Value>, Error> {
    let text = python::literal(value, budget(state)).map_err(invalid)?;
    Ok(text.map(Value::from))
}

/// The filter `string`.
fn string(state: &State, value: Value) -> Result<Value, Error> {
    Ok(literal(state, &value)?.unwrap_or_else(|| Value::from(value.to_string())))
}

/// The error of `raise_exception`.
#[derive(Debug)]
struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Refusal(message)))
}

/// Returns the message of `raise_exception` if it caused an error.
pub(super) fn refusal(error: &Error) -> Option<String> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(Refusal(message)) = error.downcast_ref() {
            return Some(message.clone());
        }
        cause = error.source();
    }
    None
}

/// The function `strftime_now` at a time.
pub(super) fn strftime_now(now: SystemTime) -> Value {
    let format = move |pattern: String| time::format(&pattern, now).map_err(invalid);
    Value::from_function(format)
}

/// The filter `tojson` of `transformers`: `json.dumps` without escapes of characters beyond ASCII.
fn tojson(state: &State, value: Value, indent: Option<Value>, options: Kwargs) -> Result<Value, Error> {
    let named: Option<Value> = options.get("indent")?;
    let indent = indent.or(named).filter(|indent| !indent.is_none());
    let indent = indent.map(usize::try_from).transpose()?;
    let ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    let sort_keys: Option<bool> = options.get("sort_keys")?;
    let separators: Option<Value> = options.get("separators")?;
    options.assert_all_used()?;
    let mut style = python::JsonStyle::new(indent, ensure_ascii.unwrap_or(false));
    if let Some(pair) = separators.filter(|pair| !pair.is_none()) {
        let part = |index: usize| pair.get_item_by_index(index).map(|part| part.to_string());
        (style.between, style.after_key) = (part(0)?, part(1)?);
    }
    let text = python::json(&value, &style, sort_keys.unwrap_or(false), budget(state));
    let text = text.map_err(invalid)?;
    Ok(Value::from_safe_string(text))
}

/// Replaces `{% generation %}` and `{% endgeneration %}`, which mark replies for training, by blocks that always
/// render.
pub(super) fn without_generation_blocks(source: &str) -> String {
    let mut plain = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, block) = rest.split_at(start);
        plain.push_str(before);
        let Some(end) = block.find("%}") else {
            rest = block;
            break;
        };
        let (tag, after) = block.split_at(end + 2);
        plain.push_str(&without_generation(tag));
        rest = after;
    }
    plain.push_str(rest);
    plain
}

/// A block whose only word is `generation` or `endgeneration` becomes `if true` or `endif`, with its own whitespace
/// control.
fn without_generation(tag: &str) -> Cow<'_, str> {
    let inner = tag[2..tag.len() - 2].trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
    match inner {
        "generation" => tag.replacen(inner, "if true", 1).into(),
        "endgeneration" => tag.replacen(inner, "endif", 1).into(),
        _ => tag.into(),
    }
}
