//! The workloads of `cargo xtask bench` in Kiln.
//!
//! `bench-kiln --threads N [--backend NAME]` answers the requests of [`bench_protocol`] on standard input, on the CPU.
//! `KILN_NUM_THREADS` sets the threads themselves; the option only sets the number in answers. With the feature `models`
//! it has the workloads of `bench models`.
//!
//! With the feature `gpu`, `bench-kiln --device cuda|vulkan` does so on the first GPU, of `CUDA_VISIBLE_DEVICES` or of
//! Vulkan. Kernels are kept in `KILN_CACHE_DIR`. `--kernels` compares hand-written kernels with block kernels.
//! `--trace WORKLOAD` lists the steps that a device would execute, and needs none; on a device, `KILN_PROFILE=on` prints
//! the same with times after each repeat.

#![forbid(unsafe_code)]

mod backend;
#[cfg(feature = "gpu")]
mod gpu;
mod limit;
mod workloads;

use bench_protocol::workloads::Row;
use bench_protocol::{Peer, Prepared, Result, serve};
use std::process::ExitCode;

const USAGE: &str =
    "usage: KILN_NUM_THREADS=N bench-kiln --threads N [--backend NAME], with requests on standard input
and with the feature gpu:
       bench-kiln --device cuda|vulkan, with requests on standard input
       bench-kiln --kernels [ROUNDS [WORKLOAD,...]], which compares hand-written kernels with block kernels
       bench-kiln --trace WORKLOAD, which needs no GPU: what a device would be given
       bench-kiln --compile WORKLOAD, the same with NVRTC: how long its kernels take to compile";

struct Kiln {
    backend: &'static backend::Choice,
}

impl Peer for Kiln {
    fn describe(&self) -> (&'static str, String) {
        ("kiln", format!("{} ({})", env!("CARGO_PKG_VERSION"), self.backend.name))
    }

    fn prepare(&self, row: &'static Row, file: &str) -> Result<Prepared> {
        #[cfg(feature = "models")]
        if let Some(prepared) = workloads::models::prepare(row, file) {
            return prepared;
        }
        (self.backend.prepare)(row, file)
    }

    fn limit(&self, threads: usize) -> Result<f64> {
        limit::multiply_adds(threads)
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    #[cfg(feature = "gpu")]
    if let Some(code) = gpu::run(&words) {
        return code;
    }
    match options(&words) {
        Ok((threads, backend)) => serve(&Kiln { backend }, threads),
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            ExitCode::FAILURE
        }
    }
}

fn options(words: &[&str]) -> std::result::Result<(usize, &'static backend::Choice), String> {
    let (threads, name) = match *words {
        ["--threads", threads] => (threads, backend::DEFAULT),
        ["--threads", threads, "--backend", name] => (threads, name),
        _ => return Err("the options are missing".to_owned()),
    };
    let threads = threads.parse().map_err(|_| format!("--threads: `{threads}` is not a number"))?;
    let backend = backend::CHOICES.iter().find(|choice| choice.name == name);
    let names = || backend::CHOICES.iter().map(|choice| choice.name).collect::<Vec<_>>().join(", ");
    Ok((threads, backend.ok_or_else(|| format!("--backend: `{name}` is none of {}", names()))?))
}
