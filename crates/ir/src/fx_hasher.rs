//! A fast hasher that is not collision-resistant (FxHash).

use core::hash::{BuildHasherDefault, Hasher};

/// The FxHash function of Firefox and rustc: fast on short keys, without a seed. An attacker can choose keys that
/// collide, which costs comparisons. Use it for keys that a program creates itself.
///
/// ```
/// use core::hash::{Hash, Hasher};
/// use kiln_ir::FxHasher;
///
/// let hash = |key: (u32, &str)| {
///     let mut hasher = FxHasher::default();
///     key.hash(&mut hasher);
///     hasher.finish()
/// };
/// assert_eq!(hash((1, "one")), hash((1, "one")));
/// assert_ne!(hash((1, "one")), hash((2, "one")));
/// ```
#[derive(Clone, Default)]
pub struct FxHasher(u64);

/// The [`BuildHasher`](core::hash::BuildHasher) of hash maps that use [`FxHasher`].
pub type FxBuildHasher = BuildHasherDefault<FxHasher>;

impl FxHasher {
    /// Returns a hasher whose state starts from `hash`.
    pub fn new(hash: u64) -> FxHasher {
        FxHasher(hash)
    }

    #[inline]
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for FxHasher {
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
