//! Stop strings in text that arrives in pieces.

/// Finds stop strings. Text that may be the start of one is held back.
#[derive(Clone, Debug)]
pub(super) struct StopFinder {
    stops: Vec<String>,
    /// Text that is not released.
    held: String,
}

/// Released text, and the stop string after it.
pub(super) struct Released {
    pub(super) text: String,
    pub(super) stop: Option<String>,
}

impl StopFinder {
    pub(super) fn new(stops: &[String]) -> Self {
        StopFinder { stops: stops.to_vec(), held: String::new() }
    }

    /// Adds text and releases all that cannot be part of a stop string.
    pub(super) fn push(&mut self, text: &str) -> Released {
        self.held.push_str(text);
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str()).map(|at| (at, stop)));
        // The first in the text; of those at one position, the longest.
        if let Some((at, stop)) = found.min_by_key(|(at, stop)| (*at, std::cmp::Reverse(stop.len()))) {
            let stop = Some(stop.clone());
            self.held.truncate(at);
            return Released { text: std::mem::take(&mut self.held), stop };
        }
        let kept = self.held.len() - self.start_of_stop();
        Released { text: self.held.drain(..kept).collect(), stop: None }
    }

    /// Releases all text at the end.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// The length of the longest end of the text that is the start of a stop string.
    fn start_of_stop(&self) -> usize {
        let longest = |stop: &String| {
            let lengths = (1..stop.len().min(self.held.len() + 1)).rev();
            lengths.into_iter().find(|&length| self.held.as_bytes().ends_with(&stop.as_bytes()[..length]))
        };
        self.stops.iter().filter_map(longest).max().unwrap_or(0)
    }
}
