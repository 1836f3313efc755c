//! Runs a campaign: `cargo xtask fuzz`.

#![forbid(unsafe_code)]

use kiln_fuzz::campaign::{Options, run};
use kiln_fuzz::check::{Subjects, check};
use kiln_fuzz::generate::{Cubed, NOT_GENERATED, trial};
use kiln_fuzz::{Trial, raw};
use kiln_ir::OpKind;
use std::process::ExitCode;

const HELP: &str = "\
kiln-fuzz [OPTIONS]: random programs, run in ways that must agree

  --programs N   how many (default: 2000)
  --seed S       determines them (default: 1)
  --first N      the number of the first (default: 0)
  --threads T    how many share the work (default: as many as the machine runs at once)
  --only OP      begin each program with this op, by the name of its kind: MatMul, Conv, ...
  --engine NAME  what is compared with the reference: cpu, router (over the CPU engine alone and fused, with operands
                 spread over both), or remote, candle, libtorch, cuda or wgpu in a build with that feature (default: cpu);
                 webgpu is wgpu with the limits and features of browsers;
                 nvrtc needs that feature but no GPU: only whether the kernels compile is checked, and how long it takes
  --ahead N      on a GPU, compile the kernels of so many programs together before they run; 0 compiles each when it is
                 needed (default: 32)
  --texts N      damaged texts parsed for each program (default: 2)
  --failures N   stop after so many mismatches (default: 10)
  --shrink N     changes tried to make each failing program smaller (default: 3000)
  --print        print the programs as filetests instead of running them
  --file FILE    check this file of filetests/run instead

  --raw          instead: raw ops with huge and empty sizes and hostile attributes, as untrusted clients may send them to
                 a server. Each must return a result or an error, soon and in bounded memory. Takes --seed, --first,
                 --failures, --engine (cpu, which is also run behind fusion, reference, wgpu, cuda, or dry: the host's part
                 of CUDA, without a GPU) and:
  --seconds N    how long (default: 20); with --programs, so many programs
  --mebibytes N  the memory of the process that runs them (default: 4096); 0 limits tensors alone, to 1 GiB
  --sanitizer    with `cargo xtask fuzz`: in a build with AddressSanitizer
";

fn main() -> ExitCode {
    match parsed().and_then(run_action) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("kiln-fuzz: {message}");
            ExitCode::FAILURE
        }
    }
}

enum Action {
    Help,
    Run(Options, Tested),
    Print(Options),
    File(String, Tested),
    Raw(raw::Campaign),
    /// The process in which a campaign runs its programs.
    RawChild(raw::Campaign),
}

/// The engine under test.
#[derive(Clone, Copy)]
enum Tested {
    Cpu,
    Router,
    /// A client and a server over the loopback address.
    #[cfg(feature = "remote")]
    Remote,
    #[cfg(feature = "candle")]
    Candle,
    #[cfg(feature = "libtorch")]
    LibTorch,
    #[cfg(feature = "cuda")]
    Cuda,
    /// Only its compiler.
    #[cfg(feature = "cuda")]
    Nvrtc,
    #[cfg(feature = "wgpu")]
    Wgpu(kiln_wgpu::Profile),
}

