//! Hashes of what programs are made of.

use core::hash::{BuildHasherDefault, Hasher};

/// A hash that is fast on short keys, of structures that a program makes itself: nothing keeps keys from outside from colliding, which
/// costs comparisons.
///
/// ```
/// use core::hash::{Hash, Hasher};
/// use kiln_ir::Mixer;
///
/// let hash = |key: (u32, &str)| {
///     let mut mixer = Mixer::default();
///     key.hash(&mut mixer);
///     mixer.finish()
/// };
/// assert_eq!(hash((1, "one")), hash((1, "one")));
/// assert_ne!(hash((1, "one")), hash((2, "one")));
/// ```
#[derive(Clone, Default)]
pub struct Mixer(u64);

/// What makes the hashes of a map by [`Mixer`].
pub type Mixing = BuildHasherDefault<Mixer>;

impl Mixer {
    /// One that goes on from a hash.
    pub fn new(hash: u64) -> Mixer {
        Mixer(hash)
    }

    #[inline]
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.mix(u64::from_le_bytes([
                chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7],
            ]));
        }
        for &byte in chunks.remainder() {
            self.mix(u64::from(byte));
        }
    }

    #[inline]
    fn write_u8(&mut self, x: u8) {
        self.mix(u64::from(x));
    }

    #[inline]
    fn write_u32(&mut self, x: u32) {
        self.mix(u64::from(x));
    }

    #[inline]
    fn write_u64(&mut self, x: u64) {
        self.mix(x);
    }

    #[inline]
    fn write_usize(&mut self, x: usize) {
        self.mix(x as u64);
    }

    #[inline]
    fn write_isize(&mut self, x: isize) {
        self.mix(x as u64);
    }
}
