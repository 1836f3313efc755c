//! The tests of the crate, in one program.

mod cooperative;
mod custom;
mod device;
mod parts;
mod suite;
