//! Size classes of blocks.

/// A size class. Up to [`Class::FINE`] bytes every multiple of 64; above, eight steps between powers of two, so that at
/// most a ninth of a block is wasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class(u16);

impl Class {
    /// The size up to which classes are multiples of 64 bytes.
    const FINE: usize = 512;

    /// The number of steps between powers of two.
    const STEPS: usize = 8;

    /// The number of classes, for sizes up to half of the address space.
    #[cfg(any(feature = "std", test))]
    pub(super) const COUNT: usize = Class::STEPS * (usize::BITS as usize - 9);

    /// The smallest class with room for that many bytes; `None` above the maximum allocation size.
    #[inline]
    pub(super) fn of(len: usize) -> Option<Class> {
        let last = len.saturating_sub(1);
        if last < Class::FINE {
            return Some(Class((last / 64) as u16));
        }
        if len > isize::MAX as usize {
            return None;
        }
        // The power of two of the last byte, at least 9, and its next three bits.
        let power = (usize::BITS - 1 - last.leading_zeros()) as usize;
        let step = (last >> (power - 3)) - Class::STEPS;
        Some(Class(((power - 8) * Class::STEPS + step) as u16))
    }

    /// The class with that index, which is below [`Class::COUNT`].
    #[cfg(any(feature = "std", test))]
    #[inline]
    pub(super) const fn at(index: usize) -> Class {
        Class(index as u16)
    }

    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    /// The capacity of a block of this class in bytes.
    #[inline]
    pub(super) const fn bytes(self) -> usize {
        let (octave, step) = (self.index() / Class::STEPS, self.index() % Class::STEPS);
        match octave {
            0 => (step + 1) * 64,
            _ => (Class::STEPS + step + 1) << (octave + 5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Class;

    #[test]
    fn a_size_class_is_the_smallest_that_fits() {
        let lengths = (0..5000).chain((9..40).flat_map(|power| {
            let near = 1usize << power;
            [near - 1, near, near + 1, near + near / 3, near + near / 8, near + near / 8 + 1]
        }));
        for len in lengths {
            let class = Class::of(len).unwrap();
            assert!(class.bytes() >= len, "{len} bytes in {}", class.bytes());
            assert!(class.index() < Class::COUNT);
            if class.index() > 0 {
                assert!(Class::at(class.index() - 1).bytes() < len, "{len} bytes in {}", class.bytes());
            }
            if len > 512 {
                assert!((class.bytes() - len) * 9 <= class.bytes(), "{len} bytes in {}", class.bytes());
            }
        }
    }

    #[test]
    fn no_size_class_exceeds_the_maximum_allocation() {
        assert_eq!(Class::of(usize::MAX), None);
        let greatest = Class::of(isize::MAX as usize).unwrap();
        assert_eq!(greatest.index(), Class::COUNT - 1);
        assert_eq!(greatest.bytes(), 1 << (usize::BITS - 1));
    }
}
