//! Kills training runs at random moments of steps and checkpoint writes, and resumes them: `cargo xtask kill --runs N`.
//!
//! Each run is killed up to three times. Every resume must open a complete checkpoint, and the end must be bit-identical to
//! that of a run that was never killed: weights, statistics of batch normalisation, losses, and the scores of each epoch.
//! Runs are on the default backend, whose fused regions must not depend on when a checkpoint is written.

use std::error::Error;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use kiln_backends::Cpu;
use kiln_nn::{BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig, Module};
use kiln_optim::AdamConfig;
use kiln_optim::lr_scheduler::Cosine;
use kiln_store::Checkpoint;
use kiln_tensor::{Autodiff, Backend, Distribution, Int, Tensor, activation, loss};
use kiln_train::loader::TensorLoader;
use kiln_train::{Accuracy, Interval, KeepLast, Learner, StepOutput, Supervised};

type B = Autodiff<Cpu>;
type Batch = (Tensor<B, 2>, Tensor<B, 1, Int>);
type Result<T> = std::result::Result<T, Box<dyn Error>>;

const HELP: &str = "kill_runs --runs N: kills N training runs at random moments (default: 100)";

/// The number of kills of one run.
const KILLS: usize = 3;
/// The longest duration of an attempt: one that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["train", folder] => train(Path::new(folder)),
        [] => kill(100),
        ["--runs", runs] => match runs.parse() {
            Ok(runs) => kill(runs),
            Err(error) => Err(format!("`{runs}`: {error}\n{HELP}").into()),
        },
        _ => Err(HELP.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kill_runs: {error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Clone, Debug, Module)]
struct Net<B: Backend> {
    first: Linear<B>,
    norm: BatchNorm<B>,
    dropout: Dropout,
    second: Linear<B>,
}

fn step(net: &Net<B>, (points, classes): Batch) -> StepOutput<B> {
    let hidden = net.norm.forward(net.first.forward(points));
    let hidden = net.dropout.forward(activation::relu(hidden));
    let logits = net.second.forward(hidden);
    let loss = loss::cross_entropy(logits.clone(), classes.clone(), &Default::default());
    StepOutput::classification(loss, logits, classes)
}

/// Trains from the checkpoint in a folder, if there is one. At the end it writes weights and scores.
fn train(folder: &Path) -> Result<()> {
    let device = Default::default();
    B::seed(&device, 7);
    let points = Tensor::<B, 2>::random([256, 8], Distribution::Normal(0.0, 1.0), &device);
    let classes = points.clone().argmax(1).reshape([256]);
    let net = Net {
        first: LinearConfig::new(8, 64).init(&device),
        norm: BatchNormConfig::new(64).init(&device),
        dropout: DropoutConfig::new(0.2).init(),
        second: LinearConfig::new(64, 8).init(&device),
    };
    let train = TensorLoader::new((points.clone(), classes.clone())).batch_size(16).shuffle(5);
    let valid = TensorLoader::new((points, classes)).batch_size(64);
    let checkpoint = folder.join("checkpoint");
    let log = folder.join("epochs");
    let schedule = Cosine::new(0.01, 0.0, 128)?;
    let task = Supervised::new(net, AdamConfig::new().init(), schedule, step);
    let mut learner = Learner::new(task)
        .epochs(8)
        .metric(Accuracy::new())
        .metric(Accuracy::top(2))
        .keep_last_of(KeepLast::new(&checkpoint).every(Interval::Steps(3)))
        // Kills should also hit the steps.
        .on_step(|_| thread::sleep(Duration::from_millis(2)))
        .on_epoch(move |report, _| {
            let Ok(mut lines) = read_epochs(&log) else { return };
            // A resumed run may repeat an epoch that was reported before the kill.
            lines.retain(|(epoch, _)| *epoch < report.epoch);
            lines.push((report.epoch, format!("{:?} {:?}", report.train, report.valid)));
            let text: String = lines.iter().map(|(epoch, scores)| format!("{epoch}\t{scores}\n")).collect();
            let partial = log.with_extension("partial");
            if fs::write(&partial, text).is_ok() {
                let _ = fs::rename(&partial, &log);
            }
        })
        .silent();
    if checkpoint.exists() {
        learner = learner.resume(&Checkpoint::open(&checkpoint)?)?;
    }
    learner.fit(&train, &valid)?;
    let mut weights = String::new();
    for (name, parameter) in learner.into_task().into_model().named_parameters() {
        weights += &format!("{name} {:?}\n", parameter.value.to_data()?.bytes());
    }
    fs::write(folder.join("weights"), weights)?;
    Ok(())
}

/// The epochs that were reported, with their scores.
fn read_epochs(path: &Path) -> std::io::Result<Vec<(u64, String)>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    let parse = |line: &str| {
        let (epoch, scores) = line.split_once('\t')?;
        Some((epoch.parse().ok()?, scores.to_owned()))
    };
    Ok(text.lines().filter_map(parse).collect())
}

/// Kills runs and compares their ends with that of a run that was never killed.
fn kill(runs: usize) -> Result<()> {
    let root = tempfile::tempdir()?;
    let whole = root.path().join("whole");
    fs::create_dir(&whole)?;
    let started = Instant::now();
    if !attempt(&whole, None)? {
        return Err("the run without kills failed".into());
    }
    let duration = started.elapsed();
    let expected = (fs::read_to_string(whole.join("weights"))?, fs::read_to_string(whole.join("epochs"))?);
    let (mut survived, mut identical, mut kills) = (0, 0, 0);
    for run in 0..runs {
        let folder = root.path().join(format!("run-{run}"));
        fs::create_dir(&folder)?;
        let mut is_done = false;
        for _ in 0..KILLS {
            let after = duration.mul_f64(random_fraction());
            is_done = attempt(&folder, Some(after))?;
            if is_done {
                break;
            }
            kills += 1;
            if folder.join("checkpoint").exists() {
                Checkpoint::open(folder.join("checkpoint"))?;
            }
        }
        is_done = is_done || attempt(&folder, None)?;
        survived += usize::from(is_done);
        let end = (fs::read_to_string(folder.join("weights"))?, fs::read_to_string(folder.join("epochs"))?);
        if end == expected {
            identical += 1;
        } else {
            println!("run {run} ends otherwise");
        }
        fs::remove_dir_all(&folder)?;
    }
    println!("{kills} kills in {runs} runs");
    println!("{survived} kills survived, {identical} bit-identical");
    if survived == runs && identical == runs { Ok(()) } else { Err("a run was lost or differs".into()) }
}

/// Runs training in a process, and kills it after a duration. Returns whether it ended by itself with success.
fn attempt(folder: &Path, kill_after: Option<Duration>) -> Result<bool> {
    let program = std::env::current_exe()?;
    let mut child =
        Command::new(program).arg("train").arg(folder).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(true) } else { Err(format!("a run failed: {status}").into()) };
        }
        if kill_after.is_some_and(|after| started.elapsed() >= after) {
            // SIGKILL on Unix.
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        if started.elapsed() > PATIENCE {
            child.kill()?;
            return Err(format!("a run takes longer than {} s", PATIENCE.as_secs()).into());
        }
        thread::sleep(Duration::from_micros(200));
    }
}

/// A random number from 0 to 1.
fn random_fraction() -> f64 {
    RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64
}
