//! SIGINT (Ctrl-C) and SIGTERM: the first stops training after the current step, the second terminates the program.

use kiln::train::Interrupter;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};
use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The signal handlers. Until they are dropped, the first signal interrupts training. After that, a signal terminates
/// the program.
pub(crate) struct Signals(Arc<AtomicBool>);

impl Signals {
    /// Registers the signal handlers.
    pub(crate) fn catch() -> Result<Signals> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // A shell's exit status after a signal is `128 + signal`. The order matters: the second signal finds the
            // flag set.
            register_conditional_shutdown(signal, 128 + signal, flag.clone())?;
            register(signal, flag.clone())?;
        }
        Ok(Signals(flag))
    }

    /// The interrupter that a trainer checks after each step.
    pub(crate) fn interrupter(&self) -> Interrupter {
        Interrupter::from_flag(self.0.clone())
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
