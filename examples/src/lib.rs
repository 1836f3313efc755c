//! Programs that show Kiln at work. Each is a file or folder beside `src`:
//!
//! * `guide`: the workflow of the book's first chapter: model, data, training, inference;
//! * `custom-training-loop`: the same model, trained without a `Learner`;
//! * `custom-renderer`: a renderer, a logger and a metric of one's own;
//! * `mnist`: trains a convolutional network on handwritten digits, saves it, loads it back and shows its predictions;
//! * `wgan`: a generative adversarial network that draws handwritten digits: two models and two optimizers in one task;
//! * `import-model-weights`: the weights of a PyTorch model, loaded under other names;
//! * `chat`: a chat with a language model;
//! * `embeddings-search`: semantic search by sentence embeddings;
//! * `regression`: a training loop written by hand, without a trainer;
//! * `remote-inference`: a model whose layers run on another machine;
//! * `remote-speed`: training steps on a server beside local ones, measured;
//! * `custom-wgpu-kernel`, `custom-cuda-kernel`: a fused kernel of one's own for GPUs, with gradients;
//! * `custom_op`: an operation with a gradient of its own, used in a model.
//!
//! Run one with `cargo run --release --example mnist`.
#![forbid(unsafe_code)]

pub mod backend;
pub mod linear_relu;

use std::error::Error;
use std::io;
use std::panic;
use std::process::{self, ExitCode};

/// Runs a program and prints its error. A closed output pipe is no error: see [`exit_on_closed_pipe`].
pub fn run(program: impl FnOnce() -> Result<(), Box<dyn Error>>) -> ExitCode {
    exit_on_closed_pipe();
    match program() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

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
