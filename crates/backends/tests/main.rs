//! The tests of the crate, in one program.

mod few;
mod list;
mod looped;
mod lstm;
mod outside;
#[cfg(feature = "router")]
mod router;
mod transfer;
