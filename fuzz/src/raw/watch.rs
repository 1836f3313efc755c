//! Campaigns of raw ops in child processes, watched by a parent.

use super::{Outcome, program, run};
use crate::check::Subjects;
use kiln_ir::{Engine, MemoryConfig, expanding};
use kiln_reference::Reference;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The time that one program may take. It has at most four ops.
const MAX_TIME: Duration = Duration::from_secs(5);

/// The time in which a child must start.
const MAX_START: Duration = Duration::from_secs(60);

/// A number of raw programs, or as many as fit a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Campaign {
    /// Determines the programs. Default: 1.
    pub seed: u64,
    /// The number of the first program. Default: 0.
    pub first: u64,
    /// How many programs; none to stop by time.
    pub programs: Option<u64>,
    /// How long to run. Default: 20 seconds.
    pub time: Duration,
    /// The name of the engine. Default: `cpu`.
    pub engine: String,
    /// The address space of a child in MiB, where the system limits it. With 0, tensors alone are limited, to 1 GiB.
    /// Default: 4096.
    pub mebibytes: u64,
    /// After how many failures to stop. Default: 10.
    pub most_failures: u64,
}

impl Default for Campaign {
    fn default() -> Campaign {
        Campaign {
            seed: 1,
            first: 0,
            programs: None,
            time: Duration::from_secs(20),
            engine: "cpu".into(),
            mebibytes: 4096,
            most_failures: 10,
        }
    }
}

/// What happened. Displays as the last line of a campaign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Ops that ran.
    pub ops: u64,
    /// Ops that inference or a quota refused.
    pub refused: u64,
    /// Results that are errors.
    pub errors: u64,
    /// Programs that panicked, hung, or ended the process.
    pub failures: u64,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals { ops, refused, errors, failures } = self;
        write!(f, "{ops} ops, {refused} refused, {errors} errors, {failures} failures")
    }
}

impl Campaign {
    /// Reads the options of the command line.
    ///
    /// # Errors
    /// When an option is unknown, or its value is not a number.
    pub fn parse(words: &mut impl Iterator<Item = String>) -> Result<Campaign, String> {
        let mut campaign = Campaign::default();
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("`{word}` needs a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("`{word} {value}`: not a number"));
            match word.as_str() {
                "--seed" => campaign.seed = number()?,
                "--first" => campaign.first = number()?,
                "--programs" => campaign.programs = Some(number()?),
                "--seconds" => campaign.time = Duration::from_secs(number()?),
                "--mebibytes" => campaign.mebibytes = number()?,
                "--failures" => campaign.most_failures = number()?.max(1),
                "--engine" => campaign.engine = value,
                other => return Err(format!("unknown option `{other}` of --raw\n  hint: see `--help`")),
            }
        }
        Ok(campaign)
    }

    /// Runs the campaign in child processes of this program. Prints each failure.
    ///
    /// # Errors
    /// When a child does not start.
    pub fn run(&self) -> Result<Totals, String> {
        let start = Instant::now();
        let mut totals = Totals::default();
        let mut next = self.first;
        loop {
            let is_done = match self.programs {
                Some(programs) => next >= self.first.saturating_add(programs),
                None => start.elapsed() >= self.time,
            };
            if is_done || totals.failures >= self.most_failures {
                return Ok(totals);
            }
            let mut child = Watched::start(self, next)?;
            let ended = child.watch(self, start, &mut totals);
            child.end();
            if let Some(failure) = ended {
                totals.failures += 1;
                println!(
                    "program {} of seed {}: {failure}\n{}",
                    child.number,
                    self.seed,
                    described(self.seed, child.number)
                );
            }
            next = child.number.saturating_add(1);
        }
    }
}

/// The text of a program. Its generator may itself panic.
fn described(seed: u64, number: u64) -> String {
    std::panic::catch_unwind(|| program(seed, number).to_string())
        .unwrap_or_else(|_| "inference of its ops panicked".into())
}

/// A child process, and the program that it runs.
struct Watched {
    child: Child,
    lines: Receiver<String>,
    number: u64,
    has_started: bool,
}

