//! The cost of changing shapes: the time of a training step when each step has another batch length.
//!
//! `bench_shapes` prints a table; `bench_shapes --json` one line for each figure:
//! `{"name": "…", "measured": 1.2, "unit": "x", "target": 1.3}`. `--backend NAME` selects `cpu` (the default), `flex`
//! (without fusion plans), or `cuda`, with the feature of that name. `--lengths N` is the number of lengths of the largest
//! set. Run it in release mode.
//!
//! Repeated lengths are even numbers spread over one range, so that sets of 1, 16 and N lengths do the same work on
//! average. New lengths are the odd numbers between them, each used once. All sets take turns in one process.

#[cfg(feature = "cuda")]
use kiln_backends::Cuda;
use kiln_backends::{Cpu, Flex};
use kiln_nn::{GradientsParams, Linear, LinearConfig};
use kiln_optim::{AdamConfig, Optimizer};
use kiln_suite::figure::{Figure, median};
use kiln_tensor::{Autodiff, Backend, Distribution, Int, Tensor, activation, loss};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "usage: bench_shapes [--json] [--backend cpu|flex|cuda] [--lengths N]\n\n  --json     one line of \
    JSON for each figure\n  --backend  where the steps run. Default: cpu\n  --lengths  the number of lengths of the \
    largest set, at least 100. Default: 100";

/// Number of layers of the network, and their width.
const LAYERS: usize = 41;
const WIDTH: usize = 64;
const LEARNING_RATE: f64 = 1e-3;

/// Repeated lengths are `FIRST + 2 i` for `i` from 0 to the number of lengths, by default the least.
const FIRST: usize = 8;
const MIN_LENGTHS: usize = 100;

/// Rounds, and steps of each set of lengths per round. The first few steps of a set are not counted: their CPU caches
/// hold data of other sets.
const ROUNDS: usize = 49;
const STEPS: usize = 20;
const COLD: usize = 4;
/// New lengths per round.
const NEW: usize = (MIN_LENGTHS - 1) / ROUNDS;

/// Target for the time of a step with 100 repeated lengths, relative to a step with one length.
const SEEN_TARGET: f64 = 1.3;
/// Target for the time of a step with a new length, relative to a step with one length.
const NEVER_SEEN_TARGET: f64 = 3.0;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut words = words.iter().map(String::as_str).peekable();
    let (mut json, mut backend, mut lengths) = (false, "cpu", MIN_LENGTHS);
    while let Some(word) = words.next() {
        match (word, words.peek()) {
            ("--json", _) => json = true,
            ("--backend", Some(name)) => {
                backend = name;
                words.next();
            }
            ("--lengths", Some(number)) => {
                lengths = match number.parse() {
                    Ok(number @ MIN_LENGTHS..) => number,
                    Ok(_) | Err(_) => return misused(&format!("--lengths: `{number}`")),
                };
                words.next();
            }
            ("--help" | "-h", _) => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            _ => return misused(&format!("unknown argument: {word}")),
        }
    }
    let figures = match backend {
        "cpu" => figures::<Cpu>(lengths),
        "flex" => figures::<Flex>(lengths),
        #[cfg(feature = "cuda")]
        "cuda" => figures::<Cuda>(lengths),
        _ => return misused(&format!("--backend: `{backend}` is none that was built")),
    };
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: run with `--release` for figures that count");
    }
    print!("{}", Figure::lines(&figures, json));
    ExitCode::SUCCESS
}

fn misused(problem: &str) -> ExitCode {
    eprintln!("{problem}\n{USAGE}");
    ExitCode::FAILURE
}

