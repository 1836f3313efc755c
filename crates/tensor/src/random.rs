//! Random number generation: distributions, keys, and the key stream of each device.
//!
//! A random tensor is a pure function of a 64-bit [`Key`] (see [`kiln_ir::philox`]). The same key returns the same
//! numbers on every engine and for any number of threads. Uniform or normal samples are drawn and converted to other
//! [`Distribution`]s by arithmetic.
//!
//! * Without a key, functions draw the next key of the device's [`KeyStream`], which
//!   [`Backend::seed`](crate::Backend::seed) restarts.
//! * With a key, they are pure functions. [`Key::split`] and [`Key::fold_in`] derive keys with independent numbers, as
//!   in [JAX](https://docs.jax.dev/en/latest/jax.random.html).
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_tensor::random::Key;
//! use kiln_tensor::{Distribution, Tensor};
//!
//! let device = Default::default();
//! let keys = Key::new(42).split(2);
//! let x = Tensor::<Flex, 1>::random_with_key([100], Distribution::Gamma(2.0, 1.0), keys[0], &device);
//! let y = Tensor::<Flex, 1>::random_with_key([100], Distribution::Gamma(2.0, 1.0), keys[0], &device);
//! assert!(x.all_close(y, Some(0.0), Some(0.0)));
//! ```
//!
//! Samples have no gradients for the parameters of their distribution. Use the reparameterization
//! `mean + deviation * normal` for gradients.

mod distribution;
pub(crate) mod range;
pub(crate) mod sample;
pub(crate) mod weights;

pub use distribution::Distribution;
pub use weights::{HOST_KERNELS, HostKernel};

use crate::{AnyTensor, Result, Scalar, Stack, TensorType};
use alloc::vec::Vec;
use kiln_ir::{Op, RandomKind, philox};
use smallvec::smallvec;
use spin::Mutex;

/// A random key: random numbers are a pure function of it.
///
/// ```
/// use kiln_tensor::random::Key;
///
/// let key = Key::new(7);
/// let [a, b] = [key.fold_in(0), key.fold_in(1)];
/// assert!(a != b && a == Key::new(7).fold_in(0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(u64);

impl Key {
    /// Creates the key of a seed.
    pub const fn new(seed: u64) -> Key {
        Key(seed)
    }

    /// Returns the next key of a device or a stack.
    ///
    /// ```
    /// use kiln_backends::Device;
    /// use kiln_tensor::random::Key;
    ///
    /// let device = Device::cpu();
    /// assert_ne!(Key::next(&device), Key::next(&device));
    /// ```
    pub fn next(device: &impl AsRef<crate::Stack>) -> Key {
        Key(device.as_ref().keys().next_key())
    }

    /// Returns `count` keys, independent of each other, of this key, and of the keys that
    /// [`fold_in`](Key::fold_in) derives from it.
    ///
    /// # Panics
    /// For more than 2²⁸ keys.
    #[track_caller]
    pub fn split(self, count: usize) -> Vec<Key> {
        assert!(
            count <= 1 << 28,
            "[split] {count} keys are too many\n  hint: `fold_in` derives one key from a number"
        );
        // A constant that `fold_in` never uses: it separates `split` from `fold_in`.
        let branch = self.fold_in(u64::MAX);
        (0..count as u64).map(|number| branch.fold_in(number)).collect()
    }

    /// Derives a key from an integer, such as the index of a step, a layer or a worker.
    #[must_use]
    pub fn fold_in(self, number: u64) -> Key {
        Key(philox::fold_in(self.0, number))
    }

    /// Returns the 64 bits that [`Op::Random`] uses.
    pub fn bits(self) -> u64 {
        self.0
    }
}

/// Draws numbers of a kind that every engine has.
pub(crate) fn numbers(
    ty: TensorType,
    distribution: RandomKind,
    key: Key,
    stack: &Stack,
) -> Result<AnyTensor> {
    let op = Op::Random { ty, distribution };
    let results = AnyTensor::emit(stack, &op, smallvec![Scalar::UInt(key.bits()).into()])?;
    AnyTensor::only(stack.clone(), &op, results)
}

/// A stream of keys: key `n` of a seed is the same on every device.
#[derive(Debug)]
pub struct KeyStream(Mutex<KeyState>);

/// The position of a [`KeyStream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// The seed.
    pub seed: u64,
    /// The number of keys drawn since the seed was set.
    pub drawn: u64,
}

impl KeyStream {
    /// Seeds the stream and restarts it.
    pub fn seed(&self, seed: u64) {
        self.restore(KeyState { seed, drawn: 0 });
    }

    /// Returns the next key.
    pub fn next_key(&self) -> u64 {
        let mut state = self.0.lock();
        let key = philox::fold_in(state.seed, state.drawn);
        state.drawn += 1;
        key
    }

    /// Returns the position of the stream, for [`restore`](KeyStream::restore).
    pub fn state(&self) -> KeyState {
        *self.0.lock()
    }

    /// Restores a position of the stream.
    pub fn restore(&self, state: KeyState) {
        *self.0.lock() = state;
    }
}

impl Default for KeyStream {
    /// Creates a stream of seed 0: programs are repeatable unless they set another seed.
    fn default() -> KeyStream {
        KeyStream(Mutex::new(KeyState { seed: 0, drawn: 0 }))
    }
}
