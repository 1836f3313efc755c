//! Kernels that programs will need, compiled together before they run.
//!
//! New programs need new kernels, and starting a compiler takes longer than compiling a small kernel. A dry device runs
//! the programs first and collects the sources.

use crate::check::{Precompile, Scope, Subjects, check};
use crate::trial::Trial;
use kiln_gpu::{Driver, DryDriver, Gpu, MemoryConfig};
use std::sync::{Arc, Mutex, PoisonError};

/// Compiles the kernels of trials on a device ahead of the run.
pub(crate) fn precompile<D: Driver>(device: Arc<Gpu<D>>) -> Precompile {
    let found = Arc::new(Mutex::new(Vec::<Arc<str>>::new()));
    let noted = found.clone();
    let note = move |source: &str| {
        noted.lock().unwrap_or_else(PoisonError::into_inner).push(source.into());
        Ok(Vec::new())
    };
    let driver = DryDriver::new(device.driver().info().clone(), note).with_libraries();
    let engine = Gpu::new(driver, MemoryConfig::default());
    let scout = Subjects { scope: Scope::Kernels, ..Subjects::device(Arc::new(engine)) };
    Arc::new(move |trials: &[Trial]| {
        for trial in trials {
            // A panic is found again where the program runs.
            check(trial, &scout);
        }
        let sources = core::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
        device.prepare(&sources);
    })
}
