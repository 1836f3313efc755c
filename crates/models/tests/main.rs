//! The tests of the crate, in one program.

mod fuzz;
mod models;
