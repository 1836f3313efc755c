//! Patterns of file names.

/// Whether a name is a pattern.
pub(super) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?'])
}

/// Whether a pattern matches a whole name. `*` matches any characters, `/` included; `?` matches one character.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut in_name) = (0, 0);
    // The last star, and the end of the characters that it matches so far.
    let mut star: Option<(usize, usize)> = None;
    while in_name < name.len() {
        if pattern.get(at) == Some(&'*') {
            star = Some((at, in_name));
            at += 1;
        } else if pattern.get(at).is_some_and(|&wanted| wanted == '?' || wanted == name[in_name]) {
            at += 1;
            in_name += 1;
        } else if let Some((position, end)) = star {
            star = Some((position, end + 1));
            at = position + 1;
            in_name = end + 1;
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|&rest| rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name) in [
            ("*", "a/b.txt"),
            ("*.json", "config.json"),
            ("*.json", "1_Pooling/config.json"),
            ("model-?????-of-*.safetensors", "model-00001-of-00002.safetensors"),
            ("a*b*c", "abbbcbc"),
            ("", ""),
            ("**", ""),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("*.json", "config.jsonl"), ("?", ""), ("a*b", "acbc"), ("abc", "ab"), ("", "a")]
        {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        assert!(!matches(&"*a".repeat(200), &"a".repeat(199)));
        assert!(!matches(&format!("{}b", "*a".repeat(300)), &"a".repeat(1000)));
    }
}
