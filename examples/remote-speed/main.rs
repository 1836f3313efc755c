//! Measures training steps over a server on the loopback address beside local steps on the same backend.
//!
//! ```sh
//! cargo run --release --example remote-speed --features remote -- --model mnist
//! cargo run --release --example remote-speed --features remote,cuda -- --model gpt2 --backend cuda --mixed
//! ```
//!
//! Blocks of local and of remote steps alternate. The figure is the median, over pairs of blocks, of the local time divided by
//! the remote time: 100 % is the speed of the local backend. Data is generated, so that the program needs no files.

mod gpt;
mod options;
#[path = "../mnist/model.rs"]
mod picture;
mod training;

use clap::Parser;
use kiln::prelude::*;
use kiln::server::{Quotas, Server, ServerOptions};
use options::{BackendName, Options};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use training::Step;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    kiln_examples::exit_on_closed_pipe();
    let options = Options::parse();
    let done = match options.backend {
        BackendName::Cpu => run::<Cpu>(&options, Default::default()),
        BackendName::Flex => run::<Flex>(&options, Default::default()),
        #[cfg(feature = "cuda")]
        BackendName::Cuda => kiln::CudaDevice::open(0)
            .map_err(Into::into)
            .and_then(|device| run::<kiln::Cuda>(&options, device)),
        #[cfg(not(feature = "cuda"))]
        BackendName::Cuda => Err("`--backend cuda` needs a build with `--features cuda`".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves the backend, or compares it with a server of it.
fn run<L: Backend>(options: &Options, device: L::Device) -> Result<()> {
    if options.serve {
        let server = serve::<L>(&device)?;
        println!("{}", server.url());
        return Ok(server.run()?);
    }
    let server =
        if options.separate { Serving::other_process()? } else { Serving::Here(serve::<L>(&device)?) };
    let remote = RemoteDevice::new(server.url()?);
    remote.open()?;
    if options.mixed {
        compare::<Autodiff<Autocast<L>>, Autodiff<Autocast<RemoteBackend>>>(options, &device, &remote)
    } else {
        compare::<Autodiff<L>, Autodiff<RemoteBackend>>(options, &device, &remote)
    }
}

fn serve<L: Backend>(device: &L::Device) -> Result<Server> {
    // The results of a batch that the client holds count, activations included.
    let quotas = Quotas { memory_bytes: 1 << 40, ..Quotas::default() };
    Ok(Server::bind::<L>(device, ServerOptions::new().with_quotas(quotas).with_memory(1 << 40))?)
}

/// The server of the measurement.
enum Serving {
    Here(Server),
    There(Child, String),
}

impl Serving {
    /// A server in a process of its own, with the options of this one.
    fn other_process() -> Result<Serving> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1)).arg("--serve").stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let output = child.stdout.take().ok_or("the server has no output")?;
        let mut url = String::new();
        BufReader::new(output).read_line(&mut url)?;
        Ok(Serving::There(child, url.trim().to_string()))
    }

    fn url(&self) -> Result<String> {
        match self {
            Serving::Here(server) => Ok(server.url()),
            Serving::There(_, url) if url.is_empty() => Err("the server did not start".into()),
            Serving::There(_, url) => Ok(url.clone()),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Serving::There(child, _) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn compare<L, R>(options: &Options, local: &L::Device, remote: &RemoteDevice) -> Result<()>
where
    L: AutodiffBackend,
    R: AutodiffBackend<Device = RemoteDevice>,
{
    let mut here = training::prepare::<L>(options, local);
    let mut there = training::prepare::<R>(options, remote);
    let warm: [Vec<f32>; 2] = [losses(&mut here, options)?, losses(&mut there, options)?];
    let before = counts(remote);
    let mut pairs = Vec::new();
    for number in 0..options.blocks {
        // Each goes first as often as the other.
        let first = block(if number % 2 == 0 { &mut here } else { &mut there }, options)?;
        let second = block(if number % 2 == 0 { &mut there } else { &mut here }, options)?;
        pairs.push(if number % 2 == 0 { [first, second] } else { [second, first] });
    }
    let steps = options.blocks * options.steps;
    report(options, &pairs, &same(&warm), &per_step(before, counts(remote), steps));
    Ok(())
}

/// The losses of the warm-up.
fn losses(step: &mut Step, options: &Options) -> Result<Vec<f32>> {
    (0..options.warm_up).map(|_| step(true)?.ok_or_else(|| "no loss was read".into())).collect()
}

/// The time of a block of steps.
fn block(step: &mut Step, options: &Options) -> Result<Duration> {
    let start = Instant::now();
    for number in 1..=options.steps {
        step(number % options.read_every.max(1) == 0 || number == options.steps)?;
    }
    Ok(start.elapsed())
}

/// Whether the losses are equal, and the first that are not.
fn same([local, remote]: &[Vec<f32>; 2]) -> String {
    let mut pairs = local.iter().zip(remote).enumerate();
    match pairs.find(|(_, (local, remote))| local.to_bits() != remote.to_bits()) {
        None => "equal bit for bit".into(),
        Some((step, (local, remote))) => format!("different from step {step} on, {local} and {remote}"),
    }
}

/// Messages and bytes sent, messages and bytes received, ops, batches and new programs.
fn counts(remote: &RemoteDevice) -> [u64; 7] {
    let of = remote.statistics();
    [
        of.messages_sent,
        of.bytes_sent,
        of.messages_received,
        of.bytes_received,
        of.ops,
        of.batches,
        of.programs,
    ]
}

fn per_step(before: [u64; 7], after: [u64; 7], steps: usize) -> [f64; 7] {
    std::array::from_fn(|place| (after[place] - before[place]) as f64 / steps as f64)
}

fn report(options: &Options, pairs: &[[Duration; 2]], losses: &str, counts: &[f64; 7]) {
    let millis = |place: usize| {
        median(pairs.iter().map(|pair| pair[place].as_secs_f64() * 1e3 / options.steps as f64).collect())
    };
    let ratios: Vec<f64> =
        pairs.iter().map(|[local, remote]| 100.0 * local.as_secs_f64() / remote.as_secs_f64()).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    let [sent, bytes_sent, received, bytes_received, ops, batches, programs] = counts;
    println!("{options}");
    println!("losses of {} steps: {losses}", options.warm_up);
    println!("step: local {:.2} ms, remote {:.2} ms", millis(0), millis(1));
    println!(
        "speed of remote: {:.1} % of local (median of {}; {least:.1} to {most:.1})",
        median(ratios),
        pairs.len()
    );
    println!(
        "a step sends {sent:.1} messages of {bytes_sent:.0} bytes and receives {received:.1} of {bytes_received:.0}"
    );
    println!("a step has {ops:.1} ops in {batches:.1} batches, of {programs:.2} new programs");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}
