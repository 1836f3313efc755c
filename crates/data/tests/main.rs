//! The tests of the crate, in one program.

mod datasets;
mod fuzz;
mod loader;
mod mnist;
