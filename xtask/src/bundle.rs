//! `cargo xtask bundle`: test programs for a machine that has no Rust, in a folder and as an archive of it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;

use crate::args::{Accepts, Args};
use crate::gpu;
use crate::process::{self, at};
use crate::workspace::{Package, Workspace};

const ACCEPTS: Accepts =
    Accepts { flags: &["--gpu"], options: &["--bin", "--example", "--features", "--profile"], words: true };
/// Maximum bytes of an archive.
const LARGEST: u64 = 60 << 20;
/// The program that makes archives.
pub(crate) const TAR: &str = "tar";

/// One program to pack.
#[derive(Debug, PartialEq)]
struct Program {
    /// File name in the bundle, such as `kiln-cpu-test-edges`.
    name: String,
    /// Folder of its package, relative to the root.
    folder: String,
    /// The path of the built program.
    path: PathBuf,
    /// Tests are run by `run.sh`; other programs are only packed.
    test: bool,
}

/// The contents of a bundle.
#[derive(Debug, Default)]
struct Contents {
    /// Packages whose tests are bundled.
    packages: Vec<String>,
    /// Programs of the packages.
    bins: Vec<String>,
    /// Examples of any package.
    examples: Vec<String>,
    /// Features for the build of programs, of the form `PACKAGE/FEATURE` with a bundled package, and of examples.
    features: Vec<String>,
}

impl Contents {
    fn of(args: &Args, workspace: &Workspace) -> Result<Contents, String> {
        let all = |option: &str| args.all(option).into_iter().map(str::to_owned).collect();
        let mut contents = Contents {
            packages: args.words.clone(),
            bins: all("--bin"),
            examples: all("--example"),
            features: all("--features"),
        };
        if args.has("--gpu") {
            for engine in gpu::engines(workspace) {
                contents.packages.push(engine.package.to_owned());
                contents.features.push(engine.feature.to_owned());
            }
            contents.examples.push("mnist".to_owned());
        }
        let unknown_package = contents.packages.iter().find(|name| workspace.package(name).is_none());
        if let Some(unknown) = unknown_package {
            return Err(format!("the workspace has no package `{unknown}`"));
        }
        if let Some(unknown) = contents.examples.iter().find(|name| !workspace.has_target("example", name)) {
            return Err(format!("the workspace has no example `{unknown}`"));
        }
        if contents.packages.is_empty() && contents.examples.is_empty() {
            return Err("no package named\n  hint: cargo xtask bundle kiln-cpu kiln-suite".to_owned());
        }
        Ok(contents)
    }

    fn build(&self, workspace: &Workspace, profile: &str) -> Result<Vec<Program>, String> {
        let mut programs = Vec::new();
        if !self.packages.is_empty() {
            let packages: Vec<&str> = self.packages.iter().flat_map(|name| ["-p", name]).collect();
            programs.extend(build(workspace, profile, "test", &[&["--no-run"], &packages[..]].concat())?);
            let features = self.features(true);
            let features: &[&str] = if features.is_empty() { &[] } else { &["--features", &features] };
            for name in &self.bins {
                let arguments = [&["--bin", name], features, &packages[..]].concat();
                programs.extend(build(workspace, profile, "bin", &arguments)?);
            }
        }
        for name in &self.examples {
            let has = |package: &&Package| {
                package.targets.iter().any(|target| target.kind == "example" && target.name == *name)
            };
            let package = workspace.packages.iter().find(has).map_or("", |package| &package.name);
            let features = self.features(false);
            let arguments = ["-p", package, "--example", name, "--features", &features];
            programs.extend(build(workspace, profile, "example", &arguments)?);
        }
        Ok(programs)
    }

    /// The features of programs of the bundled packages, or of examples.
    fn features(&self, of_programs: bool) -> String {
        let is_of_package = |feature: &&String| {
            let package = feature.split_once('/').map(|(package, _)| package);
            package.is_some_and(|package| self.packages.iter().any(|name| name == package))
        };
        let features = self.features.iter().filter(|feature| is_of_package(feature) == of_programs);
        features.map(String::as_str).collect::<Vec<_>>().join(",")
    }
}

