//! Functions, filters and blocks that chat templates of Hugging Face expect.

use super::{nesting, printf, python, time, variadic};
use minijinja::value::{Kwargs, Rest, Tuple, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use std::error::Error as _;
use std::fmt;
use std::time::SystemTime;

/// Registers functions, filters and the methods of Python's values.
pub(super) fn register(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(|state, value, method, args| {
        args.iter().chain([value]).try_for_each(|value| nesting::check(state, value))?;
        if let (Some(format), "format") = (value.as_str(), method) {
            check_format(state, format, args)?;
        }
        minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
    });
    nesting::register(environment);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_formatter(|out, state, value| match literal(state, value)? {
        Some(text) => minijinja::escape_formatter(out, state, &text),
        None => minijinja::escape_formatter(out, state, value),
    });
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", string);
    environment.add_filter("join", join);
    environment.add_filter("format", format);
    environment.add_filter("truncate", truncate);
    environment.add_filter("urlencode", urlencode);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("joiner", minijinja_contrib::globals::joiner);
    environment.add_function("cycler", |items: Rest<Value>| minijinja_contrib::globals::cycler(items.0));
    environment.add_function("__text", string);
    environment.add_function("__mod", modulo);
    environment.add_function("__variadic", variadic::wrapped);
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

/// The filter `string`, and the text of an operand of `~`.
fn string(state: &State, value: Value) -> Result<Value, Error> {
    Ok(match literal(state, &value)? {
        Some(text) => text,
        None if value.as_str().is_some() => value,
        None => Value::from(value.to_string()),
    })
}

/// The operator `%`: of strings, or of numbers as in Python, where the result has the sign of the divisor.
fn modulo(state: &State, left: Value, right: Value) -> Result<Value, Error> {
    if let Some(format) = left.as_str() {
        return printf::format(format, &right, &budget(state)).map(Value::from).map_err(invalid);
    }
    let problem = || {
        let types = (left.kind(), right.kind());
        invalid(format!(
            "the operator % is not for the types {} and {}, or divides by zero",
            types.0, types.1
        ))
    };
    let integer = |value: &Value| {
        let truth = (value.kind() == ValueKind::Bool).then(|| i128::from(value.is_true()));
        truth.or_else(|| value.is_integer().then(|| i128::try_from(value.clone()).ok()).flatten())
    };
    if let (Some(left), Some(right)) = (integer(&left), integer(&right)) {
        let remainder = left.checked_rem(right).ok_or_else(problem)?;
        let is_below = remainder != 0 && (remainder < 0) != (right < 0);
        return Ok(Value::from(if is_below { remainder + right } else { remainder }));
    }
    let float =
        |value: &Value| python::float_of(value).or_else(|| integer(value).map(|number| number as f64));
    match (float(&left), float(&right)) {
        (Some(left), Some(right)) if right != 0.0 => {
            let remainder = left % right;
            let is_below = (remainder < 0.0) != (right < 0.0);
            Ok(Value::from(match remainder {
                0.0 => 0.0_f64.copysign(right),
                _ if is_below => remainder + right,
                _ => remainder,
            }))
        }
        _ => Err(problem()),
    }
}

/// The filter `format`: the operator `%` with the positional arguments, or with the named ones.
fn format(state: &State, format: String, arguments: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let names: Vec<&str> = named.args().collect();
    let right = match names.is_empty() {
        true => Value::from(Tuple::from(arguments.0)),
        false if arguments.0.is_empty() => {
            let pairs: Result<Vec<(String, Value)>, Error> =
                names.iter().map(|&name| Ok((name.to_owned(), named.get(name)?))).collect();
            Value::from_pairs(pairs?)
        }
        false => return Err(invalid("format takes positional or named arguments, not both".to_owned())),
    };
    printf::format(&format, &right, &budget(state)).map(Value::from).map_err(invalid)
}

/// Bounds the method `format` of strings, whose library allocates as many characters as a width says.
fn check_format(state: &State, format: &str, args: &[Value]) -> Result<(), Error> {
    let mut numbers = format.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let is_narrow = |digits: &str| digits.parse::<usize>().is_ok_and(|number| number <= printf::MAX_WIDTH);
    if !numbers.all(is_narrow) {
        return Err(invalid(format!("format: a width is more than the {} allowed", printf::MAX_WIDTH)));
    }
    let mut fields: Vec<&str> = format.split('{').skip(1).collect();
    let count = fields.len();
    fields.pop();
    if fields.into_iter().any(|field| !field.contains('}') && field.contains(':')) {
        return Err(invalid("format: a width from an argument is not supported".to_owned()));
    }
    let mut bytes = 0usize;
    for value in args {
        bytes = bytes.saturating_add(string(state, value.clone())?.as_str().map_or(0, str::len));
    }
    match bytes.saturating_mul(count) > budget(state).bytes {
        true => Err(invalid("format: the text exceeds the limit of work".to_owned())),
        false => Ok(()),
    }
}

/// The filter `join`, with the text of Python.
fn join(
    state: &State,
    items: Value,
    separator: Option<Value>,
    attribute: Option<Value>,
    options: Kwargs,
) -> Result<Value, Error> {
    let separator =
        separator.or(options.get("d")?).map_or(Ok(Value::from("")), |value| string(state, value))?;
    let attribute: Option<Value> = attribute.or(options.get("attribute")?).filter(|path| !path.is_none());
    options.assert_all_used()?;
    let separator = separator.to_string();
    let mut joined = String::new();
    for (index, item) in items.try_iter()?.enumerate() {
        state.consume_fuel(1)?;
        if index > 0 {
            joined.push_str(&separator);
        }
        let item = attribute.as_ref().map_or(Ok(item.clone()), |path| item_at(&item, path))?;
        let work = budget(state);
        let limit = work.bytes;
        joined.push_str(&python::text(&item, work).map_err(invalid)?);
        if joined.len() > limit {
            return Err(invalid("the joined text exceeds the limit of work".to_owned()));
        }
    }
    Ok(Value::from(joined))
}

/// The value at a dotted path of attributes and indices.
fn item_at(value: &Value, path: &Value) -> Result<Value, Error> {
    let Some(path) = path.as_str() else { return value.get_item(path) };
    let mut value = value.clone();
    for part in path.split('.') {
        value = match part.parse::<usize>() {
            Ok(index) => value.get_item_by_index(index)?,
            Err(_) => value.get_attr(part)?,
        };
    }
    Ok(value)
}

/// The filter `truncate` of Jinja, with the arguments `length`, `killwords`, `end` and `leeway`.
fn truncate(value: String, arguments: Rest<Value>, options: Kwargs) -> Result<Value, Error> {
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        let named: Option<Value> = options.get(name)?;
        Ok(arguments.get(index).cloned().or(named).filter(|value| !value.is_none()))
    };
    let count = |value: Option<Value>, default| value.map_or(Ok(default), usize::try_from);
    let length = count(argument(0, "length")?, 255)?;
    let killwords = argument(1, "killwords")?.is_some_and(|value| value.is_true());
    let end = argument(2, "end")?.map_or_else(|| "...".to_owned(), |value| value.to_string());
    let leeway = count(argument(3, "leeway")?, 5)?;
    options.assert_all_used()?;
    let kept = length.checked_sub(end.chars().count());
    let kept =
        kept.ok_or_else(|| invalid(format!("truncate: the length {length} is less than that of {end:?}")))?;
    if value.chars().count() <= length.saturating_add(leeway) {
        return Ok(Value::from(value));
    }
    let start: String = value.chars().take(kept).collect();
    // Without a space, the word is cut too.
    let words = start.rsplit_once(' ').map_or(start.as_str(), |(words, _)| words);
    Ok(Value::from(if killwords { start + &end } else { words.to_owned() + &end }))
}

/// The filter `urlencode`: a text, or a query of a dict or of pairs.
fn urlencode(state: &State, value: Value) -> Result<Value, Error> {
    let text = |value: &Value| python::text(value, budget(state)).map_err(invalid);
    let part = |value: &Value| Ok::<String, Error>(quoted(&text(value)?, b"").replace("%20", "+"));
    let kind = value.kind();
    let pairs: Vec<(Value, Value)> = if kind == ValueKind::Map {
        let keys = value.try_iter()?;
        keys.map(|key| Ok((key.clone(), value.get_item(&key)?))).collect::<Result<_, Error>>()?
    } else if kind == ValueKind::Seq || kind == ValueKind::Iterable {
        let pair = |pair: Value| Ok((pair.get_item_by_index(0)?, pair.get_item_by_index(1)?));
        value.try_iter()?.map(pair).collect::<Result<_, Error>>()?
    } else {
        return Ok(Value::from(quoted(&text(&value)?, b"/")));
    };
    let query = pairs.iter().map(|(key, value)| Ok(format!("{}={}", part(key)?, part(value)?)));
    Ok(Value::from(query.collect::<Result<Vec<String>, Error>>()?.join("&")))
}

/// Escapes all bytes but letters, digits, `_.-~` and `safe`, as Python's `urllib.parse.quote`.
fn quoted(text: &str, safe: &[u8]) -> String {
    let mut quoted = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"_.-~".contains(&byte) || safe.contains(&byte) {
            quoted.push(char::from(byte));
        } else {
            quoted.push_str(&format!("%{byte:02X}"));
        }
    }
    quoted
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
