//! What the environment says.

/// Whether a variable of the environment is `on` or `off`; the default where it is neither.
///
/// ```
/// assert!(kiln_gpu::switch("KILN_NO_SUCH_VARIABLE", true));
/// ```
pub fn switch(name: &str, default: bool) -> bool {
    match std::env::var(name).as_deref() {
        Ok("on" | "1" | "true") => true,
        Ok("off" | "0" | "false") => false,
        Ok(_) | Err(_) => default,
    }
}
