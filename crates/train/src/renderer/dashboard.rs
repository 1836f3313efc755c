//! The dashboard: live curves, values and progress on a terminal.
//!
//! Two threads keep the terminal away from training. One receives the records and updates the model; the other reads
//! keys and draws. The channel between training and model has no bound, but the receiving thread never writes to the
//! terminal, so the channel stays nearly empty even if the terminal blocks.

mod chart;
mod draw;
mod keys;
mod palette;
mod panels;
mod summary;
mod terminal;
#[cfg(test)]
mod tests;
mod view;

use std::io::{IsTerminal, Result, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossterm::event;

pub use terminal::restore_terminal;

use super::model::Model;
use super::{Lines, Renderer, SystemUse};
use crate::interrupt::{self, SignalGuard, handle_signals};
use crate::interrupter::Interrupter;
use crate::record::{Level, Record};
use palette::Palette;
use view::{Action, View};

/// The time between two looks at the channel. Sending never wakes the receiver, which would cost a system call.
const RECEIVE_INTERVAL: Duration = Duration::from_millis(20);
/// The time between two frames without keys.
const FRAME_INTERVAL: Duration = Duration::from_millis(150);
/// The time between two samples of the system's use.
const SYSTEM_INTERVAL: Duration = Duration::from_secs(1);
/// The records that the receiving thread handles before it lets the drawing thread in.
const CHUNK: usize = 1000;

/// Draws a run on the terminal: curves of the metrics on training and validation data, progress, values, use of the
/// system, messages. It uses the alternate screen and prints a table of the results to the normal screen at the end.
///
/// | key | action |
/// |---|---|
/// | left, right | previous, next metric |
/// | up, down | show training, validation or both; scroll in the log |
/// | `w` | the whole run, or the last steps |
/// | `s` | smoothing of the values of steps: exponential moving average with the weight 0.6 or 0.9 as TensorBoard's, or none |
/// | `l` | show or hide the log |
/// | Tab | keys go to the chart or to the log |
/// | `q`, Ctrl-C | stop after this step; again: end the process at once |
/// | Ctrl-L | draw everything again |
/// | `?` | help |
///
/// A click on a metric selects it, and the wheel changes the metric or scrolls the log. Colours follow `NO_COLOR`, `TERM`
/// and `COLORTERM`.
///
/// The terminal is restored by [`close`](Renderer::close), when the dashboard is dropped, after a panic of any thread, by
/// SIGINT and SIGTERM, and when the main thread ends the process. After a panic that the program survives, lines on
/// standard error replace the dashboard.
pub struct Dashboard {
    sender: Option<Sender<Input>>,
    shared: Arc<Shared>,
    stop: Interrupter,
    threads: Vec<JoinHandle<()>>,
    _signals: SignalGuard,
}

/// Samples the use of the system.
type Sampler = Box<dyn FnMut() -> SystemUse + Send>;

/// A message to the receiving thread.
enum Input {
    Record(Record),
    Sampler(Sampler),
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    closing: AtomicBool,
}

/// The state that one thread updates and the other draws.
#[derive(Default)]
struct State {
    model: Model,
    system: Option<SystemUse>,
}

/// Returns whether standard output and standard error are a terminal that a dashboard can draw on.
pub(super) fn is_possible() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let knows_term = !is_dumb || cfg!(windows);
    knows_term && std::io::stdout().is_terminal() && std::io::stderr().is_terminal()
}

impl Dashboard {
    /// Opens the dashboard on the terminal of standard error.
    ///
    /// # Errors
    /// When standard error is no terminal, or another dashboard is open.
    pub fn open() -> Result<Dashboard> {
        if !std::io::stderr().is_terminal() {
            return Err(std::io::Error::other("standard error is not a terminal"));
        }
        let stop = Interrupter::new();
        let signals = handle_signals(&stop)?;
        let (sender, receiver) = channel();
        let shared = Arc::new(Shared::default());
        let mut dashboard = Dashboard {
            sender: Some(sender),
            shared: shared.clone(),
            stop: stop.clone(),
            threads: Vec::new(),
            _signals: signals,
        };
        let screen = terminal::open()?;
        let receive = move || receive(&receiver, &shared);
        dashboard.threads.push(spawn("kiln-dashboard-records", receive)?);
        let shared = dashboard.shared.clone();
        dashboard.threads.push(spawn("kiln-dashboard", move || show(screen, &shared, &stop))?);
        Ok(dashboard)
    }

