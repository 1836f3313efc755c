//! Windows of memory that a kernel binds where a binding has a maximum size.

use super::DevicePtr;
use std::ops::Range;

/// The offset of a binding is a multiple of this. Devices require this multiple or a divisor of it.
const ALIGNMENT: usize = 256;

/// The window of a block that is bound for a tensor: one binding, or parts of equal size, of which the last may be
/// shorter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    bytes: Range<usize>,
    part_bytes: usize,
}

impl Window {
    /// The window for a pointer into a block of `size` bytes, where a binding has at most `limit` bytes, at least 256.
    /// It is the whole block if that fits. Otherwise it is the bytes that the pointer [reaches](DevicePtr::reach).
    pub fn of<M>(at: &DevicePtr<M>, size: usize, limit: usize) -> Window {
        if size <= limit {
            return Window { bytes: 0..size, part_bytes: limit };
        }
        let reach = at.reach.bytes();
        let end = reach.end.min(size);
        let start = reach.start.min(at.offset).min(end) / ALIGNMENT * ALIGNMENT;
        Window::whole(start..end, limit)
    }

    /// The window of these bytes.
    fn whole(bytes: Range<usize>, limit: usize) -> Window {
        let part_bytes = if bytes.len() <= limit { limit } else { part_bytes(limit) };
        Window { bytes, part_bytes }
    }

    /// The first byte of the block that is bound.
    pub fn start(&self) -> usize {
        self.bytes.start
    }

    /// The number of bound bytes.
    #[expect(clippy::len_without_is_empty, reason = "a window is not empty")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The number of bindings, at least 1.
    pub fn parts(&self) -> usize {
        self.bytes.len().div_ceil(self.part_bytes).max(1)
    }

    /// The bytes of the block in each binding.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Window { bytes, part_bytes } = self.clone();
        (0..self.parts()).map(move |part| {
            let start = bytes.start + part * part_bytes;
            start..(start + part_bytes).min(bytes.end)
        })
    }
}

/// Bytes of a block, in units of 256. It is small because launches copy their pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    start: u32,
    end: u32,
}

impl Reach {
    /// Every block.
    pub const ALL: Reach = Reach { start: 0, end: u32::MAX };

    /// The units that contain these bytes.
    pub fn of(bytes: Range<usize>) -> Reach {
        let unit = |byte: usize| u32::try_from(byte / ALIGNMENT).unwrap_or(u32::MAX);
        Reach { start: unit(bytes.start), end: unit(bytes.end.saturating_add(ALIGNMENT - 1)) }
    }

    /// The bytes of the units, which may extend past the end of the block.
    pub fn bytes(self) -> Range<usize> {
        let byte = |unit: u32| (unit as usize).saturating_mul(ALIGNMENT);
        byte(self.start)..byte(self.end)
    }
}

/// The bytes of a part of a tensor that exceeds a binding of `limit` bytes: the largest power of two within the limit, so
/// that the upper bits of an index are the number of the part.
pub fn part_bytes(limit: usize) -> usize {
    1 << limit.max(1).ilog2()
}

/// The number of bindings of a block of that many bytes.
pub(crate) fn parts(bytes: usize, limit: usize) -> usize {
    Window::whole(0..bytes, limit).parts()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn window(offset: usize, reach: Range<usize>, size: usize, limit: usize) -> Window {
        Window::of(&DevicePtr { memory: Arc::new(()), offset, reach: Reach::of(reach) }, size, limit)
    }

    /// The first byte and the end of each binding.
    fn bounds(window: &Window) -> Vec<[usize; 2]> {
        window.ranges().map(|range| [range.start, range.end]).collect()
    }

    #[test]
    fn a_block_within_the_limit_is_one_binding() {
        for size in [4, 512, 1024] {
            let window = window(0, 0..4, size, 1024);
            assert_eq!((window.start(), window.parts()), (0, 1));
            assert_eq!(bounds(&window), [[0, size]]);
        }
    }

    #[test]
    fn a_larger_block_is_bound_in_powers_of_two() {
        let whole = window(8, 0..usize::MAX, 2560, 1500);
        assert_eq!(bounds(&whole), [[0, 1024], [1024, 2048], [2048, 2560]]);
        assert_eq!((whole.parts(), parts(2560, 1500), parts(1500, 1500), parts(0, 1500)), (3, 3, 1, 1));
        assert_eq!([1023, 1024, 1025, (1 << 31) - 1].map(part_bytes), [512, 1024, 1024, 1 << 30]);
    }

    #[test]
    fn only_the_reached_bytes_of_a_larger_block_are_bound() {
        let one = window(3000, 3000..3600, 1 << 20, 1024);
        assert_eq!(bounds(&one), [[2816, 3840]]);
        let several = window(3000, 3000..5000, 1 << 20, 1024);
        assert_eq!(bounds(&several), [[2816, 3840], [3840, 4864], [4864, 5120]]);
        let backwards = window(3600, 3000..3604, 1 << 20, 1024);
        assert_eq!(backwards, one);
        let last = window(4000, 4000..4096, 4096, 1024);
        assert_eq!(bounds(&last), [[3840, 4096]]);
    }
}
