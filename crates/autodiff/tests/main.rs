//! The tests of the crate, in one program.

mod forward;
mod layer;
mod profile;
mod pull_back;
mod rules;
