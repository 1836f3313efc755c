//! The engine of NVIDIA GPUs.

use super::Subject;
use kiln_fusion::{Fusion, Mode};
use kiln_ir::{Engine, expanding};
use std::sync::Arc;

/// The first NVIDIA GPU, behind fusion.
pub const CUDA: Subject = Subject { name: "fusion over cuda", open, ignored: &[] };

fn open() -> Arc<dyn Engine> {
    let engine = kiln_cuda::shared(0).unwrap_or_else(|error| panic!("{error}"));
    Arc::new(Fusion::with_mode(expanding(engine), Mode::On))
}
