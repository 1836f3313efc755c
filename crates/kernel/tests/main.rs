//! The tests of the crate, in one program.

mod block;
mod filetests;
mod harness;
mod programs;
mod random;
mod text;
mod verify;
mod wgsl;
