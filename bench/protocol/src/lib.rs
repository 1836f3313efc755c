//! Line protocol and table of workloads, shared by `cargo xtask bench` and the programs that it measures.
//!
//! A peer is a program that stays alive while other peers are measured. It reads one request a line and answers each
//! with one line, which begins with `ok` and a JSON object, with `unsupported`, or with `error` and the reason:
//!
//! | request | action | answer |
//! |---|---|---|
//! | `hello` | nothing | `peer`, `version`, `threads` |
//! | `prepare NAME [FILE]` | makes the inputs of a workload | nothing |
//! | `run N` | repeats the workload `N` times | `ms` and `values`, one of each for a repeat; `faults` of memory pages |
//! | `drop` | frees the inputs | nothing |
//! | `memory` | nothing | `resident_mib` and `peak_mib` of the process |
//! | `limit` | measures the machine | `gflops`: its peak multiply-add throughput |
//!
//! The program ends when its input does. [`serve`] does all of this for a [`Peer`].
#![forbid(unsafe_code)]

pub mod process;
pub mod random;
pub mod workloads;

use std::io::{BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;
use workloads::Row;

/// Why a workload cannot be prepared or run.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    /// The peer has no such operation.
    Unsupported(String),
    /// The peer has it, but it failed.
    Failed(String),
}

impl Refusal {
    /// The reason of either.
    pub fn reason(self) -> String {
        match self {
            Refusal::Unsupported(reason) | Refusal::Failed(reason) => reason,
        }
    }
}

impl<E: std::error::Error> From<E> for Refusal {
    fn from(error: E) -> Refusal {
        Refusal::Failed(error.to_string())
    }
}

/// The result of a request to a peer.
pub type Result<T> = std::result::Result<T, Refusal>;

/// A workload with prepared inputs.
pub struct Prepared {
    repeat: Box<dyn FnMut() -> Result<f64>>,
    operations: f64,
}

impl Prepared {
    /// A workload, given by the work of one repeat. It returns a number read from the result, which proves that the
    /// result exists: the loss of a training step, any element otherwise.
    pub fn new(repeat: impl FnMut() -> Result<f64> + 'static) -> Prepared {
        Prepared { repeat: Box::new(repeat), operations: 1.0 }
    }

    /// Repeats the workload once, and returns the number that was read.
    ///
    /// # Errors
    /// When the workload fails.
    pub fn repeat(&mut self) -> Result<f64> {
        (self.repeat)()
    }

    /// Sets the number of operations per repeat. Times are reported per operation.
    pub fn with_operations(self, operations: usize) -> Prepared {
        Prepared { operations: operations as f64, ..self }
    }

    /// The number of operations per repeat.
    pub fn operations(&self) -> f64 {
        self.operations
    }
}

/// A measured program.
pub trait Peer {
    /// Name and version, such as `("burn", "0.22")`.
    fn describe(&self) -> (&'static str, String);

    /// The comparisons whose workloads run on the peer's device.
    fn benches(&self) -> &'static [&'static str] {
        workloads::ON_CPU
    }

