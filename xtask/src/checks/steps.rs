//! The steps of `cargo xtask test`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::libtest::Tally;
use super::newcomer;
use crate::process::{self, announce_and_run};
use crate::programs::{self, Program};
use crate::workspace::Workspace;
use crate::{attack, dashboard, fuzz, goldens, gpu, kill, suite};

/// The context of every step.
pub(crate) struct Context<'a> {
    pub(crate) workspace: &'a Workspace,
    /// Whether missing Rust targets and Debian packages may be installed.
    pub(crate) install: bool,
}

/// One check.
pub(crate) struct Step {
    /// Name for `--only`.
    pub(crate) name: &'static str,
    /// A short description.
    pub(crate) about: &'static str,
    /// Whether this machine can run it; otherwise the reason.
    pub(crate) can_run: fn(&Context) -> Result<(), String>,
    /// Runs it.
    pub(crate) run: fn(&Context, &mut Tally) -> Result<(), String>,
}

/// In the order they run: steps that fail most often, and steps whose outputs later steps reuse, come first.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: "tests",
        about: "unit, integration and documentation tests of every crate",
        can_run: always,
        run: workspace_tests,
    },
    Step {
        name: "fuzz",
        about: "5,000 random programs give the same on every engine, fused, under autodiff and expanded",
        can_run: has_fuzzer,
        run: fuzz_programs,
    },
    Step {
        name: "libtorch",
        about: "a part of the suite and 1,000 random programs on the engine libtorch",
        can_run: has_libtorch,
        run: |context, _| check_engine(context, "libtorch"),
    },
    Step {
        name: "engines",
        about: "the same on the engines remote and candle",
        can_run: has_fuzzer,
        run: |context, _| OTHER_ENGINES.iter().try_for_each(|engine| check_engine(context, engine)),
    },
    Step {
        name: "vulkan",
        about: "a part of the suite, goldens, random programs and MNIST on a Vulkan adapter, the first three also with the limits of browsers",
        can_run: has_vulkan,
        run: |context, _| {
            VULKAN_PARTS.iter().try_for_each(|part| run_on_vulkan(context, *part))?;
            compare_on_mnist(context, "wgpu")
        },
    },
    Step {
        name: "kill",
        about: "checkpoints stay whole when 20 processes that save them are killed, and 5 killed training runs resume exactly",
        can_run: |context| {
            has_target(context, "example", kill::PROGRAM)?;
            has_target(context, "example", kill::RUNS_PROGRAM)
        },
        run: |context, _| {
            kill::killer(context.workspace, 20).announce_and_start()?;
            kill::run_killer(context.workspace, 5).announce_and_start()
        },
    },
    Step {
        name: "attack",
        about: "Kiln resists untrusted clients, files and ops within bounds on time and memory (short form)",
        can_run: |context| has_target(context, "bin", attack::PROGRAM),
        run: |context, _| attack::attacker(context.workspace, &["--short"]).announce_and_start(),
    },
    Step {
        name: "newcomer",
        about: "a new project adds kiln as README.md says, and runs the Rust examples of README.md, the book and the other pages",
        can_run: newcomer::can_run,
        run: newcomer::run,
    },
    Step {
        name: "docs",
        about: "the documentation builds without a warning",
        can_run: always,
        run: documentation,
    },
    Step {
        name: "ops",
        about: "the book's tables of ops, methods and modules are current, no cell is empty without a reason, and a new op changes few files",
        can_run: always,
        run: |context, _| check_ops(context),
    },
    Step {
        name: "package",
        about: "each published crate has its metadata, licences and README, and compiles from its package",
        can_run: |context| has_program(context, "tar"),
        run: |context, _| check_packages(context),
    },
    Step {
        name: "no_std",
        about: "the core compiles without default features",
        can_run: has_core,
        run: |context, _| check_core(context, None),
    },
    Step {
        name: "bare-metal",
        about: "the core compiles for thumbv7em-none-eabihf",
        can_run: |context| has_core(context).and_then(|()| has_rust_target(context, BARE_METAL)),
        run: |context, _| check_core(context, Some(BARE_METAL)),
    },
    Step {
        name: "wasm",
        about: "the core and the GPU engine of browsers compile for wasm32-unknown-unknown",
        can_run: |context| has_core(context).and_then(|()| has_rust_target(context, WASM)),
        run: |context, _| {
            check_core(context, Some(WASM))?;
            check_browser_engine(context)
        },
    },
    Step {
        name: "bench",
        about: "Kiln's program of the benchmarks compiles; the other frameworks are not built",
        can_run: always,
        run: |context, _| check_bench(context),
    },
    Step {
        name: "mnist",
        about: "the README's example trains on a part of MNIST, reloads its model and recognizes most digits",
        can_run: |context| has_target(context, "example", "mnist"),
        run: |context, _| mnist(context),
    },
    Step {
        name: "own-engine",
        about: "an engine and a layer outside the workspace train on a part of MNIST",
        can_run: always,
        run: own_engine,
    },
    Step {
        name: "python",
        about: "NumPy and PyTorch exchange arrays with Kiln",
        can_run: has_numpy,
        run: python_tests,
    },
    Step {
        name: "tensorboard",
        about: "TensorBoard reads the event files of a run",
        can_run: has_tensorboard,
        run: tensorboard_tests,
    },
    Step {
        name: "browser",
        about: "the curves of `kiln runs report` work in a browser",
        can_run: has_browser,
        run: browser_tests,
    },
    Step {
        name: "dashboard",
        about: "the dashboard of training works in a terminal of tmux",
        can_run: has_terminal,
        run: |context, _| check_dashboard(context),
    },
    Step {
        name: "goldens",
        about: "PyTorch still gives the committed reference values",
        can_run: |context| goldens::can_run(&context.workspace.root),
        run: check_goldens,
    },
    Step {
        name: "deny",
        about: "advisories, licences, versions and sources of all dependencies follow deny.toml",
        can_run: has_advisories,
        run: |context, _| announce_and_run(process::cargo(&context.workspace.root).args(DENY)),
    },
    Step { name: "gpu", about: "the GPU engines pass the suite", can_run: has_gpu, run: gpu_tests },
];

