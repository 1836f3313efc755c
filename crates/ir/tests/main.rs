//! The tests of the crate, in one program.

mod block_format;
mod block_ops;
mod custom;
mod expansion;
mod filetests;
mod float8;
mod infer;
mod loops;
#[cfg(feature = "ndarray")]
mod ndarray;
mod numbers;
mod numeric;
mod serialised;
mod supports;
mod text;
