//! The tests of the crate, in one program.

mod absent;
mod attention;
mod compile;
mod goldens;
mod suite;