/// `cargo xtask bundle PACKAGE...`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let workspace = Workspace::load()?;
    let contents = Contents::of(&args, &workspace)?;
    let programs = contents.build(&workspace, args.last("--profile").unwrap_or("release"))?;
    let bundle = workspace.target.join("bundle");
    pack(&programs, &bundle, &workspace.root)?;
    let archive = archive(TAR, &bundle)?;
    let size = std::fs::metadata(&archive).map_err(at(&archive))?.len();
    println!("{} programs, {} in {}", programs.len(), mebibytes(size), archive.display());
    check_size(size)?;
    Ok(ExitCode::SUCCESS)
}

/// Builds programs of one kind: `test`, `bin` or `example`.
fn build(
    workspace: &Workspace,
    profile: &str,
    kind: &str,
    arguments: &[&str],
) -> Result<Vec<Program>, String> {
    let mut command = process::cargo(&workspace.root);
    command.arg(if kind == "test" { "test" } else { "build" });
    command.args(["--profile", profile, "--message-format=json-render-diagnostics"]).args(arguments);
    let messages = process::output(&mut command)?;
    Ok(programs(&messages, kind, workspace))
}

/// The programs of one kind among cargo's JSON messages.
fn programs(messages: &str, wanted: &str, workspace: &Workspace) -> Vec<Program> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let read = |message: Value| {
        let path = PathBuf::from(message["executable"].as_str()?);
        let manifest = PathBuf::from(message["manifest_path"].as_str()?);
        let folder =
            manifest.parent()?.strip_prefix(&workspace.root).ok()?.to_string_lossy().replace('\\', "/");
        let package = workspace.packages.iter().find(|package| package.folder == folder)?;
        let kind = message["target"]["kind"][0].as_str()?;
        let test = message["profile"]["test"].as_bool()?;
        // Cargo also builds examples and programs, so that tests can start them: these are not packed.
        if if test { wanted != "test" } else { wanted != kind } {
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
    for (name, text) in [("run.sh", run_script(programs)), ("apart.sh", apart_script(programs))] {
        let script = bundle.join(name);
        std::fs::write(&script, text).map_err(at(&script))?;
        make_executable(&script).map_err(at(&script))?;
    }
    Ok(())
}

/// Packs a folder with the program `tar` into a gzip archive beside it, `FOLDER.tar.gz`, and returns the archive's path.
/// Unpacking it restores the folder.
pub(crate) fn archive(tar: &str, folder: &Path) -> Result<PathBuf, String> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Err(format!("{}: not a folder that can be packed", folder.display()));
    };
    let mut file = name.to_owned();
    file.push(".tar.gz");
    process::run(process::program(tar, parent).arg("-czf").arg(&file).arg(name))
        .map_err(|error| format!("{error}\n  hint: the archive is made by the program `tar`, with `gzip`"))?;
    Ok(parent.join(file))
}

