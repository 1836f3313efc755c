//! Numbers of tokens, and times.

use std::fmt;
use std::time::{Duration, Instant};

/// Numbers of tokens, and times of a generation. `Display` prints them in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Number of prompt tokens that were computed, of all rows.
    pub prompt_tokens: usize,
    /// Number of new tokens, of all rows.
    pub new_tokens: usize,
    /// The time until the first new token.
    pub prompt_time: Duration,
    /// The time of all other new tokens.
    pub decode_time: Duration,
    /// New tokens of the first step, whose time is that of the prompt.
    first_tokens: usize,
    start: Instant,
    first: Option<Instant>,
}

impl Statistics {
    pub(crate) fn new(start: Instant, prompt_tokens: usize) -> Self {
        let (prompt_time, decode_time) = (Duration::ZERO, Duration::ZERO);
        Statistics {
            prompt_tokens,
            new_tokens: 0,
            prompt_time,
            decode_time,
            first_tokens: 0,
            start,
            first: None,
        }
    }

    /// Counts the tokens of a step.
    pub(crate) fn count(&mut self, tokens: usize) {
        if self.first.is_none() {
            self.first = Some(Instant::now());
            self.prompt_time = self.start.elapsed();
            self.first_tokens = tokens;
        }
        self.new_tokens += tokens;
    }

    /// Takes the time of the last token.
    pub(crate) fn end(&mut self) {
        self.decode_time = self.first.map_or(Duration::ZERO, |first| first.elapsed());
    }

    /// Returns the number of prompt tokens per second.
    pub fn prompt_tokens_per_second(&self) -> f64 {
        rate(self.prompt_tokens, self.prompt_time)
    }

    /// Returns the number of new tokens per second after the first of each row; 0 if there are none.
    pub fn tokens_per_second(&self) -> f64 {
        rate(self.new_tokens.saturating_sub(self.first_tokens), self.decode_time)
    }
}

fn rate(tokens: usize, time: Duration) -> f64 {
    if tokens == 0 || time.is_zero() { 0.0 } else { tokens as f64 / time.as_secs_f64() }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "prompt {} tokens in {:.2} s ({:.1} tokens/s), generated {} tokens in {:.2} s ({:.1} tokens/s)",
            self.prompt_tokens,
            self.prompt_time.as_secs_f64(),
            self.prompt_tokens_per_second(),
            self.new_tokens,
            self.decode_time.as_secs_f64(),
            self.tokens_per_second()
        )
    }
}
