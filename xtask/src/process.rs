//! Starts other programs without standard input, in the environment of the user's shell.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A command of the running cargo, in `directory`.
pub(crate) fn cargo(directory: &Path) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(directory).stdin(Stdio::null());
    strip_package_variables(&mut command);
    command
}

/// A command of another program, in `directory`.
pub(crate) fn program(name: &str, directory: &Path) -> Command {
    let mut command = Command::new(name);
    command.current_dir(directory).stdin(Stdio::null());
    strip_package_variables(&mut command);
    command
}

/// `cargo run` describes the package it runs in the environment. Build scripts that watch these variables would
/// see xtask's values and build again each time a user changes between `cargo xtask test` and `cargo test`.
fn strip_package_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
}

/// The command as shell text, with added environment variables first. A program below the folder of the command has its
/// path, any other its name.
pub(crate) fn describe(command: &Command) -> String {
    let assignments = command.get_envs().filter_map(|(name, value)| {
        value.map(|value| format!("{}={}", name.to_string_lossy(), quoted(&value.to_string_lossy())))
    });
    let program = Path::new(command.get_program());
    let below = command.get_current_dir().and_then(|folder| program.strip_prefix(folder).ok());
    let program = below.or(program.file_name().map(Path::new)).unwrap_or(program).to_string_lossy();
    let arguments = command.get_args().map(|argument| quoted(&argument.to_string_lossy()));
    assignments.chain([program.into_owned()]).chain(arguments).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    if word.contains([' ', '"', '$', '*']) { format!("'{word}'") } else { word.to_owned() }
}

/// Runs a command to completion with inherited output; a nonzero status is an error.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| cannot_start(command, &error))?;
    if status.success() { Ok(()) } else { Err(format!("{status} from `{}`", describe(command))) }
}

/// Prints a command and runs it to completion.
pub(crate) fn announce_and_run(command: &mut Command) -> Result<(), String> {
    println!("$ {}", describe(command));
    run(command)
}

/// Runs a command to completion and returns standard output; standard error is inherited.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let done = command.stderr(Stdio::inherit()).output().map_err(|error| cannot_start(command, &error))?;
    if done.status.success() {
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    } else {
        Err(format!("{} from `{}`", done.status, describe(command)))
    }
}

/// Whether the program starts and exits with status zero; its output is discarded.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Runs a command to completion, passes each line of output and error to `see` in order, and prints it.
pub(crate) fn run_and_see(command: &mut Command, mut see: impl FnMut(&str)) -> Result<(), String> {
    let said = describe(command);
    let piped = std::io::pipe().and_then(|(reader, writer)| Ok((reader, writer.try_clone()?, writer)));
    let (reader, stdout, stderr) = piped.map_err(|error| format!("no pipe for `{said}`: {error}"))?;
    command.stdout(stdout).stderr(stderr);
    let mut child = command.spawn().map_err(|error| cannot_start(command, &error))?;
    // The command holds the write ends; the reader ends only after they are closed.
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(|error| error.to_string())? > 0 {
        std::io::stdout().write_all(&line).map_err(|error| error.to_string())?;
        see(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("{status} from `{said}`")) }
}

/// Runs a command to completion, or kills it after `limit`.
pub(crate) fn run_within(command: &mut Command, limit: Duration) -> Result<(), String> {
    let mut child = command.spawn().map_err(|error| cannot_start(command, &error))?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return if status.success() { Ok(()) } else { Err(format!("{status}")) };
        }
        if started.elapsed() > limit {
            child.kill().map_err(|error| error.to_string())?;
            child.wait().map_err(|error| error.to_string())?;
            return Err(format!("no answer within {} s", limit.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Prefixes a file-system error with the path.
pub(crate) fn at(path: &Path) -> impl FnOnce(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    format!("cannot start `{}`: {error}", describe(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = program("sh", Path::new("."));
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failing_program_is_an_error_that_names_it() {
        let error = run(&mut shell("exit 3")).unwrap_err();
        assert!(error.contains('3') && error.contains("sh -c 'exit 3'"), "{error}");
    }

    #[test]
    fn lines_are_passed_in_order_and_stdin_is_empty() {
        let mut lines = Vec::new();
        run_and_see(&mut shell("cat; echo one; echo two >&2; echo three"), |line| {
            lines.push(line.to_owned())
        })
        .unwrap();
        assert_eq!(lines, ["one", "two", "three"]);
    }

    #[test]
    fn a_program_past_its_limit_is_stopped() {
        let started = Instant::now();
        let error = run_within(&mut shell("exec sleep 30"), Duration::from_millis(200)).unwrap_err();
        assert!(error.contains("no answer"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_description_shows_added_variables() {
        let mut command = program("rustdoc", Path::new("."));
        command.env("RUSTDOCFLAGS", "-D warnings").arg("--test");
        assert_eq!(describe(&command), "RUSTDOCFLAGS='-D warnings' rustdoc --test");
        assert_eq!(describe(&program("/src/target/debug/kiln", Path::new("/src"))), "target/debug/kiln");
        assert_eq!(describe(&program("/bin/cargo", Path::new("/src"))), "cargo");
    }
}
