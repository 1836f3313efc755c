//! Tests that need the random numbers or the memory of the process for themselves: each holds [`alone`] while it runs.

mod autocast;
mod data_parallel;
mod exact_runs;
mod whole_process;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// No other test of this program runs until the guard is dropped.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