    /// Creates the inputs of a workload; `file` is the file of a workload that loads one.
    ///
    /// # Errors
    /// When the peer lacks an operation, or when it fails.
    fn prepare(&self, row: &'static Row, file: &str) -> Result<Prepared>;

    /// The peak throughput of `f32` multiply-adds of this machine with a number of threads, in GFLOP/s.
    ///
    /// # Errors
    /// When the peer does not measure it.
    fn limit(&self, _threads: usize) -> Result<f64> {
        Err(Refusal::Unsupported("this peer does not measure the machine".to_owned()))
    }
}

/// Answers requests from standard input until it ends. `threads` is the peer's configured number of threads.
pub fn serve(peer: &dyn Peer, threads: usize) -> ExitCode {
    let mut session = Session { peer, threads, prepared: None };
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return ExitCode::FAILURE };
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        // A panic of the peer must not end the whole run.
        let answer = catch_unwind(AssertUnwindSafe(|| session.answer(&words)));
        let text = match answer {
            Ok(Ok(fields)) => format!("ok {{{fields}}}"),
            Ok(Err(Refusal::Unsupported(reason))) => format!("unsupported {}", one_line(&reason)),
            Ok(Err(Refusal::Failed(reason))) => format!("error {}", one_line(&reason)),
            Err(panic) => format!("error panicked: {}", one_line(panic_message(&*panic))),
        };
        let mut output = std::io::stdout().lock();
        if writeln!(output, "{text}").and_then(|()| output.flush()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Answers the first request with an error, and ends: for a peer whose device is not there.
pub fn serve_absent(reason: &str) -> ExitCode {
    let mut request = String::new();
    let read = std::io::stdin().lock().read_line(&mut request);
    let mut output = std::io::stdout().lock();
    let written = writeln!(output, "error {}", one_line(reason)).and_then(|()| output.flush());
    if let Err(error) = read.map(drop).and(written) {
        eprintln!("{error}");
    }
    ExitCode::FAILURE
}

struct Session<'a> {
    peer: &'a dyn Peer,
    threads: usize,
    prepared: Option<Prepared>,
}

impl Session<'_> {
    /// The fields of the JSON object that answers one request.
    fn answer(&mut self, words: &[&str]) -> Result<String> {
        match words {
            ["hello"] => {
                let (name, version) = self.peer.describe();
                Ok(format!(r#""peer": "{name}", "version": "{version}", "threads": {}"#, self.threads))
            }
            ["prepare", name, rest @ ..] => {
                self.prepared = None;
                let row = workloads::find(self.peer.benches(), name)?;
                if !row.has(self.peer.describe().0) {
                    return Err(unknown(name));
                }
                self.prepared = Some(self.peer.prepare(row, rest.first().unwrap_or(&""))?);
                Ok(String::new())
            }
            ["run", count] => {
                let count = count.parse().map_err(|_| failed(format!("`{count}` is not a number")))?;
                run(self.prepared.as_mut().ok_or_else(|| failed("nothing is prepared"))?, count)
            }
            ["drop"] => {
                self.prepared = None;
                Ok(String::new())
            }
            ["memory"] => {
                let memory = process::memory().ok_or_else(|| failed("the system does not tell"))?;
                Ok(format!(r#""resident_mib": {}, "peak_mib": {}"#, memory.resident_mib, memory.peak_mib))
            }
            ["limit"] => Ok(format!(r#""gflops": {}"#, self.peer.limit(self.threads)?)),
            _ => Err(failed(format!("unknown request `{}`", words.join(" ")))),
        }
    }
}

fn run(prepared: &mut Prepared, count: usize) -> Result<String> {
    let (mut times, mut values) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let faults = process::minor_faults();
    for _ in 0..count {
        let started = Instant::now();
        let value = (prepared.repeat)()?;
        times.push(started.elapsed().as_secs_f64() * 1e3 / prepared.operations);
        values.push(value);
    }
    let faults = process::minor_faults().saturating_sub(faults);
    Ok(format!(r#""ms": {}, "values": {}, "faults": {faults}"#, list(&times), list(&values)))
}

/// A JSON list; nonfinite numbers are `null`.
fn list(numbers: &[f64]) -> String {
    let text = |number: &f64| if number.is_finite() { number.to_string() } else { "null".to_owned() };
    format!("[{}]", numbers.iter().map(text).collect::<Vec<_>>().join(", "))
}

/// Answers requests of a peer for CPUs, whose only arguments are `--threads N`.
pub fn serve_threads(peer: &dyn Peer, program: &str) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--threads", threads] if threads.parse::<usize>().is_ok() => {
            serve(peer, threads.parse().unwrap_or(1))
        }
        _ => {
            eprintln!("usage: RAYON_NUM_THREADS=N {program} --threads N");
            ExitCode::FAILURE
        }
    }
}

/// A quantile of sorted values, with linear interpolation; `None` without values.
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let place = share * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

/// The refusal of something that failed.
pub fn failed(reason: impl Into<String>) -> Refusal {
    Refusal::Failed(reason.into())
}

/// The refusal of a workload that the peer does not know.
pub fn unknown(workload: &str) -> Refusal {
    Refusal::Unsupported(format!("no workload is called `{workload}`"))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counter;

    impl Peer for Counter {
        fn describe(&self) -> (&'static str, String) {
            ("kiln", "1.0".to_owned())
        }

        fn prepare(&self, row: &'static Row, file: &str) -> Result<Prepared> {
            let mut next = file.len() as f64;
            assert_eq!(row.name, "softmax");
            Ok(Prepared::new(move || {
                next += 1.0;
                Ok(if next > 6.0 { f64::NAN } else { next })
            }))
        }
    }

    fn ask(session: &mut Session, request: &str) -> Result<String> {
        session.answer(&request.splitn(3, ' ').collect::<Vec<_>>())
    }

    #[test]
    fn a_workload_is_prepared_run_and_dropped() {
        let mut session = Session { peer: &Counter, threads: 2, prepared: None };
        let hello = ask(&mut session, "hello").unwrap();
        assert_eq!(hello, r#""peer": "kiln", "version": "1.0", "threads": 2"#);
        ask(&mut session, "prepare softmax abcd").unwrap();
        let answer = ask(&mut session, "run 3").unwrap();
        assert!(answer.contains(r#""values": [5, 6, null]"#), "{answer}");
        ask(&mut session, "drop").unwrap();
        assert!(matches!(ask(&mut session, "run 1"), Err(Refusal::Failed(_))));
    }

    #[test]
    fn unknown_requests_are_refused() {
        let mut session = Session { peer: &Counter, threads: 2, prepared: None };
        assert!(matches!(ask(&mut session, "prepare lost"), Err(Refusal::Unsupported(_))));
        assert!(matches!(ask(&mut session, "limit"), Err(Refusal::Unsupported(_))));
        assert!(matches!(ask(&mut session, "run x"), Err(Refusal::Failed(_))));
        assert!(matches!(ask(&mut session, "dance"), Err(Refusal::Failed(_))));
    }
}
