//! The tests of the crate, in one program.

mod burn_programs;
mod compile_fail;
mod forms;
mod globs;
mod interchange;
