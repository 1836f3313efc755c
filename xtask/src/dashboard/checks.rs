//! The checks: each starts the demo in a terminal and reads the screen.

use std::path::PathBuf;

use super::tmux::{State, Terminal};

const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (200, 60);
/// A run that lasts longer than any check.
const LONG: &str = "--epochs 1000 --batches 20 --step-ms 10";
/// The greatest mean time of a step in the renderer, on a busy machine in the test profile: 1 % of 5 ms.
const MAX_MICROSECONDS: f64 = 50.0;

/// The context of every check.
pub(super) struct Context {
    /// The built demo.
    pub(super) program: PathBuf,
}

/// A check.
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) run: fn(&Context) -> Result<(), String>,
}

pub(super) const CHECKS: &[Check] = &[
    Check { name: "80x24 shows all panels but the log", run: small_screen },
    Check { name: "200x60 shows log, system and epochs", run: large_screen },
    Check { name: "left and right change the metric", run: metrics },
    Check { name: "up and down change the split", run: splits },
    Check { name: "w changes the window of steps", run: window },
    Check { name: "s changes the smoothing", run: smoothing },
    Check { name: "l shows and hides the log, Tab and up scroll it", run: log },
    Check { name: "? shows the help, Esc closes it", run: help },
    Check { name: "a click and the wheel change the metric", run: mouse },
    Check { name: "a resize draws the other layout", run: resize },
    Check { name: "the end restores the terminal and prints a summary", run: end },
    Check { name: "q stops after the step", run: |context| stops_after_step(context, &["q"]) },
    Check { name: "Ctrl-C stops after the step", run: |context| stops_after_step(context, &["C-c"]) },
    Check { name: "SIGTERM stops after the step", run: |context| signal_stops_after_step(context, "TERM") },
    Check { name: "SIGINT stops after the step", run: |context| signal_stops_after_step(context, "INT") },
    Check {
        name: "a second Ctrl-C ends the process at once",
        run: |context| second_key_exits(context, "C-c"),
    },
    Check { name: "a second q ends the process at once", run: |context| second_key_exits(context, "q") },
    Check { name: "a second SIGTERM ends the process at once", run: second_signal_exits },
    Check { name: "a panic restores the terminal before its message", run: panic },
    Check { name: "an exit of the process restores the terminal", run: exit },
    Check { name: "colours of 256", run: |context| colors(context, "TERM=xterm-256color", true, true) },
    Check { name: "colours of 16", run: |context| colors(context, "TERM=xterm", true, false) },
    Check { name: "NO_COLOR leaves out colours", run: |context| colors(context, "NO_COLOR=1", false, false) },
    Check { name: "a dumb terminal has lines", run: |context| has_lines(context, "TERM=dumb", "") },
    Check { name: "piped output has lines", run: |context| has_lines(context, "", "| cat") },
    Check { name: "piped errors have lines", run: |context| has_lines(context, "", "2>&1 | cat") },
    Check { name: "a step takes little time in the renderer", run: overhead },
];

/// Starts a long run and waits until values of the first validation are shown.
fn long(context: &Context, size: (u16, u16)) -> Result<Terminal, String> {
    let terminal = Terminal::start(size, "", &context.program, LONG)?;
    terminal.wait_for("─ valid ")?;
    Ok(terminal)
}

fn small_screen(context: &Context) -> Result<(), String> {
    let terminal = long(context, SMALL)?;
    let screen = terminal.wait_for("System CPU 42 %")?;
    let parts = [
        "Kiln demo  synthetic curves",
        "Metrics >loss  accuracy  perplexity",
        " loss  ─ train ",
        " whole run, train and valid, EMA 0.6 ",
        " Values ",
        "learning rate 0.001",
        "items/s",
        " Progress ",
        "/20 ",
        "/1000 ",
        "? help  q stop",
    ];
    contains(&screen, &parts)?;
    lacks(&screen, &[" Log ", "in epoch"])?;
    let is_curve = |sign: char| ('\u{2801}'..='\u{28ff}').contains(&sign);
    terminal.wait_until("curve of braille", |screen| screen.chars().any(is_curve))?;
    is_in_state(&terminal, &State::DASHBOARD)
}

