//! The repository's own commands, run as `cargo xtask COMMAND`.
//!
//! Each command is one module: [`checks`] runs everything this machine can run, [`tidy`] reads the tree and reports
//! violations of the rules of `ARCHITECTURE.md`, [`mod@bench`] measures build times, operation overhead, fusion's time
//! per op, and compares Kiln with other frameworks, [`accuracy`] measures elementary functions, [`bundle`] packs test
//! programs for a machine without Rust, [`mod@fuzz`] runs random programs, [`attack`] plays untrusted clients and files,
//! [`kill`] tests checkpoints against crashes,
//! [`mod@dashboard`] tests the dashboard in a terminal, [`mod@pictures`] makes the README's pictures,
//! [`goldens`] makes the PyTorch reference files, [`new_op`] writes the row of a new op, [`mod@package`] makes and
//! verifies the packages of a publication, [`features`] writes the README's table of Cargo features. Programs of the
//! workspace that they run are built by [`programs`]. The only dependency is a JSON reader, so the tool itself builds in
//! seconds.

#![forbid(unsafe_code)]

mod accuracy;
mod args;
mod attack;
mod bench;
mod bundle;
mod checks;
mod dashboard;
mod features;
mod fuzz;
mod goldens;
mod gpu;
mod kill;
mod new_op;
mod ops;
mod package;
mod pictures;
mod process;
mod programs;
mod suite;
mod table;
mod tidy;
mod workspace;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND [OPTIONS]

commands
  test     run every check this machine can run; list what it cannot, with the reason
             --only NAME   run this step alone (repeatable)
             --list        print the steps and stop
             --no-install  never add Rust targets through rustup, or packages through apt-get
  tidy     check layering, file sizes, links, licences and the other rules of the tree
  bench core
           measure build times and the cost of an eager operation against their targets
             --json        one JSON line for each figure instead of a table
             --record FILE also write the table and the machine's description as Markdown
  bench plan
           measure fusion's time for each op of programs of 100 to 100,000 ops; fail where it grows
             --only NAME   the programs whose name contains this alone
  bench cpu
           compare with PyTorch, Burn and candle on the same workloads, side by side
             --peers A,B   torch, burn, candle, or none (default: all that this machine has)
             --only A,B    these workloads alone
             --threads N   threads of each framework (default: all cores)
             --repeats N   repeats of each workload, at least 7 (default: 15)
             --kiln-backend NAME
                           Kiln's backend (default: the fastest)
             --record FILE also write the table as Markdown; its section Notes is kept
             --against P   compare with this bench-kiln, built from another tree, alone; fail where a workload
                           has become slower by more than 2 %
  bench gpu
           compare with PyTorch on the same workloads on one NVIDIA GPU, side by side
             --peers A,B   torch, torch.compile, torch.graph, or none (default: all that this machine has)
             --only A,B    these workloads alone
             --repeats N   repeats of each workload, at least 7 (default: 15)
             --no-first-step
                           leave out the first steps of fresh processes
             --program P, --scripts F
                           a built bench-kiln and the folder of pytorch.py, on a machine without Rust
             --tflops N, --gb-per-s N
                           what the device can do, of which figures are then told as a share
             --record FILE also write the table as Markdown; its section Notes is kept
             --against P   compare with this bench-kiln, built from another tree, alone, as bench cpu does
  bench vulkan
           compare Kiln through Vulkan with Kiln through CUDA and Burn through Vulkan on one GPU, side by side
             --peers A,B   kiln-cuda, burn, or none (default: both)
             --only A,B    these workloads alone
             --rounds N    turns of each on each workload (default: 9)
             --repeats N   repeats of each workload, at least 7 (default: 7)
             --no-first-step
                           leave out the first steps of fresh processes
             --record FILE also write the table as Markdown; its section Notes is kept
             --pack        build all programs into bench/target/gpu-bench, with a run.sh for a machine without Rust
             --programs F  the programs of such a folder
  bench kernels
           compare hand-written CUDA kernels with the kernels of all vendors, in one process on one NVIDIA GPU
             --only A,B    these workloads alone
             --rounds N    turns of each side on each workload (default: 9)
             --pack, --programs F
                           as of bench vulkan
  bench models
           compare with llama.cpp, PyTorch and ONNX Runtime on models from files, on the CPU, side by side
             --peers A,B   llama.cpp, torch, onnxruntime, or none (default: all that this machine has)
             --only A,B    these workloads alone
             --threads N   threads of each program (default: 2)
             --rounds N    turns of each program on each workload (default: 5)
             --record FILE also write the table as Markdown; its section Notes is kept
  bench shapes
           measure a training step when each step has another batch length, against its targets
             --json        one JSON line for each figure instead of a table
             --backend NAME
                           cpu, flex or cuda (default: cpu)
  bundle PACKAGE...
           pack the packages' test programs, stripped, into target/bundle.tar.gz, at most 60 MiB: a folder bundle
           with a run.sh, and an apart.sh that runs each test in a process of its own
             --gpu         pack the engines of GPUs and the example mnist with their backends
             --bin NAME    pack this program of the packages too (repeatable)
             --example E   pack this example too (repeatable)
             --features F  build examples with these features, and programs with PACKAGE/FEATURE of a packed package
             --profile P   build profile (default: release)
  accuracy measure the error of elementary functions, write docs/accuracy.md
             --check       write nothing, fail where an error is greater than the page says
  fuzz     run random programs on every engine, under autodiff and expanded; all must agree
             --programs N  how many (default: 2000)
             --seed S      determines them (default: 1)
             --only OP     begin each program with this op: MatMul, Conv, ...
             --help        the other options: --threads, --first, --print, --file, ...
  suite    run the conformance suite on one engine; on a GPU also the PyTorch goldens and 20,000 random programs
             --engine NAME reference, flex, cpu, router, remote, candle, libtorch, cuda or wgpu
             --part K/N    every Nth case of each group, from the Kth on, and that part of the programs
             --limits L    webgpu: the limits and features of browsers, for --engine wgpu
  attack   attack Kiln by untrusted clients, files and ops, each in a process with bounds on time and memory
             --short       only the attacks that need a few seconds
             --only TEXT   only the attacks whose name contains this
             --list        print their names, and run nothing
  kill     kill processes that save a checkpoint, at random moments, beside one that reads it; nothing may be lost
             --saves N     how many (default: 200)
             --runs N      kill N training runs instead, and resume them: they must end bit-identical
  dashboard
           test the dashboard of training in a terminal of tmux: keys, sizes, signals, colours
             --only TEXT   the checks whose name contains this alone
             --program P   run this built example dashboard_demo (default: build it)
             --no-install  never install tmux with apt-get
  pictures make the pictures of README.md from a run of the example mnist, with tmux and Chromium
             --program P   run this built example mnist (default: build it)
             --command P   run this built command kiln (default: build it)
  goldens  make the PyTorch reference files of crates/suite/goldens again
  modules  print what the suite checks of each module, loss, optimizer and schedule, write it into the book
             --check       write nothing, fail where the page differs or a cell is empty without a reason
  ops      print what the suite checks of each op and method, write it into the book
             --check       write nothing, fail where the page differs or a cell is empty without a reason
  features write the table of Cargo features into README.md, from the comments in crates/kiln/Cargo.toml
             --check       write nothing, fail where the page differs
  package  package every published crate as for the registry, check its manifest and files, compile the packages
             --full        check each package alone, with default and with all features (default: all packages
                           at once, with default features)
             --list        print the packages in the order of publication and stop
  new-op NAME
           write the table row of a new op, and list the files that its author changes
             --unary       a function of one float
             --composite   an op that others can express, with an axis
             --dry-run     write nothing
             --check       add ops to a copy of the tree, and compare the list with the compiler's errors
  help     print this text
