//! The steps that a device would execute in one warm repeat of a workload.

use super::device::{GpuDevice, dry};
use crate::workloads::gpu::prepare;
use bench_protocol::Result;
use bench_protocol::workloads::{ON_GPU, find};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Repeats before the one that is looked at.
const WARM: usize = 3;

/// Repeats of which the host's time is taken.
const TIMED: usize = 5;

/// How long each source took to compile, and how long it is.
static COMPILED: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// Lists the steps of a workload; with an architecture its kernels are compiled too.
pub(crate) fn trace(workload: &str, architecture: Option<&'static str>) -> ExitCode {
    match steps(workload, architecture.is_some()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            eprintln!("{}", refusal.reason());
            ExitCode::FAILURE
        }
    }
}

fn compile(source: &str) -> kiln::Result<Vec<u8>> {
    let start = Instant::now();
    let binary = kiln_cuda::compile(source, "sm_90a")?;
    let mut compiled = COMPILED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    compiled.push((start.elapsed(), source.to_owned()));
    Ok(binary)
}

fn steps(workload: &str, compiles: bool) -> Result<()> {
    let engine = dry(if compiles { compile } else { |_| Ok(Vec::new()) });
    let start = Instant::now();
    let mut prepared = prepare(find(ON_GPU, workload)?, &GpuDevice::Dry)?;
    let made = start.elapsed();
    let start = Instant::now();
    prepared.repeat()?;
    println!("made in {:.1} ms, first repeat in {:.1} ms", ms(made), ms(start.elapsed()));
    if compiles {
        compilations();
        return Ok(());
    }
    for _ in 1..WARM {
        prepared.repeat()?;
    }
    let allocations = || engine_allocations(&engine);
    let before = (allocations(), engine.graphs());
    let mut times = Vec::new();
    for _ in 0..TIMED {
        let start = Instant::now();
        prepared.repeat()?;
        times.push(ms(start.elapsed()));
    }
    times.sort_by(f64::total_cmp);
    println!("warm repeats: {:.3} ms of the host (least {:.3})", times[TIMED / 2], times[0]);
    println!("allocations of memory in {TIMED} warm repeats: {}", allocations() - before.0);
    println!("graphs before {:?}\n        after {:?}", before.1, engine.graphs());
    engine.trace(true);
    prepared.repeat()?;
    println!("{}", kiln_gpu::table(&engine.traced()));
    Ok(())
}

fn engine_allocations(engine: &kiln_gpu::Gpu<kiln_gpu::DryDriver>) -> u64 {
    use kiln::ir::Memory;
    engine.usage().system_allocations
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Prints how long each kernel took to compile, the slowest first.
fn compilations() {
    let mut compiled = COMPILED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    compiled.sort();
    let all: Duration = compiled.iter().map(|(time, _)| *time).sum();
    println!("{} kernels in {:.1} ms of the compiler", compiled.len(), ms(all));
    for (time, source) in compiled.iter().rev() {
        println!("{:9.1} ms  {:6} bytes", ms(*time), source.len());
    }
}
