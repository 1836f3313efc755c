//! One attack, and its run in a process of its own.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An attack: it succeeds if Kiln answers it with an error, or with a right result, within the bounds.
pub(crate) struct Attack {
    /// Its name, such as `server/resize_of_huge_rows`.
    pub(crate) name: &'static str,
    /// The time after which the attacked program counts as hanging, in seconds.
    pub(crate) seconds: u64,
    /// The resident memory that its process, attacker included, may use at its peak, in MiB. Windows does not check it.
    pub(crate) megabytes: u64,
    /// Whether it is part of the short form (`--short`): a few seconds at most.
    pub(crate) short: bool,
    /// The attack. It returns the failure as text; a panic or an abort is a failure too.
    pub(crate) run: fn() -> Result<(), String>,
}

/// The outcome of an attack that the program resisted.
pub(crate) struct Resisted {
    pub(crate) time: Duration,
    /// The peak of its resident memory in MiB; `None` where the system does not tell it, or if it ended at once.
    pub(crate) megabytes: Option<u64>,
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
        let program = std::env::current_exe().map_err(ended)?;
        self.supervise(Command::new(program).args(["--one", self.name]))
    }

    /// Runs the attack in this process, which also finds a peak of memory that its parent's last look missed.
    pub(crate) fn run_here(&self) -> Result<(), String> {
        (self.run)()?;
        match peak_megabytes(std::process::id()) {
            Some(used) if used > self.megabytes => {
                Err(Failure::Memory { used, allowed: self.megabytes }.to_string())
            }
            Some(_) | None => Ok(()),
        }
    }

    fn supervise(&self, command: &mut Command) -> Result<Resisted, Failure> {
        // A file, not a pipe: a process that outlives the attack would keep a pipe open.
        let mut printed = tempfile::tempfile().map_err(ended)?;
        let stderr = printed.try_clone().map_err(ended)?;
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().map_err(ended)?;
        let watched = self.watch(&mut child);
        if watched.is_err() {
            // The process may have ended by itself in between.
            let _killed = child.kill();
            let _status = child.wait();
        }
        watched.map_err(|failure| match failure {
            Failure::Ended(status) => Failure::Ended(format!("{status}\n{}", end_of(&mut printed))),
            Failure::Hang(_) | Failure::Memory { .. } => failure,
        })
    }

    fn watch(&self, child: &mut Child) -> Result<Resisted, Failure> {
        let start = Instant::now();
        let mut peak = None;
        loop {
            if let Some(status) = child.try_wait().map_err(ended)? {
                return match status.success() {
                    true => Ok(Resisted { time: start.elapsed(), megabytes: peak }),
                    false => Err(Failure::Ended(status.to_string())),
                };
            }
            peak = peak.max(peak_megabytes(child.id()));
            if let Some(used) = peak.filter(|&used| used > self.megabytes) {
                return Err(Failure::Memory { used, allowed: self.megabytes });
            }
            if start.elapsed() > Duration::from_secs(self.seconds) {
                return Err(Failure::Hang(self.seconds));
            }
            std::thread::sleep(INTERVAL);
        }
    }
}

fn ended(error: std::io::Error) -> Failure {
    Failure::Ended(error.to_string())
}

/// The peak of a process's resident memory in MiB: Linux tells it, and for other Unix systems this is the present use, from
/// `ps`. `None` if the process has ended, or if the system has neither.
fn peak_megabytes(process: u32) -> Option<u64> {
    let kibibytes = if cfg!(target_os = "linux") {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))?
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
    } else {
        let words = ["-o", "rss=", "-p", &process.to_string()];
        let output = Command::new("ps").args(words).stderr(Stdio::null()).output().ok()?;
        String::from_utf8_lossy(&output.stdout).trim().parse::<u64>()
    };
    kibibytes.ok().map(|kibibytes| kibibytes / 1024)
}

/// The end of the output of a process.
fn end_of(printed: &mut File) -> String {
    const KEPT: u64 = 2000;
    let mut bytes = Vec::new();
    let length = printed.seek(SeekFrom::End(0)).unwrap_or(0);
    let read = printed
        .seek(SeekFrom::Start(length.saturating_sub(KEPT)))
        .and_then(|_| printed.take(KEPT).read_to_end(&mut bytes));
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("(its output cannot be read: {error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The environment variable that selects what the child process below does.
    const CONDUCT: &str = "KILN_ATTACK_CONDUCT";

    /// The child process of the other tests: the sample attacks, by name.
    #[test]
    #[ignore = "a child of the tests below"]
    fn child_process() {
        let run: fn() -> Result<(), String> = match std::env::var(CONDUCT).unwrap().as_str() {
            "resists" => || Ok(()),
            "fails" => || Err("the server answered with another session's data".to_owned()),
            "panics" => || panic!("index out of bounds"),
            "aborts" => || std::process::abort(),
            "hangs" => || {
                std::thread::sleep(Duration::from_secs(600));
                Ok(())
            },
            "takes memory" => || {
                take(256);
                std::thread::sleep(Duration::from_secs(600));
                Ok(())
            },
            "takes memory and ends" => || {
                take(256);
                Ok(())
            },
            other => panic!("no conduct is called {other}"),
        };
        Attack { run, ..sample() }.run_here().unwrap_or_else(|reason| panic!("{reason}"));
    }

    /// Writes that many MiB.
    fn take(megabytes: usize) {
        std::hint::black_box(vec![1_u8; megabytes << 20]);
    }

    fn sample() -> Attack {
        Attack { name: "sample", seconds: 5, megabytes: 128, short: true, run: || Ok(()) }
    }

    fn outcome(conduct: &str) -> Result<Resisted, Failure> {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "attack::tests::child_process", "--nocapture"]);
        sample().supervise(command.env(CONDUCT, conduct))
    }

    #[track_caller]
    fn reason(conduct: &str) -> String {
        match outcome(conduct) {
            Err(Failure::Ended(reason)) => reason,
            Err(failure) => panic!("{conduct}: {failure}"),
            Ok(_) => panic!("a process that {conduct} counts as resisting"),
        }
    }

    #[test]
    fn a_process_that_ends_well_within_its_bounds_resists() {
        let resisted = outcome("resists").unwrap_or_else(|failure| panic!("{failure}"));
        assert!(resisted.time < Duration::from_secs(5));
        assert!(resisted.megabytes.is_none_or(|used| used <= 128));
    }

    #[test]
    fn errors_panics_and_aborts_are_failures_with_what_was_printed() {
        assert!(reason("fails").contains("another session's data"));
        assert!(reason("panics").contains("index out of bounds"));
        let _status = reason("aborts");
    }

    #[test]
    fn a_hang_is_stopped() {
        let started = Instant::now();
        assert!(matches!(outcome("hangs"), Err(Failure::Hang(5))));
        assert!(started.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn memory_beyond_the_bound_is_a_failure() {
        if peak_megabytes(std::process::id()).is_none() {
            println!("this system does not tell the memory of a process");
            return;
        }
        assert!(matches!(outcome("takes memory"), Err(Failure::Memory { used: 129.., allowed: 128 })));
        // The parent may see it first, or the process itself at its end.
        match outcome("takes memory and ends") {
            Err(Failure::Memory { allowed, .. }) => assert_eq!(allowed, 128),
            Err(Failure::Ended(reason)) => assert!(reason.contains("allowed are 128 MiB"), "{reason}"),
            Err(Failure::Hang(_)) | Ok(_) => panic!("256 MiB are accepted"),
        }
    }
}
