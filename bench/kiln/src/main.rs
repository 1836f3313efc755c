//! The workloads of `cargo xtask bench cpu` in Kiln.
//!
//! `bench-kiln --threads N [--backend NAME]` answers the requests of [`bench_protocol`] on standard input.
//! `KILN_NUM_THREADS` sets the threads themselves; the option only sets the number in answers.

#![forbid(unsafe_code)]

mod backend;
mod limit;
mod workloads;

use bench_protocol::{Peer, Prepared, Result, serve};
use std::process::ExitCode;

const USAGE: &str = "usage: KILN_NUM_THREADS=N bench-kiln --threads N [--backend NAME]";

struct Kiln {
    backend: &'static backend::Choice,
}

impl Peer for Kiln {
    fn describe(&self) -> (&'static str, String) {
        ("kiln", format!("{} ({})", env!("CARGO_PKG_VERSION"), self.backend.name))
    }

    fn prepare(&self, workload: &str, file: &str) -> Result<Prepared> {
        (self.backend.prepare)(workload, file)
    }

    fn limit(&self, threads: usize) -> Result<f64> {
        limit::multiply_adds(threads)
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match options(&words) {
        Ok((threads, backend)) => serve(&Kiln { backend }, threads),
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            ExitCode::FAILURE
        }
    }
}

fn options(words: &[String]) -> std::result::Result<(usize, &'static backend::Choice), String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (threads, name) = match words[..] {
        ["--threads", threads] => (threads, backend::DEFAULT),
        ["--threads", threads, "--backend", name] => (threads, name),
        _ => return Err("the options are missing".to_owned()),
    };
    let threads = threads.parse().map_err(|_| format!("--threads: `{threads}` is not a number"))?;
    let backend = backend::CHOICES.iter().find(|choice| choice.name == name);
    let names = || backend::CHOICES.iter().map(|choice| choice.name).collect::<Vec<_>>().join(", ");
    Ok((threads, backend.ok_or_else(|| format!("--backend: `{name}` is none of {}", names()))?))
}
