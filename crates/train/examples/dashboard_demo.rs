//! Feeds the automatic renderer with the records of a synthetic run, without a model. `cargo xtask dashboard` runs it in
//! a terminal.
//!
//! ```console
//! cargo run -p kiln-train --features dashboard --example dashboard_demo -- --epochs 3 --step-ms 20
//! ```
//!
//! Options: `--epochs N` (5), `--batches N` (50), `--step-ms N` (20), `--panic-at STEP`, `--exit-at STEP`,
//! `--hang-at STEP` (the step never ends).

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use kiln_train::renderer::{self, SystemUse};
use kiln_train::{
    Level, MetricDescription, MetricValue, PassProgress, Record, Renderer, RunDescription, Split, StepRecord,
    StopReason, ValuesRecord,
};

/// The exit code of `--exit-at`.
const EXIT: i32 = 7;

struct Options {
    epochs: u64,
    batches: u64,
    step_ms: u64,
    panic_at: Option<u64>,
    exit_at: Option<u64>,
    hang_at: Option<u64>,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("dashboard_demo: {problem}");
            return ExitCode::FAILURE;
        }
    };
    let mut renderer = open();
    let mut showing = Duration::ZERO;
    let reason = train(&options, &mut *renderer, &mut showing);
    renderer.close();
    let microseconds = showing.as_secs_f64() * 1e6 / (options.epochs * options.batches).max(1) as f64;
    println!("the demo is over: {reason:?}, {microseconds:.2} us per step in the renderer");
    ExitCode::SUCCESS
}

/// As `renderer::automatic`, with a use of the system that does not depend on the machine.
fn open() -> Box<dyn Renderer> {
    let use_ = SystemUse { cpu: Some(0.42), ..SystemUse::default() };
    renderer::automatic_with(move || use_.clone())
}

fn options() -> Result<Options, String> {
    let mut options =
        Options { epochs: 5, batches: 50, step_ms: 20, panic_at: None, exit_at: None, hang_at: None };
    let mut words = std::env::args().skip(1);
    while let Some(name) = words.next() {
        let value = words.next().and_then(|value| value.parse().ok());
        let value: u64 = value.ok_or_else(|| format!("`{name}` needs a number"))?;
        match name.as_str() {
            "--epochs" => options.epochs = value,
            "--batches" => options.batches = value,
            "--step-ms" => options.step_ms = value,
            "--panic-at" => options.panic_at = Some(value),
            "--exit-at" => options.exit_at = Some(value),
            "--hang-at" => options.hang_at = Some(value),
            other => return Err(format!("unknown option `{other}`")),
        }
    }
    Ok(options)
}

/// Sends the records of a run. Adds the time that the renderer takes in steps.
fn train(options: &Options, renderer: &mut dyn Renderer, showing: &mut Duration) -> StopReason {
    let started = Instant::now();
    let metric = |name: &str, higher_is_better| MetricDescription { name: name.into(), higher_is_better };
    renderer.record(&Record::Start(RunDescription {
        name: "demo".into(),
        task: "synthetic curves".into(),
        epochs: Some(options.epochs),
        batches: Some(options.batches),
        metrics: vec![metric("accuracy", true), metric("perplexity", false)],
        ..RunDescription::default()
    }));
    let text = "the data is synthetic".to_owned();
    renderer.record(&Record::Message { level: Level::Warning, text });
    let mut step = 0;
    let mut reason = StopReason::Finished;
    'run: for epoch in 0..options.epochs {
        let epoch_started = Instant::now();
        for batch in 0..options.batches {
            sleep(Duration::from_millis(options.step_ms));
            trouble(options, step);
            let record = Record::Step(training_step(epoch, step, batch));
            let begun = Instant::now();
            renderer.record(&record);
            let is_stop_requested = renderer.is_stop_requested();
            *showing += begun.elapsed();
            step += 1;
            if is_stop_requested {
                reason = StopReason::Interrupted;
                break 'run;
            }
        }
        renderer.record(&values(Split::Train, epoch, step, 1.0));
        for batch in 1..=5 {
            sleep(Duration::from_millis(options.step_ms));
            let set = "valid".to_owned();
            renderer.record(&Record::Progress(PassProgress { set, epoch, batch, batches: Some(5) }));
        }
        renderer.record(&values(Split::Valid("valid".into()), epoch, step, 1.1));
        renderer.record(&Record::Epoch { epoch, step, duration: epoch_started.elapsed() });
        renderer.record(&Record::Checkpoint { step, folder: format!("runs/demo/{step}") });
    }
    renderer.record(&Record::End { reason, step, duration: started.elapsed() });
    reason
}

/// Ends or blocks the program where the options say so.
fn trouble(options: &Options, step: u64) {
    if options.panic_at == Some(step) {
        panic!("the synthetic step {step} failed");
    }
    if options.exit_at == Some(step) {
        std::process::exit(EXIT);
    }
    while options.hang_at == Some(step) {
        sleep(Duration::from_secs(1));
    }
}

fn training_step(epoch: u64, step: u64, batch: u64) -> StepRecord {
    StepRecord {
        epoch,
        step,
        batch,
        items: 32,
        learning_rates: vec![("adam".into(), 1e-3)],
        values: vec![("loss".into(), loss(step) + 0.05 * (step as f64 * 1.7).sin())],
        skipped: false,
    }
}

fn values(split: Split, epoch: u64, step: u64, factor: f64) -> Record {
    let (loss, accuracy) = (factor * loss(step), 1.0 - factor * loss(step) / 3.0);
    let scalar = |name: &str, value| (name.to_owned(), MetricValue::Scalar(value));
    Record::Values(ValuesRecord {
        split,
        epoch,
        step,
        complete: true,
        values: vec![scalar("loss", loss), scalar("accuracy", accuracy), scalar("perplexity", loss.exp())],
        text: BTreeMap::from([("accuracy".into(), format!("{:.2} %", 100.0 * accuracy))]),
    })
}

/// A falling curve from 2 to 0.3.
fn loss(step: u64) -> f64 {
    0.3 + 1.7 / (1.0 + step as f64 / 40.0)
}
