//! The tests of the crate, in one program.

mod deterministic;
mod filetests;
mod injected;
mod kernels;
mod raw;
mod router;
