//! The workloads of `cargo xtask bench gpu` in Kiln.
//!
//! `bench-gpu` answers the requests of [`bench_protocol`] on standard input, on the GPU that `CUDA_VISIBLE_DEVICES` shows
//! first. Kernels are kept in `KILN_CACHE_DIR`.

#![forbid(unsafe_code)]

mod workloads;

use bench_protocol::{Peer, Prepared, Result, serve};
use std::process::ExitCode;

struct Kiln;

impl Peer for Kiln {
    fn describe(&self) -> (&'static str, String) {
        ("kiln", env!("CARGO_PKG_VERSION").to_owned())
    }

    fn prepare(&self, workload: &str, _file: &str) -> Result<Prepared> {
        // What is missing is the answer, not a panic at the first tensor.
        let device = kiln::CudaDevice::open(0)?;
        workloads::prepare(workload, &device)
    }
}

fn main() -> ExitCode {
    if std::env::args().len() > 1 {
        eprintln!("usage: bench-gpu, with requests on standard input");
        return ExitCode::FAILURE;
    }
    serve(&Kiln, 1)
}