fn large_screen(context: &Context) -> Result<(), String> {
    let terminal = long(context, LARGE)?;
    terminal.wait_for("CPU     42 %")?;
    terminal.wait_for("epoch 1: train loss")?;
    let screen = terminal.wait_for("checkpoint of step 20: runs/demo/20")?;
    contains(&screen, &[" Log ", " System ", "in epoch", "warning: the data is synthetic"])
}

fn metrics(context: &Context) -> Result<(), String> {
    let terminal = long(context, SMALL)?;
    terminal.wait_for(" loss  ─ train ")?;
    terminal.keys(&["Right"])?;
    terminal.wait_for(" accuracy  ─ train ")?;
    terminal.keys(&["Right"])?;
    terminal.wait_for(" perplexity  ─ train ")?;
    terminal.keys(&["Left"])?;
    terminal.wait_for(" accuracy  ─ train ").map(drop)
}

fn splits(context: &Context) -> Result<(), String> {
    let terminal = long(context, SMALL)?;
    terminal.keys(&["Down"])?;
    let screen = terminal.wait_for(" whole run, train, EMA 0.6 ")?;
    lacks(&screen, &["─ valid"])?;
    terminal.keys(&["Down"])?;
    terminal.wait_for(" whole run, valid ")?;
    terminal.wait_for(" loss  ─ valid ")?;
    terminal.keys(&["Up"])?;
    terminal.wait_for(" whole run, train, EMA 0.6 ").map(drop)
}

fn window(context: &Context) -> Result<(), String> {
    let terminal = long(context, SMALL)?;
    terminal.keys(&["w"])?;
    terminal.wait_for(" last steps, train and valid, EMA 0.6 ")?;
    terminal.keys(&["w"])?;
    terminal.wait_for(" whole run, train and valid, EMA 0.6 ").map(drop)
}

fn smoothing(context: &Context) -> Result<(), String> {
    let terminal = long(context, SMALL)?;
    terminal.keys(&["s"])?;
    terminal.wait_for(", EMA 0.9 ")?;
    terminal.keys(&["s"])?;
    let screen = terminal.wait_for(" whole run, train and valid ")?;
    lacks(&screen, &["EMA"])?;
    terminal.keys(&["s"])?;
    terminal.wait_for(", EMA 0.6 ").map(drop)
}

/// The run hangs in its second epoch, so that no message follows while the log is read.
fn log(context: &Context) -> Result<(), String> {
    let arguments = "--batches 10 --step-ms 5 --hang-at 15";
    let terminal = Terminal::start(SMALL, "", &context.program, arguments)?;
    terminal.wait_until("fifth step of the second epoch", |screen| {
        screen.contains(" epoch 2/5 ") && screen.contains(" 5/10 ")
    })?;
    terminal.keys(&["l"])?;
    terminal.wait_for("checkpoint of step 10: runs/demo/10")?;
    terminal.keys(&["Tab", "Up"])?;
    terminal.wait_until("scrolled log", |screen| {
        screen.contains("epoch 1: train loss") && !screen.contains("checkpoint of step 10")
    })?;
    terminal.keys(&["Down"])?;
    terminal.wait_for("checkpoint of step 10")?;
    terminal.keys(&["l"])?;
    terminal.wait_until("hidden log", |screen| !screen.contains(" Log ")).map(drop)
}

fn help(context: &Context) -> Result<(), String> {
    let terminal = long(context, SMALL)?;
    terminal.keys(&["?"])?;
    let screen = terminal.wait_for(" Help ")?;
    contains(&screen, &["stop after this step; again: at once"])?;
    terminal.keys(&["Escape"])?;
    terminal.wait_until("closed help", |screen| !screen.contains(" Help ")).map(drop)
}

