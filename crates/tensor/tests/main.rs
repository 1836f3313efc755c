//! The tests of the crate, in one program.

mod activation;
mod blocks;
mod browser;
mod capture;
mod corners;
mod einsum;
mod first_calls;
mod float8;
mod grid;
mod index;
mod inputs;
mod layers;
mod linalg;
mod long;
mod loss;
mod messages;
mod module;
mod named;
mod narrow_integers;
mod numerics;
mod order;
mod quantize;
mod random;
mod reduce;
mod signal;
mod special;
mod tensor;
mod transform;
mod view;

use std::sync::Arc;

use kiln_backends::Device;
use kiln_cpu::Cpu;

/// A device whose random numbers no other test draws.
fn own_device() -> Device {
    Device::from_engine(Arc::new(Cpu::with_threads(1)), "own")
}
