//! Ahead-of-time batch compilation of the kernels of programs.
//!
//! New programs need new kernels, and the start of a compiler takes longer than a small kernel. A dry device first runs
//! the programs and collects the kernel sources.

use crate::check::{Precompile, Scope, Subjects, check};
use crate::trial::Trial;
use kiln_gpu::{Driver, DryDriver, Gpu};
use kiln_ir::MemoryConfig;
use std::sync::{Arc, Mutex, PoisonError};

impl Subjects {
    /// Returns a GPU engine, alone and behind fusion, with kernels compiled ahead.
    pub fn gpu<D: Driver>(engine: Arc<Gpu<D>>) -> Subjects {
        Subjects { ahead: Some(precompile(engine.clone())), ..Subjects::device(engine) }
    }
}

/// Compiles the kernels of trials for a device before they run.
fn precompile<D: Driver>(device: Arc<Gpu<D>>) -> Precompile {
    let found = Arc::new(Mutex::new(Vec::<Arc<str>>::new()));
    let noted = found.clone();
    let note = move |source: &str| {
        noted.lock().unwrap_or_else(PoisonError::into_inner).push(source.into());
        Ok(Vec::new())
    };
    let driver = DryDriver::new(device.driver().info().clone(), note);
    let driver = if device.driver().library().is_some() { driver.with_libraries() } else { driver };
    let engine = Gpu::new(driver, MemoryConfig::default());
    let scout = Subjects { scope: Scope::Kernels, ..Subjects::device(Arc::new(engine)) };
    Arc::new(move |trials: &[Trial]| {
        for trial in trials {
            // A panic occurs again, and is reported, when the program runs.
            check(trial, &scout);
        }
        let sources = core::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
        device.prepare(&sources);
    })
}
