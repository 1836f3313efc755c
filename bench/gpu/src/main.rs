//! The workloads of `cargo xtask bench gpu`, `bench vulkan` and `bench kernels` in Kiln.
//!
//! `bench-gpu` answers the requests of [`bench_protocol`] on standard input, on the first GPU of
//! `CUDA_VISIBLE_DEVICES`; with `--device vulkan` on the first GPU of Vulkan. Kernels are kept in `KILN_CACHE_DIR`.
//! `bench-gpu --kernels` compares hand-written kernels with block kernels. `bench-gpu --trace WORKLOAD` lists the steps
//! that a device would execute, and needs none; on a device, `KILN_PROFILE=on` prints the same with times after each
//! repeat.

#![forbid(unsafe_code)]

mod device;
mod kernels;
mod trace;
mod workloads;

use bench_protocol::{Peer, Prepared, Result, serve, serve_absent};
use device::GpuDevice;
use std::process::ExitCode;

const USAGE: &str = "usage: bench-gpu [--device cuda|vulkan], with requests on standard input
       bench-gpu --kernels [ROUNDS [WORKLOAD,...]], which compares hand-written kernels with block kernels
       bench-gpu --trace WORKLOAD, which needs no GPU: what a device would be given
       bench-gpu --compile WORKLOAD, the same with NVRTC: how long its kernels take to compile";

struct Kiln {
    device: GpuDevice,
    version: String,
}

impl Peer for Kiln {
    fn describe(&self) -> (&'static str, String) {
        ("kiln", self.version.clone())
    }

    fn prepare(&self, workload: &str, _file: &str) -> Result<Prepared> {
        // A missing device is an error answer, not a panic at the first tensor.
        self.device.engine()?;
        workloads::prepare(workload, &self.device)
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => {
            let version = env!("CARGO_PKG_VERSION").to_owned();
            serve(&Kiln { device: GpuDevice::Present, version }, 1)
        }
        ["--device", "cuda"] => serve_on(GpuDevice::Present),
        ["--device", "vulkan"] => serve_on(GpuDevice::Vulkan),
        ["--kernels"] => kernels::compare(None, ""),
        ["--kernels", rounds] => kernels::compare(Some(rounds), ""),
        ["--kernels", rounds, only] => kernels::compare(Some(rounds), only),
        ["--trace", workload] => trace::trace(workload, None),
        ["--compile", workload] => trace::trace(workload, Some("sm_90a")),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::FAILURE
        }
    }
}

/// Answers requests on a device that must be there; the version names its model.
fn serve_on(device: GpuDevice) -> ExitCode {
    let model = match device {
        GpuDevice::Vulkan => device::vulkan().map(|engine| model_of(&*engine)),
        GpuDevice::Present | GpuDevice::Native | GpuDevice::Blocks | GpuDevice::Dry => {
            kiln_cuda::shared(0).map(|engine| model_of(&*engine))
        }
    };
    match model {
        Ok(model) => {
            let version = format!("{} ({model})", env!("CARGO_PKG_VERSION"));
            serve(&Kiln { device, version }, 1)
        }
        Err(error) => serve_absent(&error.to_string()),
    }
}

fn model_of<D: kiln_gpu::Driver>(engine: &kiln_gpu::Gpu<D>) -> String {
    engine.driver().info().model.clone()
}
