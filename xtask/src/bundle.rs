//! `cargo xtask bundle`: test programs for a machine that has no Rust.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;

use crate::args::{Accepts, Args};
use crate::process::{self, at};
use crate::workspace::Workspace;

const ACCEPTS: Accepts = Accepts { flags: &[], options: &["--bin", "--profile"], words: true };
const LARGEST: u64 = 60 << 20;

/// One program to pack.
#[derive(Debug, PartialEq)]
struct Program {
    /// File name in the bundle, such as `kiln-cpu-test-edges`.
    name: String,
    /// Folder of its package, relative to the root.
    folder: String,
    /// Where cargo put it.
    path: PathBuf,
    /// Tests are run by `run.sh`; other programs are only packed.
    test: bool,
}

/// `cargo xtask bundle PACKAGE...`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let workspace = Workspace::load()?;
    if args.words.is_empty() {
        return Err("no package named\n  hint: cargo xtask bundle kiln-cpu kiln-suite".to_owned());
    }
    if let Some(unknown) = args.words.iter().find(|name| workspace.package(name).is_none()) {
        return Err(format!("the workspace has no package `{unknown}`"));
    }
    let profile = args.last("--profile").unwrap_or("release");
    let mut programs = build(&workspace, &args.words, profile, &["test", "--no-run"])?;
    for name in args.all("--bin") {
        programs.extend(build(&workspace, &args.words, profile, &["build", "--bin", name])?);
    }
    let bundle = workspace.target.join("bundle");
    pack(&programs, &bundle, &workspace.root)?;
    let size = folder_size(&bundle)?;
    println!("{} programs, {} in {}", programs.len(), mebibytes(size), bundle.display());
    check_size(size)?;
    Ok(ExitCode::SUCCESS)
}

fn build(
    workspace: &Workspace,
    packages: &[String],
    profile: &str,
    what: &[&str],
) -> Result<Vec<Program>, String> {
    let mut command = process::cargo(&workspace.root);
    command.args(what).args(["--profile", profile, "--message-format=json-render-diagnostics"]);
    command.args(packages.iter().flat_map(|name| ["-p", name]));
    let messages = process::output(&mut command)?;
    Ok(programs(&messages, workspace))
}

/// The programs among cargo's JSON messages.
fn programs(messages: &str, workspace: &Workspace) -> Vec<Program> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let read = |message: Value| {
        let path = PathBuf::from(message["executable"].as_str()?);
        let manifest = PathBuf::from(message["manifest_path"].as_str()?);
        let folder =
            manifest.parent()?.strip_prefix(&workspace.root).ok()?.to_string_lossy().replace('\\', "/");
        let package = workspace.packages.iter().find(|package| package.folder == folder)?;
        let kind = message["target"]["kind"][0].as_str()?;
        let test = message["profile"]["test"].as_bool()?;
        // Cargo also builds the examples, so that tests can start them: they are not packed.
        if !test && kind != "bin" {
            return None;
        }
        let name = format!("{}-{kind}-{}", package.name, message["target"]["name"].as_str()?);
        Some(Program { name, folder, path, test })
    };
    messages.filter_map(read).collect()
}

fn pack(programs: &[Program], bundle: &Path, root: &Path) -> Result<(), String> {
    if bundle.exists() {
        std::fs::remove_dir_all(bundle).map_err(at(bundle))?;
    }
    std::fs::create_dir_all(bundle).map_err(at(bundle))?;
    for program in programs {
        let copy = bundle.join(&program.name);
        std::fs::copy(&program.path, &copy).map_err(at(&program.path))?;
        process::run(process::program("strip", root).arg(&copy))
            .map_err(|error| format!("{error}\n  hint: `strip` comes with binutils"))?;
    }
    let script = bundle.join("run.sh");
    std::fs::write(&script, run_script(programs)).map_err(at(&script))?;
    make_executable(&script).map_err(at(&script))
}

#[cfg(unix)]
fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> std::io::Result<()> {
    Ok(())
}

/// Runs every test program in its package's folder, as cargo does, where a checkout is at hand.
fn run_script(programs: &[Program]) -> String {
    let mut script = "#!/usr/bin/env bash\n\
        # Runs the packed tests. Arguments go to each program. KILN_ROOT names a checkout for tests that read files\n\
        # of the repository; without it they run in this folder.\n\
        set -uo pipefail\n\
        here=$(cd \"$(dirname \"$0\")\" && pwd)\n\
        root=$(cd \"${KILN_ROOT:-$here}\" && pwd) || exit 1\n\
        passed=0 failed=0\n\
        run() {\n\
        \x20 local folder=\"$root/$1\" program=\"$2\"\n\
        \x20 shift 2\n\
        \x20 [ -d \"$folder\" ] || folder=$here\n\
        \x20 echo \"=== $program\"\n\
        \x20 if (cd \"$folder\" && CARGO_MANIFEST_DIR=$folder \"$here/$program\" \"$@\" </dev/null); then\n\
        \x20   passed=$((passed + 1))\n\
        \x20 else\n\
        \x20   failed=$((failed + 1))\n\
        \x20 fi\n\
        }\n"
        .to_owned();
    for program in programs.iter().filter(|program| program.test) {
        script += &format!("run {} {} \"$@\"\n", program.folder, program.name);
    }
    script + "echo \"$passed passed, $failed failed\"\n[ \"$failed\" -eq 0 ]\n"
}

fn folder_size(folder: &Path) -> Result<u64, String> {
    let entries = std::fs::read_dir(folder).map_err(at(folder))?;
    Ok(entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum())
}

fn check_size(size: u64) -> Result<(), String> {
    if size <= LARGEST {
        return Ok(());
    }
    let (size, largest) = (mebibytes(size), mebibytes(LARGEST));
    Err(format!("the bundle has {size}, more than {largest}\n  hint: name fewer packages"))
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    #[test]
    fn test_programs_are_read_from_messages() {
        let package = Package { name: "kiln-cpu".into(), folder: "crates/cpu".into(), ..Package::default() };
        let workspace = Workspace { root: "/src".into(), packages: vec![package], ..Workspace::default() };
        let message = |kind: &str, test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": "/src/crates/cpu/Cargo.toml",
                "executable": "/t/x-1", "target": {"name": "edges", "kind": [kind]}, "profile": {"test": test},
            })
        };
        let lines = format!("{}\n{}\n{{}}\n", message("test", true), message("example", false));
        let found = programs(&lines, &workspace);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].test), ("kiln-cpu-test-edges", true));
    }

    #[test]
    fn the_script_counts_failures() {
        let folder = std::env::temp_dir().join(format!("kiln-xtask-bundle-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let program =
            |name: &str| Program { name: name.into(), folder: "x".into(), path: name.into(), test: true };
        for (name, body) in [("good", "exit 0"), ("bad", "exit 1")] {
            std::fs::write(folder.join(name), format!("#!/bin/sh\n{body}\n")).unwrap();
            make_executable(&folder.join(name)).unwrap();
        }
        std::fs::write(folder.join("run.sh"), run_script(&[program("good"), program("bad")])).unwrap();
        let done = process::program("bash", &folder).arg("run.sh").output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(!done.status.success());
        assert!(String::from_utf8_lossy(&done.stdout).ends_with("1 passed, 1 failed\n"));
    }

    #[test]
    fn a_bundle_over_the_limit_is_an_error_with_its_size() {
        assert_eq!(check_size(LARGEST), Ok(()));
        assert!(check_size(LARGEST + (1 << 20)).unwrap_err().contains("61.0 MiB"));
    }
}
