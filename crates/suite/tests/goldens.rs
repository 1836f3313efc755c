//! PyTorch goldens on the CPU engine and on the reference.
//!
//! Skipped cases are printed with the reason: run with `--nocapture` to see the list.

use kiln_backends::Device;
use kiln_reference::Reference;
use std::sync::Arc;

fn devices() -> [(&'static str, Device); 3] {
    let reference = Device::from_engine(Arc::new(Reference::new()), "reference");
    [("flex", Device::flex()), ("cpu", Device::cpu()), ("reference", reference)]
}

kiln_suite::golden_families!(devices);
