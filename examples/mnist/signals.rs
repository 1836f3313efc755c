//! Ctrl-C and SIGTERM: the first ends training after the present step, a second ends the program at once.

use kiln::train::Interrupter;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};
use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// While it trains, the signals ask for an end; afterwards they end the program, as they do without it.
pub(crate) struct Signals(Arc<AtomicBool>);

impl Signals {
    /// Catches the signals from now on.
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