const BARE_METAL: &str = "thumbv7em-none-eabihf";
const WASM: &str = "wasm32-unknown-unknown";

/// Packages that work without the standard library.
const CORE: &[&str] =
    &["kiln-ir", "kiln-cpu", "kiln-autodiff", "kiln-vmap", "kiln-tensor", "kiln-backends", "kiln-nn"];

/// The package of the GPU engine in browsers, which needs the standard library.
const BROWSER_ENGINE: &str = "kiln-wgpu";

/// Engines that other libraries or other processes run, beside `libtorch`.
const OTHER_ENGINES: &[&str] = &["remote", "candle"];

/// The part of the suite that runs on each of them: every twelfth case.
const PART: (u64, u64) = (1, 12);

/// The parts of the suite and of the random programs that run on a Vulkan adapter, with all its features and with those of
/// browsers.
const VULKAN_PARTS: [(&str, (u64, u64)); 2] = [("wgpu", (1, 400)), ("webgpu", (2, 400))];

/// The accuracy in percent that the example reaches on the test images of MNIST: one epoch on 4,000 images leaves it above
/// this.
const MIN_ACCURACY: f64 = 90.0;

/// The options of the example for 32 steps, which take about a minute on lavapipe.
const SHORT_RUN: &[&str] = &["--limit", "512", "--batch-size", "16", "--test-limit", "200"];

/// The maximum difference of two backends' accuracies after these steps, in percent. Rounding differs.
const SAME_ACCURACY: f64 = 5.0;

/// Test programs and their modules with tests that call Python, which are ignored elsewhere.
const PYTHON_TESTS: &[(&str, &str)] = &[("dlpack", "python::"), ("store", "numpy::")];

/// In cargo's message about a lock file that it would have to change.
const STALE: &str = "--locked was passed";

/// Debian's and Ubuntu's package of LibTorch.
const DEBIAN_LIBTORCH: &[&str] = &["libtorch-dev"];

/// Their packages of Vulkan's loader and of lavapipe, which runs Vulkan on the CPU.
const DEBIAN_VULKAN: &[&str] = &["mesa-vulkan-drivers", "libvulkan1"];

