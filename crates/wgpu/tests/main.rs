//! The tests of the crate, in one program.

mod cooperative;
mod custom;
mod device;
mod loss;
mod parts;
mod suite;
