//! Kills processes that save a checkpoint, at random moments, beside a process that reads it: `cargo xtask kill`.
//!
//! Each checkpoint holds one number everywhere: as its step, in all weights and in all moments of the optimizer. After each kill
//! the checkpoint must be whole, and the last that was reported as saved, or a later one.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kiln_backends::Flex;
use kiln_nn::{GradientsParams, Module, Param};
use kiln_optim::{Optimizer, Sgd, SgdConfig};
use kiln_store::{Checkpoint, TrainingState};
use kiln_tensor::{Autodiff, Backend, Tensor};

type B = Autodiff<Flex>;
type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Names of checkpoints and the numbers of their weights. The optimizer remembers as many, so the second has 100 MiB.
const SIZES: [(&str, usize); 2] = [("small", 1000), ("100 MiB", (100 << 20) / 8)];

const HELP: &str =
    "kill --saves N: kills N processes that save a checkpoint, at random moments (default: 200)";

/// Saves between two reports.
const REPORT: usize = 20;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse().map_err(|error| format!("`{text}`: {error}\n{HELP}"));
    let done = match words[..] {
        ["write", folder, elements] => number(elements).map_err(Box::from).and_then(|n| write(folder, n)),
        ["read", folder, elements] => number(elements).map_err(Box::from).and_then(|n| read(folder, n)),
        [] => kill(200),
        ["--saves", saves] => number(saves).map_err(Box::from).and_then(kill),
        _ => Err(HELP.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kill: {error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Clone, Debug, Module)]
struct Weights<B: Backend> {
    weight: Param<Tensor<B, 1>>,
}

fn weights(number: f32, elements: usize) -> Weights<B> {
    Weights { weight: Param::from_tensor(Tensor::full([elements], number, &Default::default())) }
}

fn optimizer() -> Sgd {
    SgdConfig::new().with_momentum(0.9).init()
}

/// Saves the checkpoint of a number. Calls `saving` when all is computed and the files come next.
fn save(folder: &Path, number: u64, elements: usize, saving: impl FnOnce(u64)) -> Result<()> {
    let net = weights(number as f32, elements);
    let mut optimizer = optimizer();
    // After its first step the optimizer remembers the gradient, which is the number.
    let loss = net.weight.val().mul_scalar(number as f32).sum();
    let gradients = GradientsParams::from_grads(loss.backward(), &net);
    let _ = optimizer.step(0.0, net.clone(), gradients);
    let state = TrainingState::of(&net).at(0, number);
    saving(number);
    Checkpoint::save(folder, &net, Some(&optimizer), &state)?;
    Ok(())
}

/// The number of a checkpoint, which everything in it must be.
fn load(folder: &Path, elements: usize) -> Result<u64> {
    let checkpoint = Checkpoint::open(folder)?;
    let number = checkpoint.state().step;
    let net = checkpoint.load_module(weights(-1.0, elements))?;
    let mut optimizer = optimizer();
    checkpoint.load_optimizer(&mut optimizer, &net)?;
    let mut tensors: BTreeMap<String, _> = optimizer.state(&net)?.into_tensors()?.into_iter().collect();
    tensors.insert("weight".to_owned(), net.weight.val().into_data());
    for (name, data) in &tensors {
        if data.shape().num_elements() == elements
            && let Some(other) = data.to_vec::<f32>().into_iter().find(|&value| value != number as f32)
        {
            return Err(format!("mixed: step {number} with {other} in `{name}`").into());
        }
    }
    match tensors.values().filter(|data| data.shape().num_elements() == elements).count() {
        2 => Ok(number),
        other => Err(format!("{other} tensors instead of weights and momentum").into()),
    }
}

/// Saves until it is killed.
fn write(folder: &str, elements: usize) -> Result<()> {
    let folder = Path::new(folder);
    let next = load(folder, elements)? + 1;
    // Single precision holds these numbers exactly.
    for number in next..1 << 24 {
        save(folder, number, elements, |number| println!("saving {number}"))?;
        println!("saved {number}");
    }
    Ok(())
}

/// Reads until standard input ends. Prints each failure, and at the end how often it read.
fn read(folder: &str, elements: usize) -> Result<()> {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        IS_DONE.store(true, Ordering::Relaxed);
    });
    let (mut opened, mut newest) = (0, 0);
    while !IS_DONE.load(Ordering::Relaxed) {
        match load(Path::new(folder), elements) {
            Ok(number) if number < newest => println!("mixed: step {number} after {newest}"),
            Ok(number) => newest = number,
            Err(error) => println!("{error}"),
        }
        opened += 1;
    }
    println!("opened {opened}");
    Ok(())
}

