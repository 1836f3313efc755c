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
mod methods;
mod modules;
mod poison;
mod router;
mod value;
mod vmap;
