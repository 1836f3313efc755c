//! A dry GPU engine: NVRTC compiles its kernels, which never run, so that no GPU is needed.

use crate::check::{Scope, Subjects};
use kiln_gpu::{DeviceInfo, DryDriver, Gpu};
use kiln_ir::{MemoryConfig, Result};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The target architecture: Hopper, with its architecture-specific instructions.
const ARCHITECTURE: &str = "sm_90a";

static OPENED: OnceLock<Arc<Gpu<DryDriver>>> = OnceLock::new();
static CALLS: AtomicU64 = AtomicU64::new(0);
static NANOSECONDS: AtomicU64 = AtomicU64::new(0);

/// Compilation statistics of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// Number of kernel sources.
    pub sources: u64,
    /// Number of compiler calls.
    pub calls: u64,
    /// Total time of all calls.
    pub time: Duration,
}

impl Compiled {
    /// Returns the statistics so far.
    pub fn totals() -> Compiled {
        let sources = OPENED.get().map_or(0, |engine| engine.compiled_kernels());
        let time = Duration::from_nanos(NANOSECONDS.load(Ordering::Relaxed));
        Compiled { sources, calls: CALLS.load(Ordering::Relaxed), time }
    }
}

impl fmt::Display for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compiled { sources, calls, time } = self;
        write!(f, "{sources} sources compiled by {calls} calls of {:.1} s together", time.as_secs_f64())
    }
}

impl Subjects {
    /// Returns the dry GPU of this process, for checks that kernels compile.
    ///
    /// # Errors
    /// When the compiler is missing.
    pub fn dry() -> Result<Subjects> {
        kiln_cuda::compile("", ARCHITECTURE)?;
        let engine = OPENED.get_or_init(|| Arc::new(open())).clone();
        Ok(Subjects { scope: Scope::Kernels, ..Subjects::gpu(engine) })
    }
}

fn open() -> Gpu<DryDriver> {
    let info = DeviceInfo::absent(format!("cuda {ARCHITECTURE} dry"));
    Gpu::new(DryDriver::new(info, compile).with_libraries(), MemoryConfig::default())
}

/// # Panics
/// When a source does not compile, so that it is a failure of the checked trial.
fn compile(source: &str) -> Result<Vec<u8>> {
    let started = Instant::now();
    let compiled = kiln_cuda::compile(source, ARCHITECTURE);
    NANOSECONDS.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
    CALLS.fetch_add(1, Ordering::Relaxed);
    Ok(compiled.unwrap_or_else(|error| panic!("{error}")))
}