impl Tested {
    fn named(name: &str) -> Result<Tested, String> {
        match name {
            "cpu" => Ok(Tested::Cpu),
            "router" => Ok(Tested::Router),
            #[cfg(feature = "remote")]
            "remote" => Ok(Tested::Remote),
            #[cfg(not(feature = "remote"))]
            "remote" => Err("`--engine remote` needs a build with `--features remote`".into()),
            #[cfg(feature = "candle")]
            "candle" => Ok(Tested::Candle),
            #[cfg(not(feature = "candle"))]
            "candle" => Err("`--engine candle` needs a build with `--features candle`".into()),
            #[cfg(feature = "libtorch")]
            "libtorch" => Ok(Tested::LibTorch),
            #[cfg(not(feature = "libtorch"))]
            "libtorch" => Err("`--engine libtorch` needs a build with `--features libtorch`".into()),
            #[cfg(feature = "cuda")]
            "cuda" => Ok(Tested::Cuda),
            #[cfg(feature = "cuda")]
            "nvrtc" => Ok(Tested::Nvrtc),
            #[cfg(not(feature = "cuda"))]
            "cuda" | "nvrtc" => Err(format!("`--engine {name}` needs a build with `--features cuda`")),
            #[cfg(feature = "wgpu")]
            "wgpu" => Ok(Tested::Wgpu(kiln_wgpu::Profile::Adapter)),
            #[cfg(feature = "wgpu")]
            "webgpu" => Ok(Tested::Wgpu(kiln_wgpu::Profile::WebGpu)),
            #[cfg(not(feature = "wgpu"))]
            "wgpu" | "webgpu" => Err(format!("`--engine {name}` needs a build with `--features wgpu`")),
            _ => Err(format!(
                "no engine is called `{name}`\n  hint: the engines are cpu, router, remote, candle, libtorch, cuda, nvrtc, wgpu and webgpu"
            )),
        }
    }

    /// Opens the engine. Fails if the device is missing.
    fn open(self) -> Result<Subjects, String> {
        match self {
            Tested::Cpu => Ok(Subjects::cpu()),
            Tested::Router => Ok(Subjects::router()),
            #[cfg(feature = "remote")]
            Tested::Remote => Ok(Subjects::device((kiln_suite::engines::REMOTE.open)())),
            #[cfg(feature = "candle")]
            Tested::Candle => Ok(Subjects::device((kiln_suite::engines::CANDLE.open)())),
            #[cfg(feature = "libtorch")]
            Tested::LibTorch => {
                kiln_torch::version().map_err(|error| error.to_string())?;
                Ok(Subjects::device((kiln_suite::engines::LIBTORCH.open)()))
            }
            #[cfg(feature = "cuda")]
            Tested::Cuda => Ok(Subjects::gpu(kiln_cuda::shared(0).map_err(|error| error.to_string())?)),
            #[cfg(feature = "cuda")]
            Tested::Nvrtc => Subjects::dry().map_err(|error| error.to_string()),
            #[cfg(feature = "wgpu")]
            Tested::Wgpu(profile) => wgpu(profile).map_err(|error| error.to_string()),
        }
    }

    /// Additional lines of the summary.
    fn summary(self) -> Option<String> {
        match self {
            Tested::Cpu | Tested::Router => None,
            #[cfg(feature = "remote")]
            Tested::Remote => None,
            #[cfg(feature = "candle")]
            Tested::Candle => None,
            #[cfg(feature = "libtorch")]
            Tested::LibTorch => None,
            #[cfg(feature = "cuda")]
            Tested::Cuda => None,
            #[cfg(feature = "cuda")]
            Tested::Nvrtc => Some(kiln_fuzz::dry::Compiled::totals().to_string()),
            #[cfg(feature = "wgpu")]
            Tested::Wgpu(_) => None,
        }
    }
}

/// The default adapter.
#[cfg(feature = "wgpu")]
fn wgpu(profile: kiln_wgpu::Profile) -> kiln_ir::Result<Subjects> {
    use kiln_wgpu::{Api, WgpuDevice, WgpuOptions, shared_with};

    let options = WgpuOptions::default().with_profile(profile);
    Ok(Subjects::gpu(shared_with(WgpuDevice::Default, Api::Auto, &options)?))
}

fn threads_of(value: &str) -> Result<usize, String> {
    let threads = value.parse().ok().filter(|threads| (1..=256).contains(threads));
    threads.ok_or_else(|| format!("`--threads {value}`: not a number of threads from 1 to 256"))
}