/// What the step looks at: all checks, over all features (`deny.toml`).
const DENY: &[&str] = &["deny", "check", "advisories", "bans", "licenses", "sources"];

const INSTALL_LIMIT: Duration = Duration::from_secs(180);

fn always(_: &Context) -> Result<(), String> {
    Ok(())
}

fn workspace_tests(context: &Context, tally: &mut Tally) -> Result<(), String> {
    let mut command = process::cargo(&context.workspace.root);
    command.args(["test", "--no-fail-fast"]).args(programs::selection(&[]));
    run_tests(&mut command, tally)
}

fn has_fuzzer(context: &Context) -> Result<(), String> {
    let found = context.workspace.package(fuzz::PACKAGE).is_some();
    if found { Ok(()) } else { Err(format!("the workspace has no {}", fuzz::PACKAGE)) }
}

fn fuzz_programs(context: &Context, _: &mut Tally) -> Result<(), String> {
    let words = ["--programs", "5000"].map(str::to_owned);
    fuzz::fuzzer(context.workspace, &words).announce_and_start()?;
    let words = ["--raw", "--programs", "20000"].map(str::to_owned);
    fuzz::fuzzer(context.workspace, &words).announce_and_start()
}

/// A part of the suite, and random programs.
fn check_engine(context: &Context, name: &str) -> Result<(), String> {
    suite::Run { engine: suite::named(name)?, part: PART }.start(context.workspace)?;
    let words = ["--engine", name, "--programs", "1000"].map(str::to_owned);
    fuzz::fuzzer(context.workspace, &words).announce_and_start()
}

/// A part of the suite and of the random programs, in the build of the tests.
fn run_on_vulkan(context: &Context, (name, part): (&str, (u64, u64))) -> Result<(), String> {
    suite::Run { engine: suite::named(name)?, part }.start(context.workspace)
}

/// Looks for a driver where Vulkan's loader looks; else installs Debian's packages.
fn has_vulkan(context: &Context) -> Result<(), String> {
    has_fuzzer(context)?;
    has_target(context, "example", "mnist")?;
    if gpu::has_vulkan_driver() {
        return Ok(());
    }
    let packages = DEBIAN_VULKAN.join(" ");
    let advice =
        format!("this machine has no Vulkan adapter; `apt-get install {packages}` adds one on the CPU");
    install_debian(context, DEBIAN_VULKAN, &advice)
}

/// Looks where the engine's build looks; else installs Debian's package.
fn has_libtorch(context: &Context) -> Result<(), String> {
    has_fuzzer(context)?;
    let root = &context.workspace.root;
    let is_set = std::env::var_os("LIBTORCH").is_some_and(|folder| !folder.is_empty());
    let in_python = || process::succeeds(process::program("python3", root).args(["-c", "import torch"]));
    let is_installed = || process::succeeds(process::program("dpkg", root).arg("-s").args(DEBIAN_LIBTORCH));
    if is_set || in_python() || is_installed() {
        return Ok(());
    }
    let advice = format!(
        "LibTorch is not installed; `apt-get install {}` or `pip install torch` adds it",
        DEBIAN_LIBTORCH.join(" ")
    );
    install_debian(context, DEBIAN_LIBTORCH, &advice)?;
    // A build script that has searched already is not run again, and cargo does not see that it would find more.
    process::run(process::cargo(root).args(["clean", "--quiet", "-p", "kiln-torch"]))
}

/// Installs Debian packages, and prints that. The error where this is not possible starts with the advice.
fn install_debian(context: &Context, packages: &[&str], advice: &str) -> Result<(), String> {
    let root = &context.workspace.root;
    let may_install =
        || process::output(process::program("id", root).arg("-u")).is_ok_and(|id| id.trim() == "0");
    if !context.install || !may_install() {
        return Err(advice.to_owned());
    }
    println!("installing {} with apt-get", packages.join(" and "));
    let apt =
        |words: &[&str]| process::run_within(process::program("apt-get", root).args(words), INSTALL_LIMIT);
    let install = [&["install", "--yes", "--no-install-recommends"], packages].concat();
    apt(&["update"]).and_then(|()| apt(&install)).map_err(|error| format!("{advice} (tried here: {error})"))
}

