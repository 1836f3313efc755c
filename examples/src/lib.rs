//! Programs that show Kiln at work. Each is a file or folder beside `src`:
//!
//! * `mnist`: trains a convolutional network on handwritten digits, saves it, loads it back and shows its predictions;
//! * `regression`: a training loop written by hand, without a trainer;
//! * `remote-inference`: a model whose layers run on another machine;
//! * `remote-speed`: training steps on a server beside local ones, measured;
//! * `custom_op`: an operation with a gradient of its own, used in a model.
//!
//! Run one with `cargo run --release --example mnist`.
#![forbid(unsafe_code)]

use std::io;
use std::panic;
use std::process;

/// Ends the program without a message when its output pipe is closed, as in `mnist | head -1`. Rust's `print!` panics
/// then, because it has no other way to report an error.
pub fn exit_on_closed_pipe() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let message = info.payload().downcast_ref::<String>();
        if message.is_some_and(|text| is_closed_pipe(text)) {
            process::exit(0);
        }
        report(info);
    }));
}

/// Whether this is the message of a `print!` whose reader is gone.
fn is_closed_pipe(message: &str) -> bool {
    let error = message.strip_prefix("failed printing to stdout: ");
    error.or_else(|| message.strip_prefix("failed printing to stderr: ")).is_some_and(|error| {
        let closed = io::Error::from_raw_os_error(if cfg!(windows) { 232 } else { 32 });
        error == closed.to_string()
    })
}
