//! Text in HTML.

use serde::Serialize;

/// A text as HTML, for elements and for attributes in quotes. Control characters, which HTML does not allow, are replaced.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(letter),
            _ if letter.is_control() => escaped.push('\u{fffd}'),
            _ => escaped.push(letter),
        }
    }
    escaped
}

/// JSON for an element `script`. Characters that could end the element or start a comment are escapes of JSON.
pub(super) fn json(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("series are strings and finite numbers");
    let escapes = [
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('&', "\\u0026"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ];
    escapes.iter().fold(text, |text, (letter, escape)| text.replace(*letter, escape))
}

/// Bytes in base 64, as in URLs of data (RFC 4648).
pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let index = bits >> (18 - 6 * digit) & 63;
            text.push(if digit <= group.len() { char::from(DIGITS[index as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escape("<a href='x\"'>&\u{0}\n"), "&lt;a href=&#39;x&quot;&#39;&gt;&amp;\u{fffd}\n");
        let text = json(&["</script><!--", "\u{2028}&"]);
        assert_eq!(text, "[\"\\u003c/script\\u003e\\u003c!--\",\"\\u2028\\u0026\"]");
        assert_eq!(serde_json::from_str::<[String; 2]>(&text).unwrap()[0], "</script><!--");
    }

    /// The test vectors of RFC 4648.
    #[test]
    fn bytes_are_base_64() {
        let encoded = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|text| base64(text.as_bytes()));
        assert_eq!(encoded, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }
}
