//! Compiles the unpacked packages.

use std::path::Path;
use std::process::Command;

use crate::process;
use crate::workspace::Workspace;

/// The features with which `--full` checks each package.
const FEATURES: &[&[&str]] = &[&[], &["--all-features"]];

/// Checks all packages at once with their default features, or with `full` each alone, also with all its features. Alone,
/// no other package enables a missing feature.
pub(super) fn check(
    workspace: &Workspace,
    unpacked: &Path,
    names: &[&str],
    full: bool,
) -> Result<(), String> {
    if !full {
        return run(cargo_check(workspace, unpacked).arg("--workspace"));
    }
    for name in names {
        for features in FEATURES {
            run(cargo_check(workspace, unpacked).args(["-p", name]).args(*features))?;
        }
    }
    Ok(())
}

fn cargo_check(workspace: &Workspace, unpacked: &Path) -> Command {
    let mut command = process::cargo(unpacked);
    command.args(["check", "--quiet", "--target-dir"]).arg(&workspace.target);
    command
}

fn run(command: &mut Command) -> Result<(), String> {
    println!("$ {}", process::describe(command));
    process::run(command)
}
