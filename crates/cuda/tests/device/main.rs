//! Engine tests, with and without a GPU. They are one binary, since each would link all of Kiln.
//!
//! `cargo test -p kiln-cuda --test device -- --include-ignored` runs all of it on a machine that has a GPU.

mod backend;
mod epilogues;
mod float8;
mod fourier;
mod graphs;
mod products;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Serializes GPU tests, which count memory and graphs and change settings.
fn alone() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
