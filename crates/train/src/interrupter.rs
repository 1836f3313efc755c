//! Interruption of training.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that stops training from another thread, a callback or a signal handler. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupter(Arc<AtomicBool>);

impl Interrupter {
    /// Returns a flag that is not set.
    pub fn new() -> Interrupter {
        Interrupter::default()
    }

    /// Wraps a flag that other code sets, such as a signal handler.
    pub fn from_flag(flag: Arc<AtomicBool>) -> Interrupter {
        Interrupter(flag)
    }

    /// Requests that training stops after the current step.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether a stop was requested.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Clears the request, so that training can continue.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
