//! Programs that show Kiln at work. Each is a file or folder beside `src`:
//!
//! * `mnist`: trains a convolutional network on handwritten digits, saves it, loads it back and shows what it sees;
//! * `regression`: a training loop written by hand, without a trainer;
//! * `custom_op`: an operation with a gradient of its own, used in a model.
//!
//! Run one with `cargo run --release --example mnist`.
#![forbid(unsafe_code)]