";

/// Ends the task without a message when its output pipe is closed, as in `cargo xtask ops | head -1`. Rust's `print!`
/// panics then, because it has no other way to report an error.
fn exit_on_closed_pipe() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let message = info.payload().downcast_ref::<String>();
        if message
            .is_some_and(|text| text.starts_with("failed printing to std") && text.contains("(os error 32)"))
        {
            std::process::exit(0);
        }
        report(info);
    }));
}

fn main() -> ExitCode {
    exit_on_closed_pipe();
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_else(|| "help".to_owned());
    let rest: Vec<String> = words.collect();
    let done = match command.as_str() {
        "accuracy" => accuracy::run(&rest),
        "attack" => attack::run(&rest),
        "test" => checks::run(&rest),
        "tidy" => tidy::run(&rest),
        "bench" => bench::run(&rest),
        "bundle" => bundle::run(&rest),
        "dashboard" => dashboard::run(&rest),
        "fuzz" => fuzz::run(&rest),
        "kill" => kill::run(&rest),
        "new-op" => new_op::run(&rest),
        "goldens" => goldens::run(&rest),
        "modules" => ops::modules(&rest),
        "ops" => ops::run(&rest),
        "features" => features::run(&rest),
        "suite" => suite::run(&rest),
        "package" => package::run(&rest),
        "pictures" => pictures::run(&rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        other => Err(format!("unknown command `{other}`\n  hint: `cargo xtask help` lists the commands")),
    };
    match done {
        Ok(code) => code,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
