//! A terminal of tmux: starts a command, sends keys, reads the screen.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::process;

/// The longest time until an expected text is on the screen.
const LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(30);

/// A terminal with a tmux server of its own, which ends when it is dropped.
pub(crate) struct Terminal {
    socket: String,
    /// The file with the id of the program's process.
    id_file: PathBuf,
}

/// The state of a terminal that programs change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) alternate_screen: bool,
    pub(crate) mouse: bool,
    pub(crate) cursor: bool,
}

impl State {
    /// The state of a shell.
    pub(crate) const NORMAL: State = State { alternate_screen: false, mouse: false, cursor: true };
    /// The state under a dashboard.
    pub(crate) const DASHBOARD: State = State { alternate_screen: true, mouse: true, cursor: false };
}

impl Terminal {
    /// Starts a program with arguments as shell text, with environment variables such as `NO_COLOR=1`. After the program,
    /// the terminal shows `status CODE`, and `icanon` or `-icanon`.
    pub(crate) fn start(
        size: (u16, u16),
        variables: &str,
        program: &Path,
        arguments: &str,
    ) -> Result<Terminal, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let socket = format!("kiln-dashboard-{}-{number}", std::process::id());
        let id_file = std::env::temp_dir().join(format!("{socket}.id"));
        let terminal = Terminal { socket, id_file };
        // `exec` keeps the process id, and redirections in the arguments apply to the program alone.
        let script = format!(
            "unset NO_COLOR COLORTERM; echo ready; (echo $(exec sh -c 'echo $PPID') >{id}; exec env {variables} {program} {arguments}); \
             echo \"status $?\"; stty -a | grep -o -e '-*icanon'; exec cat",
            id = terminal.id_file.display(),
            program = program.display(),
        );
        let (width, height) = (size.0.to_string(), size.1.to_string());
        let mut command =
            terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height]);
        command.args(["sh", "-c", &script]).env("TERM", "xterm-256color");
        process::run(&mut command)?;
        Ok(terminal)
    }

    /// Returns the text of the screen.
    pub(crate) fn text(&self) -> Result<String, String> {
        process::output(&mut self.tmux(&["capture-pane", "-p"]))
    }

    /// Returns the text of the screen with escape sequences of colours.
    pub(crate) fn colored_text(&self) -> Result<String, String> {
        process::output(&mut self.tmux(&["capture-pane", "-e", "-p"]))
    }

    /// Returns the state of the terminal.
    pub(crate) fn state(&self) -> Result<State, String> {
        let format = "#{alternate_on} #{mouse_any_flag} #{cursor_flag}";
        let flags = process::output(&mut self.tmux(&["display-message", "-p", format]))?;
        let flags: Vec<bool> = flags.split_whitespace().map(|flag| flag == "1").collect();
        match flags[..] {
            [alternate_screen, mouse, cursor] => Ok(State { alternate_screen, mouse, cursor }),
            [..] => Err(format!("tmux has no such flags: {flags:?}")),
        }
    }

    /// Sends keys by tmux's names, such as `Right` and `C-c`.
    pub(crate) fn keys(&self, keys: &[&str]) -> Result<(), String> {
        process::run(self.tmux(&["send-keys"]).args(keys))
    }

    /// Clicks with the left button at a column and row, counted from 0.
    pub(crate) fn click(&self, column: usize, row: usize) -> Result<(), String> {
        let press = format!("\u{1b}[<0;{};{}M", column + 1, row + 1);
        process::run(&mut self.tmux(&["send-keys", "-l", &press]))
    }

    /// Turns the wheel down at a column and row, counted from 0.
    pub(crate) fn wheel_down(&self, column: usize, row: usize) -> Result<(), String> {
        let turn = format!("\u{1b}[<65;{};{}M", column + 1, row + 1);
        process::run(&mut self.tmux(&["send-keys", "-l", &turn]))
    }

    /// Changes the size.
    pub(crate) fn resize(&self, (width, height): (u16, u16)) -> Result<(), String> {
        process::run(&mut self.tmux(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]))
    }

    /// Sends a signal to the program, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) -> Result<(), String> {
        let id = std::fs::read_to_string(&self.id_file).map_err(process::at(&self.id_file))?;
        process::run(process::program("kill", Path::new(".")).args(["-s", name, id.trim()]))
    }

    /// Waits until the screen contains a text, and returns the screen.
    pub(crate) fn wait_for(&self, text: &str) -> Result<String, String> {
        self.wait_until(&format!("`{text}`"), |screen| screen.contains(text))
    }

    /// Waits until the screen has a property, and returns the screen.
    pub(crate) fn wait_until(&self, property: &str, has: impl Fn(&str) -> bool) -> Result<String, String> {
        self.wait_within(LIMIT, property, has)
    }

    /// Waits until the screen has a property, for `limit` at most, and returns the screen.
    pub(crate) fn wait_within(
        &self,
        limit: Duration,
        property: &str,
        has: impl Fn(&str) -> bool,
    ) -> Result<String, String> {
        let started = Instant::now();
        loop {
            let screen = self.text()?;
            if has(&screen) {
                return Ok(screen);
            }
            if started.elapsed() > limit {
                return Err(format!("no {property} within {} s on the screen\n{screen}", limit.as_secs()));
            }
            std::thread::sleep(POLL);
        }
    }

    fn tmux(&self, words: &[&str]) -> Command {
        let mut command = process::program("tmux", Path::new("."));
        // `-u`: the screen is read as UTF-8 whatever the locale is.
        command.args(["-u", "-L", &self.socket]).args(words).env_remove("TMUX");
        command
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The server may have ended, and the program may never have started.
        process::succeeds(&mut self.tmux(&["kill-server"]));
        let _ = std::fs::remove_file(&self.id_file);
    }
}
