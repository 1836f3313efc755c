//! Memory that kernels write before they read it, kept per thread between calls.

use alloc::vec::Vec;

/// A cache line: what scratch memory is counted in, and aligned to.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Memory above this many bytes is given back after use.
#[cfg(feature = "std")]
const KEPT: usize = 32 << 20;

#[cfg(feature = "std")]
std::thread_local! {
    static FREE: core::cell::RefCell<Vec<Vec<Line>>> = const { core::cell::RefCell::new(Vec::new()) };
}

/// Elements of scratch memory with arbitrary contents, aligned to cache lines.
pub(crate) struct Scratch<T> {
    lines: Vec<Line>,
    len: usize,
    element: core::marker::PhantomData<T>,
}

/// Numbers for which all bits are valid, and whose alignment is less than a line's.
pub(crate) trait Plain: Copy {}

macro_rules! plain {
    ($($ty:ty),*) => {$(impl Plain for $ty {})*};
}

plain!(f32, f64, i8, u8, i16, i32);

impl<T: Plain> Scratch<T> {
    /// Takes memory for `len` elements.
    pub(crate) fn new(len: usize) -> Scratch<T> {
        let wanted = (len * size_of::<T>()).div_ceil(size_of::<Line>());
        let mut lines = taken(wanted);
        if lines.len() < wanted {
            lines = alloc::vec![Line([0; 8]); wanted];
        }
        Scratch { lines, len, element: core::marker::PhantomData }
    }

    /// The elements.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: the lines hold at least `len` elements, for which all bits are valid and which need less alignment.
        unsafe { core::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }

    /// Where the elements start.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut T {
        self.lines.as_mut_ptr().cast()
    }
}

/// The smallest kept piece that is large enough, else any.
#[cfg(feature = "std")]
fn taken(wanted: usize) -> Vec<Line> {
    FREE.with_borrow_mut(|free| {
        let fits = |i: &usize| free[*i].len() >= wanted;
        let best = (0..free.len()).filter(fits).min_by_key(|&i| free[i].len());
        match best.or_else(|| free.len().checked_sub(1)) {
            Some(i) => free.swap_remove(i),
            None => Vec::new(),
        }
    })
}

#[cfg(not(feature = "std"))]
fn taken(_wanted: usize) -> Vec<Line> {
    Vec::new()
}

impl<T> Drop for Scratch<T> {
    fn drop(&mut self) {
        #[cfg(feature = "std")]
        {
            let lines = core::mem::take(&mut self.lines);
            if lines.len() * size_of::<Line>() <= KEPT {
                // At the end of a thread its list may be gone; then the memory is freed.
                let _ = FREE.try_with(|free| free.borrow_mut().push(lines));
            }
        }
    }
}
