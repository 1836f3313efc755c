//! The programs of `bench vulkan` and `bench kernels`: built here, or found in a packed folder on a machine without Rust.

use std::path::{Path, PathBuf};

use crate::args::Args;
use crate::bundle::{self, TAR};
use crate::process::{self, at};
use crate::workspace::Workspace;

/// The option that names a packed folder, and the flag that makes one.
pub(super) const PROGRAMS: &str = "--programs";
pub(super) const PACK: &str = "--pack";

/// Kiln's program and Burn's, which are also the names of their packages.
const KILN: &str = "bench-gpu";
const BURN: &str = "bench-burn-gpu";

/// Runs the packed benchmarks.
const RUN: &str = "#!/usr/bin/env bash
# run.sh vulkan|kernels [OPTIONS]: runs a benchmark with the programs of this folder.
set -euo pipefail
here=$(cd \"$(dirname \"$0\")\" && pwd)
kind=${1:-vulkan}
[ $# -eq 0 ] || shift
exec \"$here/xtask\" bench \"$kind\" --programs \"$here\" \"$@\"
";

/// Where the programs are.
pub(super) enum Programs {
    /// In a packed folder.
    Packed(PathBuf),
    /// They are built in this folder, the workspace `bench`.
    Built(PathBuf),
}

impl Programs {
    /// The folder that the option names; without it, the programs of this tree.
    pub(super) fn of(args: &Args) -> Result<Programs, String> {
        match args.last(PROGRAMS).map(Path::new) {
            Some(folder) => folder.canonicalize().map(Programs::Packed).map_err(at(folder)),
            None => Ok(Programs::Built(Workspace::load()?.root.join("bench"))),
        }
    }

    /// Kiln's program.
    pub(super) fn kiln(&self) -> Result<PathBuf, String> {
        self.program(KILN, "release")
    }

    /// Burn's program.
    pub(super) fn burn(&self) -> Result<PathBuf, String> {
        self.program(BURN, "packed")
    }

    fn program(&self, name: &str, profile: &str) -> Result<PathBuf, String> {
        let path = match self {
            Programs::Packed(folder) => folder.join(name),
            Programs::Built(bench) => {
                let mut command = process::cargo(bench);
                command.args(["build", "--profile", profile, "--quiet", "--target-dir", "target"]);
                process::run(command.args(["-p", name]))?;
                bench.join("target").join(profile).join(name)
            }
        };
        if path.is_file() { Ok(path) } else { Err(format!("there is no program {}", path.display())) }
    }
}

/// Builds the programs, and packs them with this one and a script that runs them. Returns the folder and its archive,
/// which has its size checked.
///
/// Burn's program is left out if it does not build.
pub(super) fn pack(programs: &Programs) -> Result<(PathBuf, PathBuf), String> {
    let Programs::Built(bench) = programs else {
        return Err(format!("{PACK} beside {PROGRAMS}\n  hint: {PACK} builds the programs of this tree"));
    };
    let this = std::env::current_exe().map_err(|error| format!("this program is not found: {error}"))?;
    let mut packed = vec![("xtask", this), (KILN, programs.kiln()?)];
    match programs.burn() {
        Ok(path) => packed.push((BURN, path)),
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
    bundle::check_size(std::fs::metadata(&archive).map_err(at(&archive))?.len())?;
    Ok((folder, archive))
}

/// Prints the size and the path of the archive.
pub(super) fn announce((folder, archive): &(PathBuf, PathBuf)) -> Result<(), String> {
    let size = std::fs::metadata(archive).map_err(at(archive))?.len();
    println!("{} in {}", bundle::mebibytes(size), archive.display());
    println!("on a machine with a GPU: {}/run.sh vulkan, or kernels", folder.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_folder_is_not_packed_again() {
        let programs = Programs::Packed("/nowhere".into());
        assert!(pack(&programs).unwrap_err().contains("--pack beside --programs"));
        assert!(programs.kiln().unwrap_err().contains("/nowhere/bench-gpu"));
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
