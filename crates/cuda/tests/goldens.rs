//! PyTorch goldens on the GPU.
//!
//! `cargo test -p kiln-cuda --test cuda goldens -- --include-ignored` runs it on a machine that has one.

use kiln::Device;

fn devices() -> [(&'static str, Device); 1] {
    [("cuda", Device::open("cuda", 0).unwrap_or_else(|error| panic!("{error}")))]
}

kiln_suite::golden_families!(
    #[ignore = "needs an NVIDIA GPU"]
    devices
);
