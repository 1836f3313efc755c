//! Training progress: a progress bar on a terminal, lines elsewhere.

#[cfg(feature = "progress")]
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Minimum time between updates of a bar's scores.
#[cfg(feature = "progress")]
const BAR_INTERVAL: Duration = Duration::from_millis(100);
/// Minimum time between printed lines.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows the progress of one pass over a loader on standard error.
pub(crate) struct Progress {
    display: Display,
    /// The title: `epoch 1/2`.
    title: String,
    started: Instant,
    shown: Instant,
    done: usize,
    total: usize,
    /// Number of items that were done before this pass started.
    skipped: usize,
}

enum Display {
    Silent,
    Lines,
    #[cfg(feature = "progress")]
    Bar(indicatif::ProgressBar),
}

impl Progress {
    /// Starts a pass. `skipped` of the `total` items are already done.
    pub(crate) fn start(show: bool, title: String, skipped: usize, total: usize) -> Progress {
        let now = Instant::now();
        let display = if show { Display::open(&title, skipped, total) } else { Display::Silent };
        Progress { display, title, started: now, shown: now, done: skipped, total, skipped }
    }

    /// Adds finished items.
    pub(crate) fn add(&mut self, items: usize) {
        self.done += items;
        match &self.display {
            Display::Silent | Display::Lines => {}
            #[cfg(feature = "progress")]
            Display::Bar(bar) => bar.set_position(self.done as u64),
        }
    }

    /// Whether scores should be shown now. Reading them may wait for the device, so the caller asks first.
    pub(crate) fn is_due(&self) -> bool {
        match &self.display {
            Display::Silent => false,
            Display::Lines => self.shown.elapsed() >= LINE_INTERVAL,
            #[cfg(feature = "progress")]
            Display::Bar(_) => self.shown.elapsed() >= BAR_INTERVAL,
        }
    }

    /// Shows scores: `loss 0.1234  accuracy 96.12 %`.
    pub(crate) fn show(&mut self, scores: &str) {
        self.shown = Instant::now();
        let text = format!("{scores}  {}", self.speed());
        match &self.display {
            Display::Silent => {}
            Display::Lines => eprintln!("{}  {}/{}  {text}", self.title, self.done, self.total),
            #[cfg(feature = "progress")]
            Display::Bar(bar) => bar.set_message(text),
        }
    }

    /// Ends the pass and prints a final line.
    pub(crate) fn finish(self, scores: &str) {
        let seconds = self.started.elapsed().as_secs_f64();
        let line = format!("{}  {scores}  {seconds:.1} s", self.title);
        match &self.display {
            Display::Silent => {}
            Display::Lines => eprintln!("{line}"),
            #[cfg(feature = "progress")]
            Display::Bar(bar) => {
                bar.finish_and_clear();
                eprintln!("{line}");
            }
        }
    }

    /// Formats speed and remaining time of this pass: `5123 items/s  9 s left`.
    fn speed(&self) -> String {
        speed(self.done - self.skipped, self.total.saturating_sub(self.done), self.started.elapsed())
    }
}

impl Display {
    #[cfg(feature = "progress")]
    fn open(title: &str, skipped: usize, total: usize) -> Display {
        if !std::io::stderr().is_terminal() {
            return Display::Lines;
        }
        let bar = indicatif::ProgressBar::new(total as u64).with_position(skipped as u64);
        let style = indicatif::ProgressStyle::with_template("{prefix} {wide_bar} {percent:>3} %  {msg}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(title.to_owned());
        Display::Bar(bar)
    }

    #[cfg(not(feature = "progress"))]
    fn open(_title: &str, _skipped: usize, _total: usize) -> Display {
        Display::Lines
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        match &self.display {
            Display::Silent | Display::Lines => {}
            // After an error an abandoned bar would stay half-drawn; a finished bar must not be drawn again.
            #[cfg(feature = "progress")]
            Display::Bar(bar) if !bar.is_finished() => bar.abandon(),
            #[cfg(feature = "progress")]
            Display::Bar(_) => {}
        }
    }
}

fn speed(done: usize, left: usize, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64();
    if !rate.is_finite() || rate <= 0.0 {
        return String::from("- items/s");
    }
    format!("{rate:.0} items/s  {:.0} s left", (left as f64 / rate).ceil())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_and_remaining_time() {
        assert_eq!(speed(500, 1000, Duration::from_secs(2)), "250 items/s  4 s left");
        assert_eq!(speed(0, 1000, Duration::from_secs(2)), "- items/s");
        assert_eq!(speed(10, 0, Duration::ZERO), "- items/s");
    }
}