fn parsed() -> Result<Action, String> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let mut options = Options { threads, progress: true, ..Options::default() };
    let (mut print, mut file, mut engine) = (false, None, Tested::Cpu);
    let mut words = std::env::args().skip(1).peekable();
    if let Some(action) = raw_action(&mut words)? {
        return Ok(action);
    }
    while let Some(word) = words.next() {
        if word == "--help" || word == "-h" {
            return Ok(Action::Help);
        }
        if word == "--print" {
            print = true;
            continue;
        }
        let value = words
            .next()
            .ok_or_else(|| format!("`{word}` needs a value\n  hint: `--help` lists the options"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("`{word} {value}`: not a number"));
        match word.as_str() {
            "--programs" => options.programs = number()?,
            "--seed" => options.seed = number()?,
            "--first" => options.first = number()?,
            "--threads" => options.threads = threads_of(&value)?,
            "--ahead" => options.ahead = number()?,
            "--texts" => options.texts = number()? as usize,
            "--failures" => options.most_failures = number()?.max(1) as usize,
            "--shrink" => options.shrinking = number()? as usize,
            "--only" => options.only = Some(kind(&value)?),
            "--engine" => engine = Tested::named(&value)?,
            "--file" => file = Some(value),
            other => return Err(format!("unknown option `{other}`\n  hint: `--help` lists the options")),
        }
    }
    Ok(match file {
        Some(path) => Action::File(path, engine),
        None if print => Action::Print(options),
        None => Action::Run(options, engine),
    })
}

/// The action of `--raw`, which takes other options.
fn raw_action(
    words: &mut std::iter::Peekable<impl Iterator<Item = String>>,
) -> Result<Option<Action>, String> {
    let Some(mode) = words.next_if(|word| matches!(word.as_str(), "--raw" | "--raw-child")) else {
        return Ok(None);
    };
    let campaign = raw::Campaign::parse(words)?;
    Ok(Some(if mode == "--raw" { Action::Raw(campaign) } else { Action::RawChild(campaign) }))
}

fn kind(name: &str) -> Result<OpKind, String> {
    let plain = |text: &str| text.replace('_', "").to_lowercase();
    let found = OpKind::ALL.into_iter().find(|kind| plain(&format!("{kind:?}")) == plain(name));
    let is_generated = |kind: &OpKind| !NOT_GENERATED.contains(kind);
    found.filter(is_generated).ok_or_else(|| {
        let all = OpKind::ALL.iter().filter(|kind| is_generated(kind)).map(|kind| format!("{kind:?}"));
        let all: Vec<String> = all.collect();
        format!("no op is called `{name}` in random programs\n  hint: the ops are {}", all.join(", "))
    })
}

/// Runs an action. Returns whether it succeeded.
fn run_action(action: Action) -> Result<bool, String> {
    Cubed::register();
    match action {
        Action::Help => {
            print!("{HELP}");
            Ok(true)
        }
        Action::Print(options) => {
            for number in options.first..options.first + options.programs {
                let name = format!("program {number} of seed {}", options.seed);
                println!("{}", trial(options.seed, number, options.only).to_filetest(&[name]));
            }
            Ok(true)
        }
        Action::Raw(campaign) => {
            let totals = campaign.run()?;
            println!("{totals}");
            Ok(totals.failures == 0)
        }
        Action::RawChild(campaign) => {
            raw::run_child(&campaign)?;
            Ok(true)
        }
        Action::File(path, engine) => {
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
            let trial = Trial::from_filetest(&text).map_err(|problem| format!("{path}: {problem}"))?;
            let failure = check(&trial, &engine.open()?).failure;
            println!("{path}: {}", failure.as_ref().map_or("ok".into(), ToString::to_string));
            Ok(failure.is_none())
        }
        Action::Run(options, engine) => {
            engine.open()?;
            let report = run(&options, || engine.open().expect("it was there before"));
            println!("{report}");
            if let Some(summary) = engine.summary() {
                println!("{summary}");
            }
            // The last line, which `cargo xtask suite` adds to that of the suite.
            println!("{}", report.totals());
            Ok(report.is_good())
        }
    }
}
