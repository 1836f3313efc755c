//! The tests of the crate, in one program.

mod attention;
mod blocks;
mod containers;
mod derive_config;
mod derive_module;
mod functional;
mod golden;
mod goldens;
mod goldens_layers;
mod layer_arguments;
mod layer_gradients;
mod layers;
mod lazy;
mod losses;
mod module;
mod random_layers;
mod recurrent;
mod recurrent_options;
mod reparametrize;
mod summary;
mod sync_batch_norm;
mod tied;

use std::sync::Arc;

use kiln_backends::Device;
use kiln_cpu::Cpu;

/// A device whose random numbers no other test draws.
fn own_device() -> Device {
    Device::from_engine(Arc::new(Cpu::with_threads(1)), "own")
}
