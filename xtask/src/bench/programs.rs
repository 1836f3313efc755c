//! The Rust programs of benchmarks: built here, or found in a packed folder on a machine without Rust.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::args::Args;
use crate::bundle::{self, TAR};
use crate::process::{self, at};
use crate::workspace::Workspace;

/// The option that names a packed folder, and the flag that makes one.
pub(super) const PROGRAMS: &str = "--programs";
pub(super) const PACK: &str = "--pack";

/// A program that is built in the workspace `bench`.
pub(super) struct Build {
    /// The package, which is also the name of the program.
    package: &'static str,
    profile: &'static str,
    /// The words of `cargo build` that choose features.
    features: &'static [&'static str],
    /// Whether it is built with `target-cpu=native`, as candle's documentation recommends, in a folder of its own.
    native: bool,
}

impl Build {
    /// Kiln's program for CPUs.
    pub(super) const KILN: Build =
        Build { package: "bench-kiln", profile: "release", features: &[], native: false };
    pub(super) const KILN_FOR_GPU: Build = Build { features: &["--features", "gpu"], ..Build::KILN };
    pub(super) const KILN_WITH_MODELS: Build = Build { features: &["--features", "models"], ..Build::KILN };
    pub(super) const BURN: Build = Build { package: "bench-burn", native: true, ..Build::KILN };
    pub(super) const CANDLE: Build = Build { package: "bench-candle", ..Build::BURN };
    pub(super) const BURN_FOR_VULKAN: Build = Build {
        package: "bench-burn",
        profile: "packed",
        features: &["--no-default-features", "--features", "vulkan"],
        native: false,
    };
}

/// Runs the packed benchmarks.
const RUN: &str = "#!/usr/bin/env bash
# run.sh vulkan|kernels [OPTIONS]: runs a benchmark with the programs of this folder.
set -euo pipefail
here=$(cd \"$(dirname \"$0\")\" && pwd)
kind=${1:-vulkan}
[ $# -eq 0 ] || shift
exec \"$here/xtask\" bench \"$kind\" --programs \"$here\" \"$@\"
";

/// Where the programs are: given by options, or built in this tree.
#[derive(Default)]
pub(super) struct Programs {
    /// A packed folder.
    packed: Option<PathBuf>,
    /// Kiln's program.
    kiln: Option<PathBuf>,
    /// The folder of the Python scripts.
    scripts: Option<PathBuf>,
    /// The workspace `bench`. A machine without Rust has none.
    bench: Option<PathBuf>,
}

impl Programs {
    /// The programs that the options name, and those of this tree.
    pub(super) fn of(args: &Args) -> Result<Programs, String> {
        let given = |option: &str| {
            let path = args.last(option).map(Path::new);
            path.map(|path| path.canonicalize().map_err(at(path))).transpose()
        };
        let mut programs = Programs {
            packed: given(PROGRAMS)?,
            kiln: given("--program")?,
            scripts: given("--scripts")?,
            bench: None,
        };
        if programs.packed.is_none() && (programs.kiln.is_none() || programs.scripts.is_none()) {
            programs.bench = Some(Workspace::load()?.root.join("bench"));
        }
        Ok(programs)
    }

    /// Those of a packed folder.
    #[cfg(test)]
    pub(super) fn packed(folder: PathBuf) -> Programs {
        Programs { packed: Some(folder), ..Programs::default() }
    }

    /// The folder of the Python scripts.
    pub(super) fn scripts(&self) -> &Path {
        let folder = self.scripts.as_ref().or(self.bench.as_ref()).or(self.packed.as_ref());
        folder.map_or(Path::new("."), PathBuf::as_path)
    }

    /// A program: the given one, the packed one, or a new build.
    pub(super) fn program(&self, build: &Build) -> Result<PathBuf, String> {
        let Build { package, profile, features, native } = *build;
        let path = match (&self.kiln, &self.packed, &self.bench) {
            (Some(kiln), ..) if package == Build::KILN.package => kiln.clone(),
            (_, Some(folder), _) => folder.join(package),
            (_, _, Some(bench)) => {
                let target = if native { "target/peers" } else { "target" };
                let mut command = process::cargo(bench);
                command.args([
                    "build",
                    "--profile",
                    profile,
                    "--quiet",
                    "--target-dir",
                    target,
                    "-p",
                    package,
                ]);
                if native {
                    command.env("RUSTFLAGS", "-C target-cpu=native");
                }
                process::run(command.args(features))?;
                bench.join(target).join(profile).join(package)
            }
            (_, None, None) => return Err(format!("{package} is neither given nor built")),
        };
        if path.is_file() { Ok(path) } else { Err(format!("there is no program {}", path.display())) }
    }
}

/// Builds the programs, and packs them with this one and a script that runs them. Prints the archive, which has its size
/// checked.
///
/// Burn's program is left out if it does not build.
pub(super) fn pack(programs: &Programs) -> Result<ExitCode, String> {
    let Some(bench) = &programs.bench else {
        return Err(format!("{PACK} beside {PROGRAMS}\n  hint: {PACK} builds the programs of this tree"));
    };
    let this = std::env::current_exe().map_err(|error| format!("this program is not found: {error}"))?;
    let kiln = &Build::KILN_FOR_GPU;
    let mut packed = vec![("xtask", this), (kiln.package, programs.program(kiln)?)];
    match programs.program(&Build::BURN_FOR_VULKAN) {
        Ok(path) => packed.push((Build::BURN_FOR_VULKAN.package, path)),
        Err(reason) => eprintln!("packed without Burn: {reason}"),
    }
    let folder = bench.join("target/gpu-bench");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(at(&folder))?;
    }
    std::fs::create_dir_all(&folder).map_err(at(&folder))?;
    for (name, path) in packed {
        let copy = folder.join(name);
        std::fs::copy(&path, &copy).map_err(at(&path))?;
        process::run(process::program("strip", &folder).arg(&copy))
            .map_err(|error| format!("{error}\n  hint: `strip` comes with binutils"))?;
    }
    let script = folder.join("run.sh");
    std::fs::write(&script, RUN).map_err(at(&script))?;
    bundle::make_executable(&script).map_err(at(&script))?;
    let archive = bundle::archive(TAR, &folder)?;
    let size = std::fs::metadata(&archive).map_err(at(&archive))?.len();
    bundle::check_size(size)?;
    println!("{} in {}", bundle::mebibytes(size), archive.display());
    println!("on a machine with a GPU: {}/run.sh vulkan, or kernels", folder.display());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_folder_is_not_packed_again() {
        let programs = Programs::packed("/nowhere".into());
        assert!(pack(&programs).unwrap_err().contains("--pack beside --programs"));
        assert!(programs.program(&Build::KILN_FOR_GPU).unwrap_err().contains("/nowhere/bench-kiln"));
    }

    #[test]
    #[cfg(unix)]
    fn the_script_passes_its_folder() {
        let folder = std::env::temp_dir().join(format!("kiln-xtask-gpu-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in [("run.sh", RUN), ("xtask", "#!/bin/sh\necho \"$@\"\n")] {
            std::fs::write(folder.join(name), text).unwrap();
            bundle::make_executable(&folder.join(name)).unwrap();
        }
        let said = |words: &[&str]| {
            process::output(process::program("bash", &folder).arg("run.sh").args(words)).unwrap()
        };
        let (plain, kernels) = (said(&[]), said(&["kernels", "--only", "sort"]));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(plain.starts_with("bench vulkan --programs /"), "{plain}");
        assert!(kernels.starts_with("bench kernels --programs ") && kernels.ends_with("--only sort\n"));
    }
}