fn documentation(context: &Context, _: &mut Tally) -> Result<(), String> {
    let mut command = process::cargo(&context.workspace.root);
    command.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    announce_and_run(&mut command)
}

fn has_core(context: &Context) -> Result<(), String> {
    let missing: Vec<&str> =
        CORE.iter().copied().filter(|name| context.workspace.package(name).is_none()).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("the workspace has no {}", missing.join(", "))) }
}

/// Checks packages with `--no-default-features`, all at once, so that none uses the standard library.
fn check_core(context: &Context, target: Option<&str>) -> Result<(), String> {
    let mut command = process::cargo(&context.workspace.root);
    command.args(["check", "--no-default-features"]);
    command.args(CORE.iter().flat_map(|name| ["-p", name]));
    command.args(target.iter().flat_map(|target| ["--target", target]));
    announce_and_run(&mut command)
}

/// Checks the GPU engine with each set of APIs that a program may select for browsers.
fn check_browser_engine(context: &Context) -> Result<(), String> {
    let selections: [&[&str]; 2] = [&[], &["--no-default-features", "--features", "webgpu"]];
    selections.into_iter().try_for_each(|features| {
        let mut command = process::cargo(&context.workspace.root);
        command.args(["check", "-p", BROWSER_ENGINE, "--target", WASM]).args(features);
        announce_and_run(&mut command)
    })
}

/// Finds the target's standard library in the toolchain, or adds it by rustup and prints that.
fn has_rust_target(context: &Context, target: &str) -> Result<(), String> {
    let root = &context.workspace.root;
    let sysroot = process::output(process::program("rustc", root).args(["--print", "sysroot"]))?;
    if PathBuf::from(sysroot.trim()).join("lib/rustlib").join(target).join("lib").is_dir() {
        return Ok(());
    }
    let advice = format!("the Rust target {target} is not installed; `rustup target add {target}` adds it");
    if !context.install || !process::succeeds(process::program("rustup", root).arg("--version")) {
        return Err(advice);
    }
    println!("installing the Rust target {target} with rustup");
    let mut command = process::program("rustup", root);
    command.args(["target", "add", target]);
    process::run_within(&mut command, INSTALL_LIMIT)
        .map_err(|error| format!("{advice} (tried here: {error})"))
}

fn has_target(context: &Context, kind: &str, name: &str) -> Result<(), String> {
    let found = context.workspace.has_target(kind, name);
    if found { Ok(()) } else { Err(format!("the workspace has no {kind} called {name}")) }
}

fn mnist(context: &Context) -> Result<(), String> {
    let accuracy = mnist_accuracy(context, "cpu", &["--limit", "4000"])?;
    if accuracy >= MIN_ACCURACY {
        return Ok(());
    }
    Err(format!("the accuracy is {accuracy} %, below {MIN_ACCURACY} %"))
}

/// Compares the accuracy on a backend with that on the CPU.
fn compare_on_mnist(context: &Context, backend: &str) -> Result<(), String> {
    let expected = mnist_accuracy(context, "cpu", SHORT_RUN)?;
    let found = mnist_accuracy(context, backend, SHORT_RUN)?;
    if (found - expected).abs() <= SAME_ACCURACY {
        return Ok(());
    }
    Err(format!("the accuracy on {backend} is {found} %, and {expected} % on the CPU"))
}

/// Trains the example for one epoch on a part of MNIST, and returns its accuracy in percent. In the dev profile, whose
/// build outputs exist and whose kernels are optimised: a release build takes minutes.
fn mnist_accuracy(context: &Context, backend: &str, options: &[&str]) -> Result<f64, String> {
    let output = context.workspace.target.join("xtask/mnist").join(backend);
    let mut mnist = Program::Example("mnist").launch(context.workspace);
    mnist.run.args(["--backend", backend, "--epochs", "1"]).args(options).arg("--output").arg(output);
    announce_and_run(&mut mnist.build)?;
    println!("$ {}", process::describe(&mnist.run));
    let mut accuracy = None;
    process::run_and_see(&mut mnist.run, |line| accuracy = accuracy_in(line).or(accuracy))?;
    accuracy.ok_or_else(|| format!("the example printed no accuracy on {backend}"))
}

