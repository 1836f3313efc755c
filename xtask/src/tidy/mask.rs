//! Blanks out comments and literals of Rust source, so that searches see code only.

/// The source with the insides of comments, strings and character literals replaced by spaces. Line breaks stay
/// and every byte keeps its offset.
pub(super) fn mask(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut masked = bytes.to_vec();
    let mut position = 0;
    while position < bytes.len() {
        let end = literal_end(bytes, position);
        match end {
            Some(end) => {
                for byte in &mut masked[position..end] {
                    if *byte != b'\n' {
                        *byte = b' ';
                    }
                }
                position = end;
            }
            None => position += 1,
        }
    }
    String::from_utf8_lossy(&masked).into_owned()
}

/// The end of the comment or literal at `start`; `None` if none starts there.
fn literal_end(bytes: &[u8], start: usize) -> Option<usize> {
    match bytes[start] {
        b'/' if bytes.get(start + 1) == Some(&b'/') => Some(find(bytes, start, b"\n").unwrap_or(bytes.len())),
        b'/' if bytes.get(start + 1) == Some(&b'*') => Some(block_comment_end(bytes, start)),
        b'"' => Some(string_end(bytes, start)),
        b'r' if !follows_word(bytes, start) => raw_string_end(bytes, start),
        b'\'' => char_end(bytes, start),
        _ => None,
    }
}

/// Whether the `r` at `start` belongs to a longer word. `br"…"` and `cr"…"` begin a raw string too.
fn follows_word(bytes: &[u8], start: usize) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let prefix = start.checked_sub(1).map(|previous| bytes[previous]);
    match prefix {
        Some(b'b' | b'c') => start >= 2 && is_word(bytes[start - 2]),
        Some(byte) => is_word(byte),
        None => false,
    }
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0;
    let mut position = start;
    while position < bytes.len() {
        if bytes[position..].starts_with(b"/*") {
            depth += 1;
            position += 2;
        } else if bytes[position..].starts_with(b"*/") {
            depth -= 1;
            position += 2;
            if depth == 0 {
                return position;
            }
        } else {
            position += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut position = start + 1;
    while position < bytes.len() {
        match bytes[position] {
            b'\\' => position += 2,
            b'"' => return position + 1,
            _ => position += 1,
        }
    }
    bytes.len()
}

fn raw_string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let hashes = bytes[start + 1..].iter().take_while(|&&byte| byte == b'#').count();
    let quote = start + 1 + hashes;
    if bytes.get(quote) != Some(&b'"') {
        return None;
    }
    let closing = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    Some(find(bytes, quote + 1, &closing).map_or(bytes.len(), |found| found + closing.len()))
}

/// A quote starts a character literal if it closes after one character or an escape; otherwise it is a lifetime.
fn char_end(bytes: &[u8], start: usize) -> Option<usize> {
    let first = *bytes.get(start + 1)?;
    if first == b'\\' {
        return Some(find(bytes, start + 3, b"'").map_or(bytes.len(), |found| found + 1));
    }
    let width = match first {
        0x00..=0x7f => 1,
        0x80..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xff => 4,
    };
    (bytes.get(start + 1 + width) == Some(&b'\'')).then_some(start + 2 + width)
}

fn find(bytes: &[u8], start: usize, wanted: &[u8]) -> Option<usize> {
    let tail = bytes.get(start..)?;
    tail.windows(wanted.len()).position(|window| window == wanted).map(|found| start + found)
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn comments_and_literals_are_blank_and_offsets_stay() {
        let source =
            "let a = \"todo!(\\\" x\"; // todo!(\nlet b = r#\"un\"safe\"#; /* a /* b */ c */ real();\n";
        let masked = mask(source);
        assert_eq!(masked.len(), source.len());
        assert!(!masked.contains("todo") && !masked.contains("safe") && !masked.contains(" c "));
        assert_eq!(masked.find("real"), source.find("real"));
        assert_eq!(masked.matches('\n').count(), 2);
    }

    #[test]
    fn lifetimes_are_code_and_characters_are_not() {
        let masked = mask("fn f<'a>(x: &'a str) { g('\"'); g('\\''); g('é'); h(x) }");
        assert!(masked.contains("fn f<'a>(x: &'a str)") && masked.contains("h(x)"));
        assert!(!masked.contains('"') && !masked.contains('é'));
    }

    #[test]
    fn raw_identifiers_and_words_ending_in_r_are_code() {
        assert_eq!(mask("r#type + var"), "r#type + var");
        assert_eq!(mask("br\"x\" r\"y\""), "b         ");
    }

    #[test]
    fn unclosed_literals_end_with_the_file() {
        assert_eq!(mask("a \"b"), "a   ");
        assert_eq!(mask("a /* b"), "a     ");
        assert_eq!(mask("a r#\"b\""), "a      ");
        assert_eq!(mask("a '\\"), "a   ");
    }
}
