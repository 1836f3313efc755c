//! The operator `%` of Python's strings.
//! Source: <https://docs.python.org/3/library/stdtypes.html#printf-style-string-formatting>.

use super::python::{self, Budget};
use minijinja::Value;
use minijinja::formatting::{FormatStyle, format as format_number};
use minijinja::value::ValueKind;

/// The largest width and precision of a number.
pub(super) const MAX_WIDTH: usize = 10_000;

/// Returns `format % arguments`: a tuple has an argument for each conversion, a dict one for each key, and any other value
/// is the only argument. The error is Python's, or says that the text exceeds the budget.
pub(super) fn format(format: &str, arguments: &Value, budget: &Budget) -> Result<String, String> {
    let values = match arguments.is_tuple() {
        true => arguments.try_iter().map_err(|error| error.to_string())?.collect(),
        false => vec![arguments.clone()],
    };
    let mut formatter =
        Formatter { rest: format, arguments, values: values.into_iter(), budget, text: String::new() };
    while let Some(at) = formatter.rest.find('%') {
        formatter.text.push_str(&formatter.rest[..at]);
        formatter.rest = &formatter.rest[at + 1..];
        formatter.conversion()?;
        if formatter.text.len() > budget.bytes {
            return Err("the text exceeds the limit of work".to_owned());
        }
    }
    // Python exempts dicts, whose items have names, and lists, which are only items of a number.
    let has_items = !arguments.is_tuple() && [ValueKind::Map, ValueKind::Seq].contains(&arguments.kind());
    if formatter.values.next().is_some() && !has_items {
        return Err("not all arguments converted during string formatting".to_owned());
    }
    Ok(formatter.text + formatter.rest)
}

struct Formatter<'a> {
    /// The format from the current position on.
    rest: &'a str,
    arguments: &'a Value,
    /// The arguments that are not used.
    values: std::vec::IntoIter<Value>,
    budget: &'a Budget,
    text: String,
}

/// The flags, the width and the precision of a conversion.
#[derive(Clone, Default)]
struct Spec {
    flags: String,
    width: usize,
    precision: Option<usize>,
}

impl Formatter<'_> {
    /// Appends a conversion, after its `%`.
    fn conversion(&mut self) -> Result<(), String> {
        if self.accept("%") {
            self.text.push('%');
            return Ok(());
        }
        let named = if self.accept("(") { Some(self.named()?) } else { None };
        let flags = self.rest.len() - self.rest.trim_start_matches(['-', '+', ' ', '#', '0']).len();
        let mut spec = Spec { flags: self.take(flags).to_owned(), ..Spec::default() };
        let width = self.count()?;
        if width.is_some_and(|width| width < 0) {
            spec.flags.push('-');
        }
        spec.width = checked(width.unwrap_or(0))?;
        if self.accept(".") {
            spec.precision = Some(checked(self.count()?.unwrap_or(0).max(0))?);
        }
        // Modifiers of length have no effect in Python.
        let _ = ["h", "l", "L"].iter().any(|modifier| self.accept(modifier));
        let kind = self.rest.chars().next().ok_or("incomplete format")?;
        self.take(kind.len_utf8());
        let value = match named {
            Some(value) => value,
            None => self.next()?,
        };
        let text = self.converted(kind, &value, &spec)?;
        self.text.push_str(&text);
        Ok(())
    }

    fn converted(&self, kind: char, value: &Value, spec: &Spec) -> Result<String, String> {
        match kind {
            's' => Ok(spec.padded(python::text(value, *self.budget)?)),
            'r' => Ok(spec.padded(python::repr(value, *self.budget)?)),
            'a' => Ok(spec.padded(python::ascii(&python::repr(value, *self.budget)?))),
            'c' => character(value).map(|text| Spec { precision: None, ..spec.clone() }.padded(text)),
            'd' | 'i' | 'u' => {
                spec.number('d', integer(value, true).ok_or_else(|| refused(kind, value, "a real number"))?)
            }
            'x' | 'X' | 'o' => {
                spec.number(kind, integer(value, false).ok_or_else(|| refused(kind, value, "an integer"))?)
            }
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
                let number = integer(value, false).and_then(|value| f64::try_from(value).ok());
                let number = python::float_of(value)
                    .or(number)
                    .ok_or_else(|| refused(kind, value, "a real number"))?;
                spec.number(kind, Value::from(number))
            }
            _ => Err(format!("unsupported format character '{kind}'")),
        }
    }

    fn accept(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn take(&mut self, length: usize) -> &str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    /// The next argument of a tuple, or the only one.
    fn next(&mut self) -> Result<Value, String> {
        self.values.next().ok_or_else(|| "not enough arguments for format string".to_owned())
    }

    /// The value of a key in brackets, after the first bracket.
    fn named(&mut self) -> Result<Value, String> {
        let mut depth = 1;
        let end = self.rest.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        let key = self.take(end.ok_or("incomplete format key")?).to_owned();
        self.accept(")");
        if self.arguments.kind() != ValueKind::Map {
            return Err("format requires a mapping".to_owned());
        }
        let value = self.arguments.get_item(&Value::from(key.as_str())).map_err(|error| error.to_string())?;
        if value.is_undefined() { Err(format!("the dict has no key {key:?}")) } else { Ok(value) }
    }

    /// A width or precision: digits, or `*` for the next argument.
    fn count(&mut self) -> Result<Option<i64>, String> {
        if self.accept("*") {
            let value = self.next()?;
            let number = value.is_integer().then(|| i64::try_from(value).ok()).flatten();
            return number.map(Some).ok_or_else(|| "* wants int".to_owned());
        }
        let digits = self.rest.len() - self.rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        match self.take(digits) {
            "" => Ok(None),
            digits => digits.parse().map(Some).map_err(|_| "a width or precision is too large".to_owned()),
        }
    }
}

