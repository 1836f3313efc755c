//! The command-line parser, driven by the arguments that a command declares.

/// The arguments that a command accepts.
pub(crate) struct Accepts {
    /// Options without a value, such as `--json`.
    pub(crate) flags: &'static [&'static str],
    /// Options with a value, such as `--only NAME` or `--only=NAME`; each may be repeated.
    pub(crate) options: &'static [&'static str],
    /// Whether free words are taken.
    pub(crate) words: bool,
}

/// The words of one command line.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Args {
    flags: Vec<String>,
    options: Vec<(String, String)>,
    /// Words that belong to no option, in order.
    pub(crate) words: Vec<String>,
}

impl Args {
    /// Splits `words`; anything not declared in `accepts` is an error.
    pub(crate) fn parse(words: &[String], accepts: &Accepts) -> Result<Self, String> {
        let mut args = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let (name, attached) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                Some(_) | None => (word.as_str(), None),
            };
            if accepts.flags.contains(&name) && attached.is_none() {
                args.flags.push(name.to_owned());
            } else if accepts.options.contains(&name) {
                let value = attached.or_else(|| words.next().cloned());
                let value = value.ok_or_else(|| format!("{name} needs a value"))?;
                args.options.push((name.to_owned(), value));
            } else if name.starts_with('-') || !accepts.words {
                return Err(format!("unexpected `{word}`\n  hint: `cargo xtask help` lists the options"));
            } else {
                args.words.push(word.clone());
            }
        }
        Ok(args)
    }

    /// Whether `flag` was given.
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|given| given == flag)
    }

    /// Every value given to `option`, in order.
    pub(crate) fn all(&self, option: &str) -> Vec<&str> {
        self.options.iter().filter(|(name, _)| name == option).map(|(_, value)| value.as_str()).collect()
    }

    /// The last value given to `option`.
    pub(crate) fn last(&self, option: &str) -> Option<&str> {
        self.all(option).pop()
    }
}

/// The words of a command line.
#[cfg(test)]
pub(crate) fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCEPTS: Accepts = Accepts { flags: &["--list"], options: &["--only"], words: true };

    fn parse(words: &[&str]) -> Result<Args, String> {
        Args::parse(&owned(words), &ACCEPTS)
    }

    #[test]
    fn options_take_the_next_argument_or_an_attached_value() {
        let args = parse(&["--only", "docs", "x=y", "--only=tests", "--list"]).unwrap();
        assert_eq!(args.all("--only"), ["docs", "tests"]);
        assert_eq!(args.last("--only"), Some("tests"));
        assert_eq!(args.words, ["x=y"]);
        assert!(args.has("--list"));
    }

    #[test]
    fn undeclared_options_are_errors() {
        assert!(parse(&["--lost"]).unwrap_err().contains("--lost"));
        assert!(parse(&["--list=yes"]).unwrap_err().contains("--list=yes"));
        assert!(parse(&["--only"]).unwrap_err().contains("needs a value"));
        let none = Accepts { flags: &[], options: &[], words: false };
        assert!(Args::parse(&["word".to_owned()], &none).is_err());
    }
}
