//! The workloads of `cargo xtask bench gpu` in Kiln.
//!
//! `bench-gpu` answers the requests of [`bench_protocol`] on standard input, on the first GPU of
//! `CUDA_VISIBLE_DEVICES`. Kernels are kept in `KILN_CACHE_DIR`. `bench-gpu --trace WORKLOAD` lists the steps that a
//! device would execute, and needs none; on a device, `KILN_PROFILE=on` prints the same with times after each repeat.

#![forbid(unsafe_code)]

mod device;
mod trace;
mod workloads;

use bench_protocol::{Peer, Prepared, Result, serve};
use device::GpuDevice;
use std::process::ExitCode;

const USAGE: &str = "usage: bench-gpu, with requests on standard input
       bench-gpu --trace WORKLOAD, which needs no GPU: what a device would be given
       bench-gpu --compile WORKLOAD, the same with NVRTC: how long its kernels take to compile";

struct Kiln;

impl Peer for Kiln {
    fn describe(&self) -> (&'static str, String) {
        ("kiln", env!("CARGO_PKG_VERSION").to_owned())
    }

    fn prepare(&self, workload: &str, _file: &str) -> Result<Prepared> {
        // A missing device is an error answer, not a panic at the first tensor.
        kiln::CudaDevice::open(0)?;
        workloads::prepare(workload, &GpuDevice::Present)
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => serve(&Kiln, 1),
        ["--trace", workload] => trace::trace(workload, None),
        ["--compile", workload] => trace::trace(workload, Some("sm_90a")),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::FAILURE
        }
    }
}
