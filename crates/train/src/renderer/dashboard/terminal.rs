//! Opening and restoring the terminal.

use std::io::{BufWriter, Result, Stderr, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, TryLockError};
use std::time::{Duration, Instant};

use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::execute;
use crossterm::style::{Attribute, SetAttribute};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};

/// Standard error, since programs print their results to standard output.
pub(super) type Screen = Terminal<CrosstermBackend<BufWriter<Stderr>>>;

/// Whether the alternate screen is open.
static OPEN: AtomicBool = AtomicBool::new(false);
/// Held while a frame is written, so that no frame reaches the normal screen.
static DRAWING: Mutex<()> = Mutex::new(());
/// The longest time that restoring waits for a frame. The thread that draws may itself have panicked.
const WAIT: Duration = Duration::from_millis(300);

/// Opens the alternate screen in raw mode with the mouse captured.
pub(super) fn open() -> Result<Screen> {
    install_panic_hook();
    if OPEN.swap(true, Ordering::SeqCst) {
        return Err(std::io::Error::other("another dashboard is open"));
    }
    restore_at_exit();
    let opened = enable_raw_mode()
        .and_then(|()| execute!(stderr(), EnterAlternateScreen, EnableMouseCapture, Hide))
        .and_then(|()| Terminal::new(CrosstermBackend::new(BufWriter::new(stderr()))));
    if opened.is_err() {
        restore_terminal();
    }
    opened
}

/// Returns whether a dashboard holds the terminal.
pub(super) fn is_open() -> bool {
    OPEN.load(Ordering::SeqCst)
}

/// Draws a frame, unless the terminal is already restored.
pub(super) fn draw(screen: &mut Screen, render: impl FnOnce(&mut Frame)) -> Result<()> {
    let drawing = DRAWING.lock();
    if is_open() {
        screen.draw(render)?;
    }
    drop(drawing);
    Ok(())
}

/// Restores the terminal if a dashboard is open: leaves the alternate screen and raw mode, releases the mouse and shows
/// the cursor. Call it before ending the process in a way that runs no destructors, such as `std::process::exit` on
/// another than the main thread.
pub fn restore_terminal() {
    if !OPEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let started = Instant::now();
    let drawing = loop {
        match DRAWING.try_lock() {
            Ok(guard) => break Some(guard),
            Err(TryLockError::Poisoned(error)) => break Some(error.into_inner()),
            Err(TryLockError::WouldBlock) if started.elapsed() > WAIT => break None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    // Errors have no remedy here: the terminal may be gone.
    let _ =
        execute!(stderr(), SetAttribute(Attribute::Reset), DisableMouseCapture, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
    drop(drawing);
}

/// Adds a panic hook that restores the terminal before the hooks that were there, so that their messages can be read.
fn install_panic_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore_terminal();
            report(info);
        }));
    });
}

/// Restores the terminal when the main thread ends the process. Destructors of its thread-local values run then, also in
/// `std::process::exit`.
fn restore_at_exit() {
    thread_local! {
        static GUARD: ExitGuard = const { ExitGuard };
    }
    if std::thread::current().name() == Some("main") {
        GUARD.with(|_| ());
    }
}

struct ExitGuard;

impl Drop for ExitGuard {
    fn drop(&mut self) {
        restore_terminal();
    }
}