fn checked(count: i64) -> Result<usize, String> {
    let count = usize::try_from(count.unsigned_abs()).ok().filter(|count| *count <= MAX_WIDTH);
    count.ok_or_else(|| format!("a width or precision is more than the {MAX_WIDTH} allowed"))
}

fn refused(kind: char, value: &Value, wanted: &str) -> String {
    format!("%{kind} format: {wanted} is required, not {}", value.kind())
}

/// The integer of a number or bool; with `truncates`, also of a finite float.
fn integer(value: &Value, truncates: bool) -> Option<Value> {
    if value.kind() == ValueKind::Bool {
        return Some(Value::from(i64::from(value.is_true())));
    }
    match python::float_of(value).filter(|_| truncates) {
        // Exact for all floats below 2^127.
        Some(number) if number.abs() < 1.7e38 => Some(Value::from(number.trunc() as i128)),
        _ => value.is_integer().then(|| value.clone()),
    }
}

/// The text of `%c`: a character, or the one of a code.
fn character(value: &Value) -> Result<String, String> {
    let code = |value: &Value| char::from_u32(u32::try_from(value.clone()).ok()?);
    let single = value.as_str().filter(|text| text.chars().count() == 1).map(str::to_owned);
    let of_code = integer(value, false).and_then(|value| code(&value)).map(String::from);
    single.or(of_code).ok_or_else(|| "%c requires int or char".to_owned())
}

impl Spec {
    /// A text of at most the precision, with spaces up to the width.
    fn padded(&self, text: String) -> String {
        let text: String = match self.precision {
            Some(precision) => text.chars().take(precision).collect(),
            None => text,
        };
        let padding = " ".repeat(self.width.saturating_sub(text.chars().count()));
        if self.flags.contains('-') { text + &padding } else { padding + &text }
    }

    /// A number; of an integer, the precision is the least number of digits.
    fn number(&self, kind: char, value: Value) -> Result<String, String> {
        let convert = |spec: String| {
            let text = format_number(FormatStyle::Printf, &spec, std::slice::from_ref(&value));
            text.map_err(|error| error.to_string())
        };
        let width = if self.width == 0 { String::new() } else { self.width.to_string() };
        match self.precision {
            Some(digits) if "dxXo".contains(kind) => {
                let signs: String = self.flags.chars().filter(|flag| !"-0".contains(*flag)).collect();
                let text = filled(convert(format!("%{signs}{kind}"))?, digits, true);
                let zeros = self.flags.contains('0') && !self.flags.contains('-');
                let text = if zeros { filled(text, self.width, false) } else { text };
                Ok(Spec { precision: None, ..self.clone() }.padded(text))
            }
            Some(precision) => convert(format!("%{}{width}.{precision}{kind}", self.flags)),
            None => convert(format!("%{}{width}{kind}", self.flags)),
        }
    }
}

/// Puts zeros after the sign and the prefix of an integer, up to a length. `digits`: the length is that of the digits alone.
fn filled(number: String, length: usize, digits: bool) -> String {
    let sign = number.len() - number.trim_start_matches(['-', '+', ' ']).len();
    let prefix =
        if ["0x", "0X", "0o"].iter().any(|prefix| number[sign..].starts_with(prefix)) { 2 } else { 0 };
    let (start, rest) = number.split_at(sign + prefix);
    let held = if digits { rest.len() } else { number.len() };
    format!("{start}{}{rest}", "0".repeat(length.saturating_sub(held)))
}
