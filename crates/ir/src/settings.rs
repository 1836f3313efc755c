//! Settings from the environment: the variables `KILN_…`.

use std::env;

/// Parses the setting in an environment variable; `None` if it is unset or empty. `accepted` lists the valid values in
/// the error message, as in "set it to `off`, `on` or `check`".
///
/// ```
/// let threads: Option<usize> = kiln_ir::setting("KILN_NO_SUCH_VARIABLE", "a number", |text| text.parse().ok());
/// assert_eq!(threads, None);
/// ```
///
/// # Panics
/// When `parse` rejects the value, so that a misspelling does not go unnoticed.
pub fn setting<T>(name: &str, accepted: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let value = env::var_os(name).filter(|value| !value.is_empty())?;
    let parsed = value.to_str().map(str::trim).and_then(parse);
    Some(parsed.unwrap_or_else(|| {
        panic!(
            "[settings] {name} is `{}`\n  hint: set it to {accepted}, or unset it",
            value.to_string_lossy()
        )
    }))
}

/// Whether an environment variable is `on` (or `1`, `true`) rather than `off` (or `0`, `false`); the default if it is
/// unset or empty.
///
/// ```
/// assert!(kiln_ir::switch("KILN_NO_SUCH_VARIABLE", true));
/// ```
///
/// # Panics
/// When the variable has any other value.
pub fn switch(name: &str, default: bool) -> bool {
    let parse = |text: &str| match text {
        "on" | "1" | "true" => Some(true),
        "off" | "0" | "false" => Some(false),
        _ => None,
    };
    setting(name, "`on` or `off`", parse).unwrap_or(default)
}
