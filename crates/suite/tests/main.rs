//! The tests of the crate, in one program.

mod accuracy;
mod autocast;
mod completeness;
mod expand;
mod forward;
mod goldens;
mod grad;
mod kernels;
mod layers;
mod memory;
mod methods;
mod modules;
mod poison;
mod router;
mod training;
mod value;
mod vmap;