fn mouse(context: &Context) -> Result<(), String> {
    let terminal = long(context, SMALL)?;
    let screen = terminal.wait_for("perplexity")?;
    let row = screen.lines().nth(1).unwrap_or_default();
    let byte = row.find("perplexity").ok_or_else(|| format!("no `perplexity` in `{row}`"))?;
    terminal.click(row[..byte].chars().count() + 2, 1)?;
    terminal.wait_for(" perplexity  ─ train ")?;
    terminal.wheel_down(10, 10)?;
    terminal.wait_for(" loss  ─ train ").map(drop)
}

fn resize(context: &Context) -> Result<(), String> {
    let terminal = long(context, SMALL)?;
    terminal.resize(LARGE)?;
    let screen = terminal.wait_for(" Log ")?;
    contains(&screen, &["in epoch", " Progress "])?;
    terminal.resize(SMALL)?;
    let screen = terminal.wait_until("small layout", |screen| {
        !screen.contains(" Log ") && screen.lines().nth(23).is_some_and(|row| row.contains("q stop"))
    })?;
    contains(&screen, &[" Values ", " Progress "])?;
    terminal.resize((20, 5))?;
    terminal.wait_until("lines without panels", |screen| {
        screen.starts_with("epoch ") && screen.contains("loss: train")
    })?;
    Ok(())
}

fn end(context: &Context) -> Result<(), String> {
    let terminal = Terminal::start(SMALL, "", &context.program, "--epochs 2 --batches 10 --step-ms 5")?;
    let screen = ended(&terminal, 0)?;
    let parts = [
        "ready",
        "training of `demo`: all epochs are done, 20 steps in",
        "metric      split  last",
        "best epoch",
        "perplexity  valid",
        "the demo is over: Finished",
    ];
    contains(&screen, &parts)
}

fn stops_after_step(context: &Context, keys: &[&str]) -> Result<(), String> {
    let terminal = long(context, SMALL)?;
    terminal.keys(keys)?;
    stopped(&terminal)
}

fn signal_stops_after_step(context: &Context, signal: &str) -> Result<(), String> {
    let terminal = long(context, SMALL)?;
    terminal.signal(signal)?;
    stopped(&terminal)
}

fn stopped(terminal: &Terminal) -> Result<(), String> {
    let screen = ended(terminal, 0)?;
    contains(&screen, &["training of `demo`: interrupted", "the demo is over: Interrupted"])
}

/// A run whose sixth step never ends.
fn hanging(context: &Context) -> Result<Terminal, String> {
    let terminal = Terminal::start(SMALL, "", &context.program, "--step-ms 5 --hang-at 5")?;
    terminal.wait_for(" 5/50 ")?;
    Ok(terminal)
}

fn second_key_exits(context: &Context, key: &str) -> Result<(), String> {
    let terminal = hanging(context)?;
    terminal.keys(&[key])?;
    terminal.wait_for("stopping after this step")?;
    is_in_state(&terminal, &State::DASHBOARD)?;
    terminal.keys(&[key])?;
    ended(&terminal, 130).map(drop)
}

fn second_signal_exits(context: &Context) -> Result<(), String> {
    let terminal = hanging(context)?;
    terminal.signal("TERM")?;
    terminal.wait_for("stopping after this step")?;
    terminal.signal("TERM")?;
    ended(&terminal, 143).map(drop)
}

fn panic(context: &Context) -> Result<(), String> {
    // A backtrace would scroll the screen of before away.
    let terminal =
        Terminal::start(SMALL, "RUST_BACKTRACE=0", &context.program, "--step-ms 20 --panic-at 30")?;
    terminal.wait_for(" Progress ")?;
    let screen = ended(&terminal, 101)?;
    contains(&screen, &["ready", "the synthetic step 30 failed"])
}

