//! Ctrl-C.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

/// The exit status of a process that Ctrl-C ends: 128 and the number of the signal.
const STATUS: i32 = 130;

/// Ctrl-C stops an answer while one is written, and ends the process otherwise.
#[derive(Debug)]
pub(super) struct Interrupt {
    ends_process: Arc<AtomicBool>,
    stops_answer: Arc<AtomicBool>,
}

/// While it lives, Ctrl-C stops the answer.
#[derive(Debug)]
pub(super) struct DuringAnswer<'a>(&'a Interrupt);

impl Interrupt {
    pub(super) fn install() -> io::Result<Interrupt> {
        let interrupt = Interrupt {
            ends_process: Arc::new(AtomicBool::new(true)),
            stops_answer: Arc::new(AtomicBool::new(false)),
        };
        flag::register_conditional_shutdown(SIGINT, STATUS, Arc::clone(&interrupt.ends_process))?;
        flag::register(SIGINT, Arc::clone(&interrupt.stops_answer))?;
        Ok(interrupt)
    }

    pub(super) fn during_answer(&self) -> DuringAnswer<'_> {
        self.stops_answer.store(false, Ordering::SeqCst);
        self.ends_process.store(false, Ordering::SeqCst);
        DuringAnswer(self)
    }
}

impl DuringAnswer<'_> {
    pub(super) fn is_interrupted(&self) -> bool {
        self.0.stops_answer.load(Ordering::SeqCst)
    }
}

impl Drop for DuringAnswer<'_> {
    fn drop(&mut self) {
        self.0.ends_process.store(true, Ordering::SeqCst);
    }
}
