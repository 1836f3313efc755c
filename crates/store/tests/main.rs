//! The tests of the crate, in one program.

mod checkpoints;
mod contents;
mod fixtures;
mod format;
mod gguf;
mod hub;
mod mapped;
mod modules;
mod numpy;
mod pytorch;
mod sharded;
mod state_dicts;
mod weights;
