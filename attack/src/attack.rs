//! One attack, and its run in a process of its own.

use std::fmt;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An attack: it succeeds if Kiln answers it with an error, or with a right result, within the bounds.
pub(crate) struct Attack {
    /// Its name, such as `server/resize_of_huge_rows`.
    pub(crate) name: &'static str,
    /// The time after which the attacked program counts as hanging, in seconds.
    pub(crate) seconds: u64,
    /// The resident memory that it may use at its peak, in MiB.
    pub(crate) megabytes: u64,
    /// Whether it is part of the short form (`--short`): a few seconds at most.
    pub(crate) short: bool,
    /// The attack. It returns the failure as text; a panic or an abort is a failure too.
    pub(crate) run: fn() -> Result<(), String>,
}

/// The outcome of an attack that the program resisted.
pub(crate) struct Resisted {
    pub(crate) time: Duration,
    pub(crate) megabytes: u64,
}

/// The reason why an attack succeeded.
pub(crate) enum Failure {
    Hang(u64),
    Memory { used: u64, allowed: u64 },
    Ended(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Hang(seconds) => write!(f, "did not end within {seconds} s"),
            Failure::Memory { used, allowed } => write!(f, "used {used} MiB, allowed are {allowed} MiB"),
            Failure::Ended(reason) => f.write_str(reason),
        }
    }
}

/// How often the memory of the process is read.
const INTERVAL: Duration = Duration::from_millis(5);

impl Attack {
    /// Runs the attack in a child process, and kills it when it exceeds a bound.
    pub(crate) fn run_in_child(&self) -> Result<Resisted, Failure> {
        let ended = |error: std::io::Error| Failure::Ended(error.to_string());
        let program = std::env::current_exe().map_err(ended)?;
        let mut command = Command::new(program);
        command.args(["--one", self.name]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(ended)?;
        let stderr = child.stderr.take();
        let reader = std::thread::spawn(move || last_lines(stderr));
        let watched = self.watch(&mut child);
        if watched.is_err() {
            // The process may have ended by itself in between.
            let _killed = child.kill();
            let _status = child.wait();
        }
        let printed = reader.join().unwrap_or_default();
        watched.map_err(|failure| match failure {
            Failure::Ended(status) => Failure::Ended(format!("{status}\n{printed}")),
            Failure::Hang(_) | Failure::Memory { .. } => failure,
        })
    }

    fn watch(&self, child: &mut Child) -> Result<Resisted, Failure> {
        let start = Instant::now();
        let mut peak = 0;
        loop {
            if let Some(status) = child.try_wait().map_err(|error| Failure::Ended(error.to_string()))? {
                return match status.success() {
                    true => Ok(Resisted { time: start.elapsed(), megabytes: peak }),
                    false => Err(Failure::Ended(status.to_string())),
                };
            }
            peak = peak.max(peak_of(child.id()));
            if peak > self.megabytes {
                return Err(Failure::Memory { used: peak, allowed: self.megabytes });
            }
            if start.elapsed() > Duration::from_secs(self.seconds) {
                return Err(Failure::Hang(self.seconds));
            }
            std::thread::sleep(INTERVAL);
        }
    }
}

/// The peak of a process's resident memory in MiB, 0 where the system does not tell it.
fn peak_of(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) / 1024
}

/// The end of what a process printed.
fn last_lines(stderr: Option<impl Read>) -> String {
    const KEPT: usize = 2000;
    let mut bytes = Vec::new();
    if let Some(mut stderr) = stderr {
        let mut block = [0; 4096];
        while let Ok(read @ 1..) = stderr.read(&mut block) {
            bytes.extend_from_slice(&block[..read]);
            let excess = bytes.len().saturating_sub(KEPT);
            bytes.drain(..excess);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