fn figures<B: Backend>(lengths: usize) -> Vec<Figure> {
    let mut training = Training::<B, _>::new(AdamConfig::new().init(), lengths);
    let seen: Vec<usize> = (0..lengths).map(|i| FIRST + 2 * i).collect();
    let sixteen: Vec<usize> = (0..16).map(|i| seen[2 + lengths / 16 * i]).collect();
    let one = [seen[lengths / 2]];
    // A plan is predicted after several equal recordings.
    for _ in 0..4 {
        for &length in &seen {
            training.step(length);
        }
    }
    let mut never_seen = seen.iter().map(|length| length + 1);
    let mut sets: [Box<dyn Iterator<Item = usize>>; 3] = [
        Box::new(one.iter().copied().cycle()),
        Box::new(sixteen.iter().copied().cycle()),
        Box::new(seen.iter().copied().cycle()),
    ];
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        for (set, times) in sets.iter_mut().zip(&mut times) {
            let measured: Vec<f64> =
                set.by_ref().take(COLD + STEPS).map(|length| training.step(length)).collect();
            times.extend(&measured[COLD..]);
        }
        times[3].extend(never_seen.by_ref().take(NEW).map(|length| training.step(length)));
    }
    let [one, sixteen, all, never_seen] = times.map(median);
    let ms = |name, measured| Figure { name, measured, unit: "ms", target: None };
    let ratio =
        |name, time: f64, target| Figure { name, measured: time / one, unit: "x", target: Some(target) };
    let count = |name, measured, unit| Figure { name, measured, unit, target: None };
    let mut figures = vec![
        count("lengths of the largest set", lengths as f64, ""),
        ms("step of a 41-layer MLP, 1 length", one),
        ms("the same, 16 lengths in turn", sixteen),
        ms("the same, all lengths in turn", all),
        ms("the same, lengths never seen", never_seen),
        ratio("16 lengths in turn, by 1 length", sixteen, SEEN_TARGET),
        ratio("all lengths in turn, by 1 length", all, SEEN_TARGET),
        ratio("lengths never seen, by 1 length", never_seen, NEVER_SEEN_TARGET),
    ];
    figures.extend(resident_peak().map(|peak| count("peak of resident memory", peak, "MiB")));
    figures
}

/// The peak of this process's resident memory in MiB, where the system is Linux.
fn resident_peak() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim_end_matches("kB").trim().parse::<f64>().ok().map(|kibibytes| kibibytes / 1024.0)
}

struct Training<B: Backend, O> {
    model: Option<Vec<Linear<Autodiff<B>>>>,
    optimizer: O,
    inputs: Tensor<B, 2>,
    classes: Tensor<B, 1, Int>,
    device: B::Device,
}

impl<B: Backend, O: Optimizer> Training<B, O> {
    fn new(optimizer: O, lengths: usize) -> Self {
        let device = B::Device::default();
        let layer = |_| LinearConfig::new(WIDTH, WIDTH).init(&device);
        let most = FIRST + 2 * lengths;
        let classes: Vec<i32> = (0..most as i32).map(|i| i % WIDTH as i32).collect();
        Training {
            model: Some((0..LAYERS).map(layer).collect()),
            optimizer,
            inputs: Tensor::random([most, WIDTH], Distribution::Normal(0.0, 1.0), &device),
            classes: Tensor::from_data(classes, &device),
            device,
        }
    }

    /// The time of a step with that length, in milliseconds.
    fn step(&mut self, length: usize) -> f64 {
        let x = Tensor::from_inner(self.inputs.clone().narrow(0, 0, length));
        let classes = Tensor::from_inner(self.classes.clone().narrow(0, 0, length));
        let started = Instant::now();
        let model = self.model.take().expect("the step before ended");
        let (last, hidden) = model.split_last().expect("there are layers");
        let y = hidden.iter().fold(x, |x, layer| activation::relu(layer.forward(x)));
        let loss = loss::cross_entropy(last.forward(y), classes, &Default::default());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        // Dropping the tape releases the parameters, so that they are updated in place.
        let loss = loss.inner();
        self.model = Some(self.optimizer.step(LEARNING_RATE, model, gradients));
        let loss = loss.into_scalar::<f64>();
        B::sync(&self.device).unwrap_or_else(|error| panic!("{error}"));
        assert!(loss.is_finite(), "the loss is {loss}");
        started.elapsed().as_secs_f64() * 1e3
    }
}
