//! Bounds around libraries that read untrusted files: a stack of known size, and panics as errors.

use std::any::Any;
use std::fs::File;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// The stack of [`on_own_stack`] in bytes. The system provides the pages that are used.
#[cfg(not(target_family = "wasm"))]
const STACK: usize = 64 << 20;

/// The start of the messages of panics.
pub(crate) const PANIC: &str = "the library failed";

/// Runs a function on a thread with a stack of known size. The error is the message of a panic, or that the thread could
/// not start.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn on_own_stack<T: Send>(run: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run);
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        thread.join().map_err(|panic| message_of(&*panic))
    })
}

/// Runs a function. The target has no threads.
#[cfg(target_family = "wasm")]
pub(crate) fn on_own_stack<T: Send>(run: impl FnOnce() -> T + Send) -> Result<T, String> {
    caught(run)
}

/// Runs a function; the error is the message of a panic.
pub(crate) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| message_of(&*panic))
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown");
    format!("{PANIC}: {text}")
}

/// Reads a regular file of at most `limit` bytes.
pub(crate) fn read_file(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // A pipe would block when it is opened.
    let metadata = std::fs::metadata(path)?;
    let invalid = |problem: String| Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    if !metadata.is_file() && !metadata.is_dir() {
        return invalid("it is no regular file".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return invalid(format!("it has more than the {limit} bytes allowed"));
    }
    Ok(bytes)
}
