//! `cargo xtask pictures`: the pictures of README.md, from a run of the example mnist.
//!
//! The example runs in a terminal of tmux. Its screen becomes an HTML page, and headless Chromium makes a picture of it,
//! and of the report that `kiln runs report` writes of the run.

mod screen;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use crate::args::{Accepts, Args};
use crate::dashboard;
use crate::dashboard::tmux::Terminal;
use crate::process;
use crate::workspace::Workspace;

const ACCEPTS: Accepts = Accepts { flags: &[], options: &["--program", "--command"], words: false };

/// The folder of the pictures, in the repository.
const FOLDER: &str = "docs/pictures";
/// The greatest size of a picture in bytes.
const MAX_BYTES: u64 = 150_000;

/// The size of the terminal in cells, and of the page of the report in pixels.
const TERMINAL: (u16, u16) = (120, 36);
const REPORT: (usize, usize) = (1200, 1040);

/// The arguments of the example. The picture is taken when the last epoch has this many of its batches.
const ARGUMENTS: &str = "--epochs 3";
const LAST_EPOCH: &str = " epoch 3/3 ";
const BATCHES: (u64, &str) = (500, "/938 ");

const TRAINING_LIMIT: Duration = Duration::from_secs(1200);
const BROWSER_LIMIT: Duration = Duration::from_secs(60);

/// `cargo xtask pictures`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let workspace = Workspace::load()?;
    dashboard::has_tmux(&workspace.root, false)?;
    has_browser(&workspace.root)?;
    let given =
        |option| args.last(option).map(|path| std::path::absolute(path).map_err(process::at(path.as_ref())));
    let example = given("--program").unwrap_or_else(|| build_example(&workspace))?;
    let kiln = given("--command").unwrap_or_else(|| build_command(&workspace))?;
    let pictures = workspace.root.join(FOLDER);
    // The screen shows paths relative to this folder, and none of this machine.
    enter_empty(&workspace.target.join("xtask/pictures"))?;
    let [screen, report] = [Path::new("screen.html"), Path::new("report.html")];
    fs::write(screen, screen::page(&train(&example)?)).map_err(process::at(screen))?;
    picture(screen, screen::page_size(TERMINAL), &pictures.join("dashboard.png"))?;
    let mut command = process::program(&kiln.to_string_lossy(), Path::new("."));
    process::run(command.args(["runs", "report", "mnist", "--root", "out/mnist/runs", "-o"]).arg(report))?;
    picture(report, REPORT, &pictures.join("report.png"))?;
    Ok(ExitCode::SUCCESS)
}

fn has_browser(root: &Path) -> Result<(), String> {
    let is_installed = process::succeeds(process::program("chromium", root).arg("--version"));
    if is_installed {
        Ok(())
    } else {
        Err("chromium is not installed; `apt-get install chromium` adds it".to_owned())
    }
}

fn build_example(workspace: &Workspace) -> Result<PathBuf, String> {
    let mut command = process::cargo(&workspace.root);
    process::run(command.args(["build", "--release", "-p", "kiln-examples", "--example", "mnist"]))?;
    Ok(workspace.target.join("release/examples/mnist"))
}

fn build_command(workspace: &Workspace) -> Result<PathBuf, String> {
    let mut command = process::cargo(&workspace.root);
    process::run(command.args(["build", "-p", "kiln-command"]))?;
    Ok(workspace.target.join("debug/kiln"))
}

/// Makes an empty folder the current one.
fn enter_empty(folder: &Path) -> Result<(), String> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(process::at(folder))?;
    }
    fs::create_dir_all(folder).map_err(process::at(folder))?;
    std::env::set_current_dir(folder).map_err(process::at(folder))
}

/// Trains to the end, and returns the screen of the last epoch with escape sequences.
fn train(example: &Path) -> Result<String, String> {
    let terminal = Terminal::start(TERMINAL, "TERM=xterm-256color", example, ARGUMENTS)?;
    let (least, _) = BATCHES;
    let is_late = |screen: &str| screen.contains(LAST_EPOCH) && batches(screen) >= Some(least);
    terminal.wait_within(TRAINING_LIMIT, &format!("batch {least} of{LAST_EPOCH}"), is_late)?;
    let screen = terminal.colored_text()?;
    let end = terminal.wait_within(TRAINING_LIMIT, "end", |screen| screen.contains("status "))?;
    if end.contains("test accuracy: ") && end.contains("status 0") {
        Ok(screen)
    } else {
        Err(format!("the example failed\n{end}"))
    }
}

/// The number of batches of the epoch that a screen shows.
fn batches(screen: &str) -> Option<u64> {
    let (_, of_all) = BATCHES;
    let before = screen.split_once(of_all)?.0;
    before.rsplit(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// Makes a picture of a page in the current folder.
fn picture(page: &Path, (width, height): (usize, usize), output: &Path) -> Result<(), String> {
    let page = std::path::absolute(page).map_err(process::at(page))?;
    let folder = output.parent().ok_or("the picture has no folder")?;
    fs::create_dir_all(folder).map_err(process::at(folder))?;
    process::run_within(&mut browser(&page, (width, height), output)?, BROWSER_LIMIT)
        .map_err(|error| format!("chromium: {error}"))?;
    let bytes = fs::metadata(output).map_err(process::at(output))?.len();
    println!("{}: {width} x {height}, {} kB", output.display(), bytes.div_ceil(1000));
    if bytes <= MAX_BYTES { Ok(()) } else { Err(format!("a picture has at most {MAX_BYTES} bytes")) }
}

fn browser(page: &Path, (width, height): (usize, usize), output: &Path) -> Result<Command, String> {
    let profile = std::path::absolute("profile").map_err(process::at(Path::new("profile")))?;
    let mut command = process::program("chromium", Path::new("."));
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--virtual-time-budget=5000",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--window-size={width},{height}"))
        .arg(format!("--screenshot={}", output.display()))
        .arg(format!("file://{}", page.display()))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_read_from_the_screen() {
        assert_eq!(batches("│ epoch 3/3 ███  512/938 55 %"), Some(512));
        assert_eq!(batches("│ epoch 3/3 ███ 512/1000"), None);
        assert_eq!(batches("reading the MNIST training images"), None);
    }
}
