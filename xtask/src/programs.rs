//! Programs of the workspace, built so that they share the compiled crates of the step `tests`.
//!
//! `cargo run -p PACKAGE` unifies the features of that package's dependencies alone, and compiles most crates again. Here
//! cargo unifies those of the whole workspace, with dev-dependencies, as in `cargo test --workspace`.

use std::env::consts::EXE_SUFFIX;
use std::process::Command;

use crate::workspace::Workspace;
use crate::{kill, process};

/// The features of the tests, of every step and of every engine, so that each crate is compiled once. Those of the fuzzer
/// are those of the suite too. LibTorch may be missing: its engine then only reports that.
pub(crate) const FEATURES: &[&str] = &[
    "kiln-examples/models",
    "kiln-examples/wgpu",
    "kiln-fuzz/candle",
    "kiln-fuzz/cuda",
    "kiln-fuzz/libtorch",
    "kiln-fuzz/remote",
    "kiln-fuzz/wgpu",
    "kiln-remote/tls",
];

/// The example that is built beside each binary: cargo unifies dev-dependencies only if an example or a test is selected.
/// This one is small.
const SMALL_EXAMPLE: &str = kill::PROGRAM;

/// A program of the workspace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Program {
    /// A binary of some package.
    Binary(&'static str),
    /// An example of some package.
    Example(&'static str),
}

/// The command that builds a program, and the one that runs it.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) build: Command,
    pub(crate) run: Command,
}

impl Program {
    /// The command that builds the program in the test profile, with more features such as `kiln/linalg`.
    pub(crate) fn build(self, workspace: &Workspace, features: &[&str]) -> Command {
        let mut command = process::cargo(&workspace.root);
        command.args(["build", "--quiet"]);
        command.args(selection(features));
        match self {
            Program::Binary(name) => command.args(["--bin", name, "--example", SMALL_EXAMPLE]),
            Program::Example(name) => command.args(["--example", name]),
        };
        command
    }

    /// Builds the program and runs it in the root of the workspace.
    pub(crate) fn launch(self, workspace: &Workspace) -> Launch {
        let (folder, name) = match self {
            Program::Binary(name) => ("debug", name),
            Program::Example(name) => ("debug/examples", name),
        };
        let file = workspace.target.join(folder).join(format!("{name}{EXE_SUFFIX}"));
        let run = process::program(&file.to_string_lossy(), &workspace.root);
        Launch { build: self.build(workspace, &[]), run }
    }
}

impl Launch {
    /// Builds the program and runs it.
    pub(crate) fn start(&mut self) -> Result<(), String> {
        process::run(&mut self.build)?;
        process::run(&mut self.run)
    }

    /// Builds the program and runs it, and prints both commands.
    pub(crate) fn announce_and_start(&mut self) -> Result<(), String> {
        process::announce_and_run(&mut self.build)?;
        process::announce_and_run(&mut self.run)
    }
}

/// The arguments that select the workspace with the features of its tests, and more.
pub(crate) fn selection(features: &[&str]) -> [String; 3] {
    ["--workspace".to_owned(), "--features".to_owned(), [FEATURES, features].concat().join(",")]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Workspace {
        Workspace { root: "/src".into(), target: "/src/target".into(), ..Workspace::default() }
    }

    #[test]
    fn binaries_are_built_beside_an_example() {
        let launch = Program::Binary("fuzzer").launch(&workspace());
        let said = process::describe(&launch.build);
        let expected = "cargo build --quiet --workspace --features kiln-examples/models,kiln-examples/wgpu,kiln-fuzz/candle,kiln-fuzz/cuda,kiln-fuzz/libtorch,kiln-fuzz/remote,kiln-fuzz/wgpu,kiln-remote/tls --bin fuzzer --example kill";
        assert_eq!(said, expected);
        assert_eq!(process::describe(&launch.run), format!("target/debug/fuzzer{EXE_SUFFIX}"));
    }

    #[test]
    fn an_example_is_built_alone() {
        let launch = Program::Example("mnist").launch(&workspace());
        let said = process::describe(&launch.build);
        assert_eq!(
            said,
            "cargo build --quiet --workspace --features kiln-examples/models,kiln-examples/wgpu,kiln-fuzz/candle,kiln-fuzz/cuda,kiln-fuzz/libtorch,kiln-fuzz/remote,kiln-fuzz/wgpu,kiln-remote/tls --example mnist"
        );
        assert_eq!(process::describe(&launch.run), format!("target/debug/examples/mnist{EXE_SUFFIX}"));
    }
}
