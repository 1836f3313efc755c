//! Kiln on GPUs.

pub(crate) mod device;
mod kernels;
mod trace;

use crate::workloads;
use bench_protocol::workloads::{ON_GPU, Row};
use bench_protocol::{Peer, Prepared, Result, serve, serve_absent};
use device::GpuDevice;
use std::process::ExitCode;

struct Kiln {
    device: GpuDevice,
    version: String,
}

impl Peer for Kiln {
    fn describe(&self) -> (&'static str, String) {
        ("kiln", self.version.clone())
    }

    fn benches(&self) -> &'static [&'static str] {
        ON_GPU
    }

    fn prepare(&self, row: &'static Row, _file: &str) -> Result<Prepared> {
        workloads::gpu::prepare(row, &self.device)
    }
}

/// Does what the words ask of a GPU; `None` if they do not.
pub(crate) fn run(words: &[&str]) -> Option<ExitCode> {
    Some(match *words {
        ["--device", "cuda"] => serve_on(GpuDevice::Present),
        ["--device", "vulkan"] => serve_on(GpuDevice::Vulkan),
        ["--kernels"] => kernels::compare(None, ""),
        ["--kernels", rounds] => kernels::compare(Some(rounds), ""),
        ["--kernels", rounds, only] => kernels::compare(Some(rounds), only),
        ["--trace", workload] => trace::trace(workload, None),
        ["--compile", workload] => trace::trace(workload, Some("sm_90a")),
        _ => return None,
    })
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
