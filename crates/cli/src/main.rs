//! The command `kiln`.
//!
//! `kiln dump STAGE FILE` prints the IR of a program at one stage: ops, fusion plan, the kernel of each region, or the
//! generated GPU source. The file contains a program in the text form of `kiln-ir`, as in `filetests/`; `-` reads
//! standard input.
//!
//! ```text
//! kiln dump plan filetests/fuse/softmax.ir
//! kiln dump plan --machine gpu filetests/fuse/softmax.ir
//! kiln dump cuda --region 0 filetests/fuse/softmax.ir
//! ```
//!
//! `kiln devices` lists the devices of this machine, and why others are missing.
//!
//! `kiln runs` lists, shows and compares training runs, and writes a report with curves:
//!
//! ```text
//! kiln runs list
//! kiln runs report baseline wide -o report.html
//! ```
//!
//! `kiln chat` talks to a language model:
//!
//! ```text
//! kiln chat SmolLM2-135M-Instruct.gguf
//! kiln chat HuggingFaceTB/SmolLM2-135M-Instruct --prompt "Name three rivers."
//! ```
//!
//! `kiln download` downloads a model of the Hugging Face hub (feature `download`):
//!
//! ```text
//! kiln download HuggingFaceTB/SmolLM2-135M-Instruct
//! kiln download QuantFactory/SmolLM2-135M-GGUF "*.Q4_K_M.gguf"
//! ```
//!
//! `kiln weights` shows, compares, converts, quantises and evaluates files of weights:
//!
//! ```text
//! kiln weights info model.gguf
//! kiln weights convert pytorch_model.bin model.safetensors --dtype bf16
//! kiln weights quantize SmolLM2 smollm2.gguf --format q4_1 --perplexity text.txt
//! ```
//!
//! `kiln server` serves a backend to programs on other machines, which name it by `RemoteDevice::new("ws://host:3000")`:
//!
//! ```text
//! kiln server --backend cpu --port 3000
//! ```

#![forbid(unsafe_code)]

#[cfg(feature = "chat")]
mod chat;
mod devices;
#[cfg(feature = "download")]
mod download;
mod dump;
#[cfg(feature = "runs")]
mod runs;
#[cfg(feature = "server")]
mod server;
#[cfg(any(feature = "chat", feature = "runs", feature = "weights"))]
mod table;
#[cfg(feature = "weights")]
mod weights;

use clap::{Parser, Subcommand};
use dump::{Stage, Target};
use std::io::{Read, Write};
use std::process::ExitCode;

/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// Tools for Kiln programs.
#[derive(Debug, Parser)]
#[command(name = "kiln", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the IR of a program at one stage.
    Dump {
        /// The stage to print.
        #[arg(value_enum)]
        stage: Stage,
        /// A program as text; `-` reads standard input.
        file: String,
        /// The machine to plan for.
        #[arg(long, value_enum, default_value_t = Target::Cpu)]
        machine: Target,
        /// Only this region of the plan, counted from 0.
        #[arg(long, value_name = "N")]
        region: Option<usize>,
    },
    /// List the devices of this machine, and why others are missing.
    ///
    /// Servers are those at the addresses in KILN_REMOTE, separated by commas.
    Devices,
    /// Talk to a language model.
    ///
    /// Settings without an option are those of `generation_config.json` beside the model, as in `transformers`. A file
    /// that omits `do_sample`, or is absent, leaves the others at the defaults below; /help lists all in force.
    #[cfg(feature = "chat")]
    Chat(chat::Options),
    /// Download a model of the Hugging Face hub.
    #[cfg(feature = "download")]
    Download(download::Options),
    /// List, show and compare training runs.
    #[cfg(feature = "runs")]
    Runs(runs::Options),
    /// Serve a backend over the network.
    #[cfg(feature = "server")]
    Server(server::Options),
    /// Show, compare, convert, quantise and evaluate files of weights.
    #[cfg(feature = "weights")]
    Weights(weights::Options),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Dump { stage, file, machine, region } => read(&file)
            .and_then(|text| {
                let program = dump::program(&text).map_err(|error| format!("{file}: {error}"))?;
                dump::dump(&program, stage, machine, region)
            })
            .and_then(|text| print(&text)),
        Command::Devices => print(&devices::list()),
        #[cfg(feature = "chat")]
        Command::Chat(options) => chat::run(options),
        #[cfg(feature = "download")]
        Command::Download(options) => download::run(&options).and_then(|text| print(&text)),
        #[cfg(feature = "runs")]
        Command::Runs(options) => runs::run(options).and_then(|text| print(&text)),
        #[cfg(feature = "server")]
        Command::Server(options) => server::run(options),
        #[cfg(feature = "weights")]
        Command::Weights(options) => match weights::run(options) {
            Ok(weights::Outcome { text, differs: false }) => print(&text),
            // As in `diff`: status 1 for differences.
            Ok(weights::Outcome { text, differs: true }) => match print(&text) {
                Ok(()) => return ExitCode::FAILURE,
                Err(message) => Err(message),
            },
            Err(message) => Err(message),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("kiln: {message}");
            ExitCode::FAILURE
        }
    }
}

fn read(file: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| {
        let reason = kiln_ir::read_error(std::path::Path::new(file), &error, "a program as text, or `-`");
        format!("cannot read {file}: {reason}")
    };
    let mut text = String::new();
    let length = if file == "-" {
        std::io::stdin().lock().take(MAX_BYTES + 1).read_to_string(&mut text)
    } else {
        std::fs::File::open(file).map_err(failed)?.take(MAX_BYTES + 1).read_to_string(&mut text)
    };
    if length.map_err(failed)? as u64 > MAX_BYTES {
        return Err(format!("{file} is longer than {MAX_BYTES} bytes"));
    }
    Ok(text)
}

/// Prints to standard output. A reader that closes the pipe early, such as `head`, is not an error.
fn print(text: &str) -> Result<(), String> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to the standard output: {error}"))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