/// The accuracy in percent, in the line of the example that tells it.
fn accuracy_in(line: &str) -> Option<f64> {
    line.strip_prefix("test accuracy: ")?.strip_suffix(" %")?.parse().ok()
}

/// The example is a separate workspace, like a user's crate, which shares this one's target folder. Its dev profile
/// builds in a quarter of the time of a release build, and trains in seconds.
fn own_engine(context: &Context, tally: &mut Tally) -> Result<(), String> {
    ["test", "run"]
        .into_iter()
        .try_for_each(|command| run_locked(context, "examples/own-engine", &[command], tally))
}

/// Runs cargo in a separate workspace, in this one's target folder. A stale lock file there is an error with advice: it
/// would be written anew each time, with the newest releases.
fn run_locked(context: &Context, folder: &str, words: &[&str], tally: &mut Tally) -> Result<(), String> {
    let mut command = process::cargo(&context.workspace.root.join(folder));
    command.args(words).args(["--locked", "--target-dir"]).arg(&context.workspace.target);
    println!("$ {}", process::describe(&command));
    let mut is_stale = false;
    let done = process::run_and_see(&mut command, |line| {
        tally.see(line);
        is_stale |= line.contains(STALE);
    });
    done.map_err(|error| {
        let hint = format!("\n  hint: run `cargo update --workspace` in {folder}, and commit its Cargo.lock");
        if is_stale { error + &hint } else { error }
    })
}

fn check_ops(context: &Context) -> Result<(), String> {
    ["ops", "modules", "new-op"].into_iter().try_for_each(|task| {
        let mut command = process::cargo(&context.workspace.root);
        announce_and_run(command.args(["run", "--quiet", "-p", "xtask", "--", task, "--check"]))
    })
}

fn check_packages(context: &Context) -> Result<(), String> {
    let mut command = process::cargo(&context.workspace.root);
    announce_and_run(command.args(["run", "--quiet", "-p", "xtask", "--", "package"]))
}

fn has_program(context: &Context, name: &str) -> Result<(), String> {
    let mut command = process::program(name, &context.workspace.root);
    if process::succeeds(command.arg("--version")) { Ok(()) } else { Err(format!("{name} is not installed")) }
}

/// The benchmark is a separate workspace, which the step `tests` does not include.
fn check_bench(context: &Context) -> Result<(), String> {
    let packages =
        ["-p", "bench-kiln", "-p", "bench-protocol", "--features", "bench-kiln/gpu,bench-kiln/models"];
    let words = [&["check", "--all-targets"][..], &packages].concat();
    run_locked(context, "bench", &words, &mut Tally::default())
}

/// Looks for cargo-deny, and for the database of advisories: it downloads that once, and checks offline then.
fn has_advisories(context: &Context) -> Result<(), String> {
    let deny =
        |words: &[&str]| process::succeeds(process::cargo(&context.workspace.root).arg("deny").args(words));
    if !deny(&["--version"]) {
        return Err("cargo-deny is not installed; `cargo install cargo-deny` adds it".to_owned());
    }
    let found = deny(&["fetch", "db"]);
    if found {
        Ok(())
    } else {
        Err("the database of advisories is not reachable (`cargo deny fetch db`)".to_owned())
    }
}

fn check_goldens(context: &Context, _: &mut Tally) -> Result<(), String> {
    announce_and_run(process::program("python3", &context.workspace.root).args([goldens::SCRIPT, "--check"]))
}

fn has_numpy(context: &Context) -> Result<(), String> {
    let mut python = process::program("python3", &context.workspace.root);
    let found = process::succeeds(python.args(["-c", "import numpy"]));
    if found { Ok(()) } else { Err("Python with NumPy is not installed".to_owned()) }
}

fn python_tests(context: &Context, tally: &mut Tally) -> Result<(), String> {
    let mut command = process::cargo(&context.workspace.root);
    command.args(["test", "--no-fail-fast"]).args(programs::selection(&[]));
    command.args(PYTHON_TESTS.iter().flat_map(|(program, _)| ["--test", program]));
    command.args(["--", "--ignored"]).args(PYTHON_TESTS.iter().map(|(_, module)| module));
    run_tests(&mut command, tally)
}

