//! The workloads of `cargo xtask bench models` in Kiln.
//!
//! `bench-models --threads N` answers the requests of [`bench_protocol`] on standard input. `KILN_NUM_THREADS` sets the
//! threads themselves; the option only sets the number in answers.

#![forbid(unsafe_code)]

mod workloads;

use bench_protocol::{Peer, Prepared, Result, serve};
use std::process::ExitCode;

struct Kiln;

impl Peer for Kiln {
    fn describe(&self) -> (&'static str, String) {
        ("kiln", env!("CARGO_PKG_VERSION").to_owned())
    }

    fn prepare(&self, workload: &str, file: &str) -> Result<Prepared> {
        workloads::prepare(workload, file)
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let threads = match words.as_slice() {
        [option, threads] if option == "--threads" => threads.parse().ok(),
        _ => None,
    };
    let Some(threads) = threads else {
        eprintln!("usage: KILN_NUM_THREADS=N bench-models --threads N");
        return ExitCode::FAILURE;
    };
    serve(&Kiln, threads)
}