impl Watched {
    fn start(campaign: &Campaign, first: u64) -> Result<Watched, String> {
        let file = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = match campaign.mebibytes {
            limit @ 1.. if cfg!(unix) => {
                let mut shell = Command::new("sh");
                let script = format!("ulimit -v {} && exec \"$0\" \"$@\"", limit.saturating_mul(1024));
                shell.args(["-c", &script]).arg(file);
                shell
            }
            _ => Command::new(file),
        };
        command.args(["--raw-child", "--engine", &campaign.engine]);
        command.args(["--seed", &campaign.seed.to_string(), "--first", &first.to_string()]);
        command.args(["--mebibytes", &campaign.mebibytes.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("the child did not start: {error}"))?;
        let output = child.stdout.take().ok_or("the child has no output")?;
        let (sender, lines) = channel();
        // Ends with the child's output.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Watched { child, lines, number: first, has_started: false })
    }

    /// Follows the child until it fails, which is returned, or the campaign ends.
    fn watch(&mut self, campaign: &Campaign, start: Instant, totals: &mut Totals) -> Option<String> {
        let last = campaign.programs.map(|programs| campaign.first.saturating_add(programs));
        loop {
            if last.is_some_and(|last| self.number >= last)
                || campaign.programs.is_none() && start.elapsed() >= campaign.time
            {
                return None;
            }
            let limit = if self.has_started { MAX_TIME } else { MAX_START };
            match self.lines.recv_timeout(limit) {
                Ok(line) => {
                    self.has_started = true;
                    if let Err(failure) = self.follow(&line, totals) {
                        totals.failures += 1;
                        let text = described(campaign.seed, self.number);
                        println!("program {} of seed {}: {failure}\n{text}", self.number, campaign.seed);
                        if totals.failures >= campaign.most_failures {
                            return None;
                        }
                        self.number += 1;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Some(format!("did not end within {} s", MAX_TIME.as_secs()));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait();
                    return Some(status.map_or_else(
                        |error| error.to_string(),
                        |status| format!("the process ended: {status}"),
                    ));
                }
            }
        }
    }

    /// Reads a line about one program: its counts, or its failure.
    fn follow(&mut self, line: &str, totals: &mut Totals) -> Result<(), String> {
        let mut words = line.split(' ');
        match words.next() {
            Some("ok") => {
                let counts: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
                let [ops, refused, errors] = counts[..] else { return Ok(()) };
                totals.ops += ops;
                totals.refused += refused;
                totals.errors += errors;
                self.number += 1;
                Ok(())
            }
            Some("failed") => Err(words.collect::<Vec<_>>().join(" ")),
            // Anything else is not about a program.
            Some(_) | None => Ok(()),
        }
    }

    fn end(&mut self) {
        // The process may have ended by itself.
        let _killed = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Runs programs one after the other until the parent ends the process, and prints a line about each.
///
/// # Errors
/// When the engine is missing, or the parent is gone.
pub fn run_child(campaign: &Campaign) -> Result<(), String> {
    let engines = engines(&campaign.engine)?;
    if campaign.mebibytes == 0 {
        let memories = engines.iter().filter_map(|engine| engine.memory());
        memories.for_each(|memory| memory.configure(MemoryConfig::new().with_limit(1 << 30)));
    }
    std::panic::set_hook(Box::new(|_| {}));
    let mut output = std::io::stdout().lock();
    let mut number = campaign.first;
    writeln!(output, "ready").map_err(|error| error.to_string())?;
    loop {
        let engine = &engines[(number % engines.len() as u64) as usize];
        let line = match run(&**engine, campaign.seed, number) {
            Ok(Outcome { ops, refused, errors }) => format!("ok {ops} {refused} {errors}"),
            Err(failure) => format!("failed {}", failure.replace('\n', " ")),
        };
        writeln!(output, "{line}").map_err(|error| error.to_string())?;
        number += 1;
    }
}

/// The engines that take turns.
fn engines(name: &str) -> Result<Vec<Arc<dyn Engine>>, String> {
    let of = |subjects: Subjects| -> Vec<Arc<dyn Engine>> {
        vec![subjects.one, subjects.many, Arc::new(subjects.fused)]
    };
    match name {
        "cpu" => Ok(of(Subjects::cpu())),
        "reference" => Ok(vec![expanding(Arc::new(Reference::new()))]),
        #[cfg(feature = "wgpu")]
        "wgpu" => kiln_wgpu::shared(kiln_wgpu::WgpuDevice::Default, kiln_wgpu::Api::Auto)
            .map(|engine| of(Subjects::device(engine)))
            .map_err(|error| error.to_string()),
        #[cfg(feature = "cuda")]
        "cuda" => {
            kiln_cuda::shared(0).map(|engine| of(Subjects::device(engine))).map_err(|error| error.to_string())
        }
        #[cfg(any(feature = "cuda", feature = "wgpu"))]
        "dry" => Ok(of(Subjects::device(Arc::new(dry())))),
        _ => Err(format!(
            "no engine is called `{name}` in a campaign of raw ops\n  hint: the engines are cpu and reference, and wgpu, cuda and dry in builds with their features"
        )),
    }
}

/// The host's part of the CUDA engine: its kernels are neither compiled nor run.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn dry() -> kiln_gpu::Gpu<kiln_gpu::DryDriver> {
    let driver = kiln_gpu::DryDriver::new(kiln_gpu::DeviceInfo::absent("sm_90a"), |_| Ok(Vec::new()));
    kiln_gpu::Gpu::new(driver.with_libraries(), kiln_ir::MemoryConfig::default())
}