/// Counts of failures after some kills.
#[derive(Default)]
struct Failures {
    /// Kills after which the checkpoint could not be opened, or was an old one.
    kills: usize,
    /// Checkpoints of several saves.
    mixed: usize,
    /// Opens beside the writers that failed.
    opens: usize,
}

impl Failures {
    fn see(&mut self, size: &str, problem: &str) {
        println!("{size}: {problem}");
        if problem.starts_with("mixed") {
            self.mixed += 1;
        }
    }
}

fn kill(saves: usize) -> Result<()> {
    let mut failures = Failures::default();
    for (index, (size, elements)) in SIZES.into_iter().enumerate() {
        let kills = (saves + SIZES.len() - 1 - index) / SIZES.len();
        kill_size(size, elements, kills, &mut failures)?;
    }
    println!("{} kills survived, {} mixed", saves - failures.kills, failures.mixed);
    match failures.kills + failures.mixed + failures.opens {
        0 => Ok(()),
        _ => {
            Err(format!("{} kills lost a checkpoint, {} opens failed", failures.kills, failures.opens).into())
        }
    }
}

fn kill_size(size: &str, elements: usize, kills: usize, failures: &mut Failures) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let folder = scratch.path().join("run");
    save(&folder, 0, elements, |_| ())?;
    let mut reader = child("read", &folder, elements)?;
    let reports = BufReader::new(reader.stdout.take().ok_or("the reader has no output")?);
    let mut leftovers = 0;
    for done in 1..=kills {
        let (last_saved, started) = run_and_kill(&folder, elements)?;
        leftovers += fs::read_dir(scratch.path())?.count() - 1;
        match load(&folder, elements) {
            Ok(number) if (last_saved..=started).contains(&number) => {}
            Ok(number) => {
                failures.kills += 1;
                failures.see(size, &format!("save {number} after {last_saved} was reported as saved"));
            }
            Err(error) => {
                failures.kills += 1;
                failures.see(size, &error.to_string());
            }
        }
        if done % REPORT == 0 || done == kills {
            println!("{size}: {done} of {kills} writers killed, {started} saves");
        }
    }
    // The reader goes on until its input ends.
    drop(reader.stdin.take());
    for line in reports.lines() {
        let line = line?;
        if line.starts_with("opened") {
            println!("{size}: the reader {line} checkpoints");
            continue;
        }
        failures.opens += 1;
        failures.see(size, &format!("{line} (the reader)"));
    }
    if !reader.wait()?.success() {
        return Err("the reader failed".into());
    }
    save(&folder, 1 << 24, elements, |_| ())?;
    let names =
        fs::read_dir(scratch.path())?.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
    // Elsewhere the file of the lock stays.
    if cfg!(unix) && names != ["run"] {
        return Err(format!("{size}: left after the last save: {names:?}").into());
    }
    println!("{size}: {leftovers} leftovers beside the checkpoint after kills, none after the last save");
    Ok(())
}

/// Kills a writer within a save or shortly after it. The last number that it saved, and the last that it started to save.
fn run_and_kill(folder: &Path, elements: usize) -> Result<(u64, u64)> {
    let mut writer = child("write", folder, elements)?;
    let mut lines = BufReader::new(writer.stdout.take().ok_or("the writer has no output")?);
    // One save tells how long the next takes.
    let first = number_of(&mut lines, "saving")?;
    let started = Instant::now();
    number_of(&mut lines, "saved")?;
    let duration = started.elapsed();
    number_of(&mut lines, "saving")?;
    thread::sleep(duration.mul_f64(1.2 * random()) + Duration::from_micros(1));
    writer.kill()?;
    writer.wait()?;
    // The output of the writer in the meantime.
    let (mut last_saved, mut last_started) = (first, first + 1);
    for line in lines.lines() {
        let line = line?;
        match line.split_once(' ') {
            Some(("saved", number)) => last_saved = number.parse()?,
            Some(("saving", number)) => last_started = number.parse()?,
            Some(_) | None => return Err(format!("the writer printed `{line}`").into()),
        }
    }
    Ok((last_saved, last_started))
}

fn number_of(lines: &mut BufReader<ChildStdout>, word: &str) -> Result<u64> {
    let mut line = String::new();
    lines.read_line(&mut line)?;
    match line.trim_end().split_once(' ') {
        Some((first, number)) if first == word => Ok(number.parse()?),
        Some(_) | None => Err(format!("the writer printed `{}`, not `{word}`", line.trim_end()).into()),
    }
}

/// This program, with another part to play. It ends at the end of its standard input, or is killed.
fn child(part: &str, folder: &Path, elements: usize) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(part).arg(folder).arg(elements.to_string());
    Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

/// A random number from 0 to 1.
fn random() -> f64 {
    let bits = RandomState::new().build_hasher().finish();
    (bits >> 11) as f64 / (1u64 << 53) as f64
}