fn exit(context: &Context) -> Result<(), String> {
    let terminal = Terminal::start(SMALL, "", &context.program, "--step-ms 20 --exit-at 30")?;
    terminal.wait_for(" Progress ")?;
    ended(&terminal, 7).map(drop)
}

fn colors(context: &Context, variables: &str, any: bool, of_256: bool) -> Result<(), String> {
    let terminal = Terminal::start(SMALL, variables, &context.program, LONG)?;
    terminal.wait_for(" whole run, train and valid, EMA 0.6 ")?;
    let screen = terminal.colored_text()?;
    let has = |codes: &[&str]| codes.iter().any(|code| screen.contains(code));
    // Named colours have the indices below 16.
    let index =
        |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u32>().ok();
    let indices: Vec<u32> =
        screen.replace("38:5:", "38;5;").split("38;5;").skip(1).filter_map(index).collect();
    let has_256 = indices.iter().any(|&index| index >= 16);
    let has_16 = !indices.is_empty()
        || (30..38)
            .chain(90..98)
            .any(|code| has(&[&format!("\u{1b}[{code}m"), &format!(";{code}m"), &format!("\u{1b}[{code};")]));
    if (has_256, has_256 || has_16) == (of_256, any) {
        Ok(())
    } else {
        Err(format!("256 colours: {has_256}, 16 colours: {has_16}\n{}", screen.escape_debug()))
    }
}

fn has_lines(context: &Context, variables: &str, redirection: &str) -> Result<(), String> {
    let arguments = format!("--epochs 2 --batches 3 --step-ms 5 {redirection}");
    let terminal = Terminal::start(SMALL, variables, &context.program, &arguments)?;
    let screen = ended(&terminal, 0)?;
    let parts = [
        "ready",
        "training of `demo` starts: 2 epochs of 3 batches",
        "epoch 1/2  train loss",
        "warning: the data is synthetic",
        "training ended after 6 steps",
    ];
    contains(&screen, &parts)?;
    lacks(&screen, &[" Progress ", "\u{1b}"])
}

fn overhead(context: &Context) -> Result<(), String> {
    let arguments = "--epochs 1 --batches 100000 --step-ms 0";
    let terminal = Terminal::start(SMALL, "", &context.program, arguments)?;
    let screen = ended(&terminal, 0)?;
    let before = screen.split(" us per step").next().unwrap_or_default();
    let microseconds = before.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok());
    match microseconds {
        Some(microseconds) if microseconds < MAX_MICROSECONDS => Ok(()),
        Some(_) | None => Err(format!("more than {MAX_MICROSECONDS} us per step, or no figure\n{screen}")),
    }
}

/// Waits for the end of the program with an exit code. The terminal must be as a shell expects it.
fn ended(terminal: &Terminal, status: i32) -> Result<String, String> {
    terminal.wait_for("status ")?;
    let screen = terminal.wait_until("`icanon` after the end", |screen| screen.contains("icanon"))?;
    contains(&screen, &[&format!("status {status}\n")])?;
    lacks(&screen, &["-icanon"])?;
    is_in_state(terminal, &State::NORMAL)?;
    Ok(screen)
}

fn is_in_state(terminal: &Terminal, expected: &State) -> Result<(), String> {
    let state = terminal.state()?;
    if state == *expected { Ok(()) } else { Err(format!("the terminal is in {state:?}, not {expected:?}")) }
}

fn contains(screen: &str, parts: &[&str]) -> Result<(), String> {
    match parts.iter().find(|part| !screen.contains(*part)) {
        None => Ok(()),
        Some(part) => Err(format!("no `{part}` on the screen\n{screen}")),
    }
}

fn lacks(screen: &str, parts: &[&str]) -> Result<(), String> {
    match parts.iter().find(|part| screen.contains(*part)) {
        None => Ok(()),
        Some(part) => Err(format!("`{part}` is on the screen\n{screen}")),
    }
}
