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
}