    /// Shows the use of the system, which `sample` returns once a second on a thread of the dashboard. Default: none.
    #[must_use]
    pub fn system(self, sample: impl FnMut() -> SystemUse + Send + 'static) -> Dashboard {
        self.send(Input::Sampler(Box::new(sample)));
        self
    }

    fn send(&self, input: Input) {
        if let Some(sender) = &self.sender {
            // The receiver exists until `close`, unless its thread panicked: then nothing can be shown.
            let _ = sender.send(input);
        }
    }
}

impl Renderer for Dashboard {
    fn record(&mut self, record: &Record) {
        self.send(Input::Record(record.clone()));
    }

    fn is_stop_requested(&mut self) -> bool {
        self.stop.is_stopped()
    }

    fn close(&mut self) {
        // Without a sender, the receiving thread ends after the last record.
        if self.sender.take().is_none() {
            return;
        }
        self.shared.closing.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A panic of the thread is already reported.
            let _ = thread.join();
        }
        let was_open = terminal::is_open();
        restore_terminal();
        if was_open && !std::thread::panicking() {
            let text = summary::table(&self.shared.state().model, Instant::now());
            // Without standard error there is no place for the text.
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// A panic while drawing does not damage the state, which drawing only reads.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// Updates the model until the sender is dropped.
fn receive(receiver: &Receiver<Input>, shared: &Shared) {
    let mut sampler: Option<Sampler> = None;
    let mut sampled: Option<Instant> = None;
    let mut lines: Option<Lines> = None;
    loop {
        let mut more = true;
        while more {
            let mut state = shared.state();
            for _ in 0..CHUNK {
                match receiver.try_recv() {
                    Ok(Input::Record(record)) => {
                        // After a panic the terminal is restored, and the program may go on.
                        if !terminal::is_open() {
                            let continued = || Lines::continuing(state.model.clone());
                            lines.get_or_insert_with(continued).record(&record);
                        }
                        state.model.record(&record, Instant::now());
                    }
                    Ok(Input::Sampler(new)) => sampler = Some(new),
                    Err(TryRecvError::Empty) => {
                        more = false;
                        break;
                    }
                    Err(TryRecvError::Disconnected) => return,
                }
            }
        }
        if let Some(sample) = &mut sampler
            && sampled.is_none_or(|at| at.elapsed() >= SYSTEM_INTERVAL)
        {
            sampled = Some(Instant::now());
            let system = sample();
            // A sampler that knows nothing needs no panel.
            shared.state().system = Some(system).filter(|system| *system != SystemUse::default());
        }
        std::thread::park_timeout(RECEIVE_INTERVAL);
    }
}

/// Draws and handles keys until the dashboard closes or the terminal is restored.
fn show(mut screen: terminal::Screen, shared: &Shared, stop: &Interrupter) {
    let mut view = View::new(Palette::detect());
    while !shared.is_closing() && terminal::is_open() {
        // A terminal that cannot be drawn on now, such as one of size 0, may be larger later.
        let _ = terminal::draw(&mut screen, |frame| {
            let state = shared.state();
            let scene = draw::Scene {
                model: &state.model,
                system: state.system.as_ref(),
                is_stopping: stop.is_stopped(),
                now: Instant::now(),
            };
            draw::draw(frame, &scene, &mut view);
        });
        if let Some(action) = wait_for_action(&mut view, shared) {
            act(action, &mut screen, shared, stop);
        }
    }
}

/// Handles events until one changes the view, the next frame is due, or the dashboard closes.
fn wait_for_action(view: &mut View, shared: &Shared) -> Option<Action> {
    let started = Instant::now();
    while let Some(left) = FRAME_INTERVAL.checked_sub(started.elapsed()) {
        // Short waits, so that closing takes no longer.
        let wait = left.min(RECEIVE_INTERVAL);
        match event::poll(wait) {
            Ok(true) => {
                let Ok(event) = event::read() else { continue };
                let action = view.handle(&event, &shared.state().model);
                if action != Action::Nothing {
                    return Some(action);
                }
            }
            Ok(false) => {}
            // Without keys the dashboard still draws.
            Err(_) => std::thread::sleep(wait),
        }
        if shared.is_closing() {
            break;
        }
    }
    None
}

fn act(action: Action, screen: &mut terminal::Screen, shared: &Shared, stop: &Interrupter) {
    match action {
        Action::Nothing | Action::Changed => {}
        Action::Redraw => {
            let _ = screen.clear();
        }
        Action::Stop => {
            interrupt::ctrl_c();
            if stop.is_stopped() {
                let text = "stopping after this step; q or Ctrl-C again ends the process at once";
                shared.state().model.message(Level::Warning, text.to_owned());
            }
        }
    }
}
