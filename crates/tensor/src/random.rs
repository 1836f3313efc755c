//! Random numbers: distributions, and the stream of keys behind them.
//!
//! A random tensor is a pure function of a 64-bit key (see [`kiln_ir::philox`]), so the same seed gives the same
//! numbers on every engine. Each device has a [`KeyStream`]; [`Backend::seed`](crate::Backend::seed) restarts it.

use kiln_ir::philox;
use spin::Mutex;

/// What [`Tensor::random`](crate::Tensor::random) draws.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Distribution {
    /// Uniform in `[0, 1)` for floats, all integers of the dtype for integers, fair coins for `bool`.
    #[default]
    Default,
    /// True (1) with this probability.
    Bernoulli(f64),
    /// Uniform in `[low, high)`.
    Uniform(f64, f64),
    /// Normal with this mean and standard deviation.
    Normal(f64, f64),
}

/// A sequence of keys: number `n` of a seed is the same wherever it is drawn.
#[derive(Debug)]
pub struct KeyStream(Mutex<KeyState>);

/// Where a [`KeyStream`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// The seed.
    pub seed: u64,
    /// How many keys were drawn since.
    pub drawn: u64,
}

impl KeyStream {
    /// Restarts the stream.
    pub fn seed(&self, seed: u64) {
        self.restore(KeyState { seed, drawn: 0 });
    }

    /// The next key.
    pub fn next_key(&self) -> u64 {
        let mut state = self.0.lock();
        let key = philox::fold_in(state.seed, state.drawn);
        state.drawn += 1;
        key
    }

    /// Where the stream is, for [`restore`](KeyStream::restore).
    pub fn state(&self) -> KeyState {
        *self.0.lock()
    }

    /// Puts the stream back to where it was.
    pub fn restore(&self, state: KeyState) {
        *self.0.lock() = state;
    }
}

impl Default for KeyStream {
    /// Seed 0: programs are repeatable unless they choose otherwise.
    fn default() -> KeyStream {
        KeyStream(Mutex::new(KeyState { seed: 0, drawn: 0 }))
    }
}
