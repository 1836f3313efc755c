//! The tests of the crate, in one program.

mod host;
mod libraries;
mod machine;
mod pending;
mod switch;
mod wgsl;
