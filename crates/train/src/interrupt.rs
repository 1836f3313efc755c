//! Signals of the operating system that end training: SIGINT (Ctrl-C) and SIGTERM.

use std::io::Result;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::interrupter::Interrupter;

/// The interrupters that signals stop. Each has the number by which its guard removes it.
#[derive(Debug, Default)]
struct Registry {
    interrupters: Vec<(u64, Interrupter)>,
    next: u64,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { interrupters: Vec::new(), next: 0 });

/// The thread that waits for signals starts once. An error is kept as text, since `io::Error` is not `Clone`.
static LISTENER: OnceLock<std::result::Result<(), String>> = OnceLock::new();

/// Removes an interrupter from the signal handlers when it is dropped. Without interrupters, a signal ends the process.
#[derive(Debug)]
#[must_use = "dropping it removes the signal handlers"]
pub struct SignalGuard(u64);

/// Handles SIGINT (Ctrl-C) and SIGTERM until the guard is dropped: the first signal requests that training stops after
/// the current step. The next one ends the process at once, with the exit code 130 or 143; a dashboard restores the
/// terminal before.
///
/// A signal also ends the process at once if a stop was already requested in another way. Several interrupters may be
/// registered; a signal stops all.
///
/// # Errors
/// When the operating system rejects the handlers.
///
/// ```
/// use kiln_train::{Interrupter, interrupt::handle_signals};
///
/// let interrupter = Interrupter::new();
/// let signals = handle_signals(&interrupter)?;
/// // Train with the interrupter.
/// drop(signals);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn handle_signals(interrupter: &Interrupter) -> Result<SignalGuard> {
    LISTENER
        .get_or_init(|| listen().map_err(|error| error.to_string()))
        .clone()
        .map_err(std::io::Error::other)?;
    let mut registry = registry();
    let id = registry.next;
    registry.next += 1;
    registry.interrupters.push((id, interrupter.clone()));
    Ok(SignalGuard(id))
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        registry().interrupters.retain(|(id, _)| *id != self.0);
    }
}

/// The reaction to a signal.
#[derive(Debug, PartialEq, Eq)]
enum Reaction {
    /// Training stops after the current step.
    Stop,
    /// The process ends.
    Exit,
}

/// Handles a signal, or a key that stands for it where the terminal is in raw mode.
pub(crate) fn signal(signal: i32) {
    let reaction = registry().react();
    match reaction {
        Reaction::Stop => {}
        Reaction::Exit => exit(signal),
    }
}

/// Handles Ctrl-C that arrived as a key.
#[cfg(feature = "dashboard")]
pub(crate) fn ctrl_c() {
    signal(SIGINT);
}

/// Restores the terminal and ends the process with a shell's exit code for a signal.
fn exit(signal: i32) -> ! {
    #[cfg(feature = "dashboard")]
    crate::renderer::restore_terminal();
    std::process::exit(128 + signal)
}

impl Registry {
    fn react(&mut self) -> Reaction {
        let is_second = self.interrupters.iter().any(|(_, interrupter)| interrupter.is_stopped());
        if is_second || self.interrupters.is_empty() {
            return Reaction::Exit;
        }
        self.interrupters.iter().for_each(|(_, interrupter)| interrupter.stop());
        Reaction::Stop
    }
}

/// A panic of another thread does not damage the list.
fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread that waits for signals.
#[cfg(unix)]
fn listen() -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    let wait = move || signals.forever().for_each(signal);
    std::thread::Builder::new().name("kiln-signals".into()).spawn(wait)?;
    Ok(())
}

/// Starts a thread that looks for signals: without pipes between handlers and threads, handlers can only set flags.
#[cfg(not(unix))]
fn listen() -> Result<()> {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    let flags = [SIGINT, SIGTERM].map(|number| (number, Arc::new(AtomicBool::new(false))));
    for (number, flag) in &flags {
        signal_hook::flag::register(*number, flag.clone())?;
    }
    let wait = move || {
        loop {
            std::thread::sleep(Duration::from_millis(50));
            for (number, flag) in &flags {
                if flag.swap(false, Ordering::Relaxed) {
                    signal(*number);
                }
            }
        }
    };
    std::thread::Builder::new().name("kiln-signals".into()).spawn(wait)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(interrupters: &[&Interrupter]) -> Registry {
        let numbered = interrupters.iter().zip(0..).map(|(interrupter, id)| (id, (*interrupter).clone()));
        Registry { interrupters: numbered.collect(), next: 9 }
    }

    #[test]
    fn the_first_signal_stops_all_interrupters_and_the_second_exits() {
        let (one, two) = (Interrupter::new(), Interrupter::new());
        let mut registry = with(&[&one, &two]);
        assert_eq!(registry.react(), Reaction::Stop);
        assert!(one.is_stopped() && two.is_stopped());
        assert_eq!(registry.react(), Reaction::Exit);
        one.reset();
        two.reset();
        assert_eq!(registry.react(), Reaction::Stop);
    }

    #[test]
    fn a_signal_after_a_requested_stop_or_without_interrupters_exits() {
        let interrupter = Interrupter::new();
        interrupter.stop();
        assert_eq!(with(&[&interrupter]).react(), Reaction::Exit);
        assert_eq!(with(&[]).react(), Reaction::Exit);
    }

    #[cfg(unix)]
    #[test]
    fn a_signal_of_the_operating_system_arrives() {
        let interrupter = Interrupter::new();
        let _guard = handle_signals(&interrupter).unwrap();
        signal_hook::low_level::raise(SIGTERM).unwrap();
        let started = std::time::Instant::now();
        while !interrupter.is_stopped() {
            assert!(started.elapsed().as_secs() < 10, "no signal");
            std::thread::yield_now();
        }
    }
}
