//! Settings from the environment: the variables `KILN_…`.

use std::env;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

static DETERMINISTIC: LazyLock<AtomicBool> =
    LazyLock::new(|| AtomicBool::new(switch("KILN_DETERMINISTIC", false)));

/// Returns whether GPUs that are opened from now on compute [deterministically](set_deterministic).
///
/// # Panics
/// When `KILN_DETERMINISTIC` in the environment is neither `on` nor `off`.
pub fn deterministic() -> bool {
    DETERMINISTIC.load(Ordering::Relaxed)
}

/// Sets whether GPUs that are opened from now on compute deterministically: two runs of a program with one seed then
/// have equal bits, on the same kind of device with the same versions of libraries. It costs speed. A device that is
/// open keeps its setting, so set it before the first tensor. Default: no, unless `KILN_DETERMINISTIC=on` is in the
/// environment. A CPU is always deterministic.
///
/// ```
/// kiln_ir::set_deterministic(true);
/// assert!(kiln_ir::deterministic());
/// # kiln_ir::set_deterministic(false);
/// ```
///
/// # Panics
/// As [`deterministic`].
pub fn set_deterministic(on: bool) {
    DETERMINISTIC.store(on, Ordering::Relaxed);
}

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

/// Returns whether an environment variable is `on` (or `1`, `true`) rather than `off` (or `0`, `false`); the default if
/// it is unset or empty.
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