fn has_tensorboard(context: &Context) -> Result<(), String> {
    let mut python = process::program("python3", &context.workspace.root);
    let found = process::succeeds(python.args(["-c", "import tensorboard, PIL"]));
    if found { Ok(()) } else { Err("Python with TensorBoard is not installed".to_owned()) }
}

fn tensorboard_tests(context: &Context, tally: &mut Tally) -> Result<(), String> {
    let mut command = process::cargo(&context.workspace.root);
    command.arg("test").args(programs::selection(&[]));
    command.args(["--test", "train", "--", "--include-ignored", "loggers_tensorboard::"]);
    run_tests(&mut command, tally)
}

fn has_browser(context: &Context) -> Result<(), String> {
    has_program(context, "chromium").map_err(|error| format!("{error}; `apt-get install chromium` adds it"))
}

fn browser_tests(context: &Context, tally: &mut Tally) -> Result<(), String> {
    let mut command = process::cargo(&context.workspace.root);
    command.arg("test").args(programs::selection(&[])).args(["--test", "cli"]);
    run_tests(command.args(["--", "--ignored", "runs_browser::"]), tally)
}

fn has_terminal(context: &Context) -> Result<(), String> {
    has_target(context, "example", dashboard::PROGRAM)?;
    dashboard::has_tmux(&context.workspace.root, context.install)
}

fn check_dashboard(context: &Context) -> Result<(), String> {
    let mut command = process::cargo(&context.workspace.root);
    announce_and_run(command.args(["run", "--quiet", "-p", "xtask", "--", "dashboard", "--no-install"]))
}

fn has_gpu(context: &Context) -> Result<(), String> {
    gpu::runnable(context.workspace).map(drop)
}

fn gpu_tests(context: &Context, tally: &mut Tally) -> Result<(), String> {
    let mut command = process::cargo(&context.workspace.root);
    command.args(["test", "--release", "--no-fail-fast"]);
    let engines = gpu::runnable(context.workspace)?;
    command.args(engines.iter().flat_map(|engine| ["-p", engine.package]));
    // Tests that need a GPU are ignored by default.
    command.args(["--", "--include-ignored"]);
    run_tests(&mut command, tally)
}

/// Runs tests and counts them from their output.
pub(crate) fn run_tests(command: &mut Command, tally: &mut Tally) -> Result<(), String> {
    println!("$ {}", process::describe(command));
    process::run_and_see(command, |line| tally.see(line))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn an_empty_workspace_skips_with_reasons() {
        let workspace = Workspace::default();
        let context = Context { workspace: &workspace, install: false };
        assert!(has_core(&context).unwrap_err().contains("kiln-ir"));
        assert!(has_gpu(&context).unwrap_err().contains("no GPU engine"));
        assert!(has_target(&context, "example", "mnist").unwrap_err().contains("mnist"));
        assert!(has_terminal(&context).unwrap_err().contains("dashboard_demo"));
        assert!(goldens::can_run(&workspace.root).unwrap_err().contains(goldens::SCRIPT));
    }

    #[test]
    fn the_accuracy_is_in_one_line_of_the_example() {
        assert_eq!(accuracy_in("test accuracy: 93.50 %"), Some(93.5));
        for other in ["", "test accuracy: ", "test accuracy: NaN", "epoch 1, test accuracy: 93.50 %"] {
            assert_eq!(accuracy_in(other), None, "{other}");
        }
    }

    #[test]
    fn a_machine_without_tmux_skips_with_advice() {
        // In a folder that does not exist, no program starts.
        let nowhere = Path::new("no/such/folder");
        let reason = dashboard::has_tmux(nowhere, false).unwrap_err();
        assert!(reason.contains("apt-get install tmux"), "{reason}");
    }

    #[test]
    fn an_unknown_rust_target_is_skipped_with_advice() {
        let workspace = Workspace { root: PathBuf::from("."), ..Workspace::default() };
        let context = Context { workspace: &workspace, install: false };
        let reason = has_rust_target(&context, "no-such-target").unwrap_err();
        assert!(reason.contains("rustup target add no-such-target"), "{reason}");
    }
}
