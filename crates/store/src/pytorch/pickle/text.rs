//! Escapes in the text opcodes of protocol 0.

/// Decodes the operand of `STRING`: a Python string literal with quotes, as UTF-8.
pub(super) fn string_literal(line: &str) -> Option<String> {
    let quote = line.chars().next().filter(|quote| ['\'', '"'].contains(quote))?;
    let inner = line.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(place) = rest.find('\\') {
        bytes.extend(&rest.as_bytes()[..place]);
        let mut escape = rest[place + 1..].chars();
        let simple = match escape.next()? {
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            '\\' => b'\\',
            '\'' => b'\'',
            '"' => b'"',
            'x' => {
                let digits = escape.as_str().get(..2)?;
                escape = escape.as_str()[2..].chars();
                u8::from_str_radix(digits, 16).ok()?
            }
            _ => return None,
        };
        bytes.push(simple);
        rest = escape.as_str();
    }
    bytes.extend(rest.as_bytes());
    String::from_utf8(bytes).ok()
}

/// Decodes the operand of `UNICODE`: Latin-1 with the escapes `\uXXXX` and `\UXXXXXXXX`.
pub(super) fn raw_unicode(line: &[u8]) -> Option<String> {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let digits = match (byte, after.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            (_, Some(_) | None) => {
                text.push(char::from(byte));
                continue;
            }
        };
        let number = std::str::from_utf8(after.get(1..=digits)?).ok()?;
        text.push(char::from_u32(u32::from_str_radix(number, 16).ok()?)?);
        rest = &after[digits + 1..];
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_of_python() {
        assert_eq!(string_literal(r"'a\'b\n\x41\\'").unwrap(), "a'b\nA\\");
        assert_eq!(string_literal(r#""it's""#).unwrap(), "it's");
        assert_eq!(string_literal(r"'\xc3\xa9'").unwrap(), "é");
        for damaged in ["", "'", "a", "'a", r"'\x4'", r"'\q'", r"'\", r"'\xff'"] {
            assert_eq!(string_literal(damaged), None, "{damaged}");
        }
        assert_eq!(raw_unicode(br"\u00e9\U0001F600 \n").unwrap(), "é😀 \\n");
        for damaged in [&br"\u00"[..], br"\ud800", br"\uzzzz"] {
            assert_eq!(raw_unicode(damaged), None);
        }
    }
}