#[cfg(unix)]
pub(crate) fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
pub(crate) fn make_executable(_: &Path) -> std::io::Result<()> {
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

/// Runs every test in a process of its own, many at once.
fn apart_script(programs: &[Program]) -> String {
    let tests = programs.iter().filter(|program| program.test);
    let lines: Vec<String> = tests.map(|program| format!("{} {}", program.folder, program.name)).collect();
    include_str!("../templates/apart.sh").replace("@PROGRAMS@", &lines.join("\n"))
}

/// Refuses an archive that is larger than a bundle may be.
pub(crate) fn check_size(size: u64) -> Result<(), String> {
    if size <= LARGEST {
        return Ok(());
    }
    let (size, largest) = (mebibytes(size), mebibytes(LARGEST));
    Err(format!("the archive has {size}, more than {largest}\n  hint: name fewer packages"))
}

pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(programs(&lines, "example", &workspace).len(), 1);
        let found = programs(&lines, "test", &workspace);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].test), ("kiln-cpu-test-edges", true));
    }

    #[test]
    fn features_of_bundled_packages_are_those_of_programs() {
        let contents = Contents {
            packages: vec!["kiln-fuzz".into()],
            features: vec!["kiln-fuzz/wgpu".into(), "cuda".into(), "kiln-examples/models".into()],
            ..Contents::default()
        };
        assert_eq!(contents.features(true), "kiln-fuzz/wgpu");
        assert_eq!(contents.features(false), "cuda,kiln-examples/models");
    }

    /// Runs a script in a folder with these shell scripts as programs. Returns its output and whether it succeeds.
    #[cfg(unix)]
    fn run_scripts(name: &str, bodies: &[(&str, &str)], script: fn(&[Program]) -> String) -> (String, bool) {
        let folder = std::env::temp_dir().join(format!("kiln-xtask-bundle-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let program =
            |name: &str| Program { name: name.into(), folder: "x".into(), path: name.into(), test: true };
        for (name, body) in bodies {
            std::fs::write(folder.join(name), format!("#!/bin/sh\n{body}\n")).unwrap();
            make_executable(&folder.join(name)).unwrap();
        }
        let programs: Vec<Program> = bodies.iter().map(|(name, _)| program(name)).collect();
        std::fs::write(folder.join("run.sh"), script(&programs)).unwrap();
        let done = process::program("bash", &folder).args(["run.sh", "--include-ignored"]).output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let said = [done.stdout, done.stderr].concat();
        (String::from_utf8_lossy(&said).into_owned(), done.status.success())
    }

    #[test]
    #[cfg(unix)]
    fn the_script_counts_failures() {
        let (said, ended_well) = run_scripts("all", &[("good", "exit 0"), ("bad", "exit 1")], run_script);
        assert!(!ended_well);
        assert!(said.ends_with("1 passed, 1 failed\n"), "{said}");
    }

    #[test]
    #[cfg(unix)]
    fn tests_run_in_separate_processes_are_counted() {
        // Simulates a test program: it lists its tests and runs the given one.
        let body = r#"
            case "$*" in
              *--list*) printf 'one: test\ntwo::three: test\nfour: test\nfive: benchmark\n' ;;
              '--include-ignored --exact one') echo 'test result: ok. 1 passed; 0 failed' ;;
              '--include-ignored --exact two::three') echo 'what broke'; exit 1 ;;
              *) echo 'test result: ok. 0 passed; 0 failed; 1 ignored' ;;
            esac"#;
        let (said, ended_well) = run_scripts("apart", &[("a", body), ("b", body)], apart_script);
        assert!(!ended_well);
        assert!(said.contains("2 passed, 2 failed, 2 ignored"), "{said}");
        assert!(said.contains("=== a.two--three\nwhat broke"), "{said}");
        let (said, ended_well) = run_scripts("unlisted", &[("a", "exit 3")], apart_script);
        assert!(!ended_well, "{said}");
    }

    /// A folder with one program that prints `hello`, and its parent, which the caller removes.
    #[cfg(unix)]
    fn folder_to_pack(name: &str) -> (PathBuf, PathBuf) {
        let parent = std::env::temp_dir().join(format!("kiln-xtask-archive-{}-{name}", std::process::id()));
        let folder = parent.join("bundle");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("hello"), "#!/bin/sh\necho hello\n").unwrap();
        std::fs::write(folder.join("zeros"), vec![0; 1 << 20]).unwrap();
        make_executable(&folder.join("hello")).unwrap();
        (parent, folder)
    }

    #[test]
    #[cfg(unix)]
    fn programs_of_an_unpacked_archive_run() {
        let (parent, folder) = folder_to_pack("run");
        let archive = archive(TAR, &folder).unwrap();
        assert_eq!(archive, parent.join("bundle.tar.gz"));
        assert!(std::fs::metadata(&archive).unwrap().len() < 1 << 16, "the archive is not compressed");
        let elsewhere = parent.join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        process::run(process::program(TAR, &elsewhere).args(["xzf", "../bundle.tar.gz"])).unwrap();
        let said = process::output(&mut process::program(
            &elsewhere.join("bundle/hello").to_string_lossy(),
            &elsewhere,
        ));
        std::fs::remove_dir_all(&parent).unwrap();
        assert_eq!(said.as_deref(), Ok("hello\n"));
    }

    #[test]
    #[cfg(unix)]
    fn a_missing_tar_is_named() {
        let (parent, folder) = folder_to_pack("missing");
        let problem = archive("no-such-tar", &folder).unwrap_err();
        std::fs::remove_dir_all(&parent).unwrap();
        assert!(problem.contains("cannot start `no-such-tar") && problem.contains("hint: "), "{problem}");
    }

    #[test]
    fn an_archive_over_the_limit_is_an_error_with_its_size() {
        assert_eq!(check_size(LARGEST), Ok(()));
        assert!(check_size(LARGEST + (1 << 20)).unwrap_err().contains("61.0 MiB"));
    }
}
