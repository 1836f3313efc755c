//! Scratch memory of kernels, cached per thread between calls.

use crate::buffer;
#[cfg(feature = "std")]
use crate::buffer::Pages;
use alloc::vec::Vec;
use kiln_ir::Result;

/// A cache line: the unit and alignment of scratch memory.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Memory above this many bytes is freed after use.
#[cfg(feature = "std")]
const KEPT: usize = 32 << 20;

#[cfg(feature = "std")]
std::thread_local! {
    static FREE: core::cell::RefCell<Vec<Memory>> = const { core::cell::RefCell::new(Vec::new()) };
}

/// Elements of scratch memory with arbitrary contents, aligned to cache lines.
pub(crate) struct Scratch<T> {
    memory: Memory,
    len: usize,
    element: core::marker::PhantomData<T>,
}

/// Types for which all bits are valid, and whose alignment is less than a cache line.
pub(crate) trait Plain: Copy {}

macro_rules! plain {
    ($($ty:ty),*) => {$(impl Plain for $ty {})*};
}

plain!(f32, f64, i64, i32, i16, i8, u64, u32, u16, u8);

impl<T: Plain> Scratch<T> {
    /// Allocates scratch memory for `len` elements, whose number is bounded by the kernel or by its operands.
    ///
    /// # Panics
    /// When there is not enough memory.
    pub(crate) fn new(len: usize) -> Scratch<T> {
        Scratch::try_new(len).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`new`](Scratch::new), for sizes that attributes such as the padding determine.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub(crate) fn try_new(len: usize) -> Result<Scratch<T>> {
        let wanted = len.saturating_mul(size_of::<T>());
        let mut memory = taken(wanted);
        if memory.bytes() < wanted {
            memory = Memory::new(wanted)?;
        }
        Ok(Scratch { memory, len, element: core::marker::PhantomData })
    }

    /// The elements, mutable.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: the memory holds at least `len` elements, for which all bits are valid and which need less alignment.
        unsafe { core::slice::from_raw_parts_mut(self.as_mut_ptr(), self.len) }
    }

    /// The pointer to the elements.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut T {
        match &mut self.memory {
            Memory::Lines(lines) => lines.as_mut_ptr().cast(),
            #[cfg(feature = "std")]
            Memory::Pages(pages) => pages.start().as_ptr().cast(),
        }
    }
}

/// Initialized scratch memory: zeroed, or written at least once.
enum Memory {
    Lines(Vec<Line>),
    /// Huge pages. With small pages, the page faults of a first step cost as much time as the kernel.
    #[cfg(feature = "std")]
    Pages(Pages),
}

impl Memory {
    fn new(bytes: usize) -> Result<Memory> {
        #[cfg(feature = "std")]
        if let Some(pages) = Pages::new(bytes) {
            return Ok(Memory::Pages(pages));
        }
        let count = bytes.div_ceil(size_of::<Line>());
        let mut lines = buffer::vector(count)?;
        lines.resize(count, Line([0; 8]));
        Ok(Memory::Lines(lines))
    }

    fn bytes(&self) -> usize {
        match self {
            Memory::Lines(lines) => size_of_val(lines.as_slice()),
            #[cfg(feature = "std")]
            Memory::Pages(pages) => pages.bytes(),
        }
    }
}

/// The smallest cached piece that is large enough, else any.
#[cfg(feature = "std")]
fn taken(wanted: usize) -> Memory {
    FREE.with_borrow_mut(|free| {
        let fits = |i: &usize| free[*i].bytes() >= wanted;
        let best = (0..free.len()).filter(fits).min_by_key(|&i| free[i].bytes());
        match best.or_else(|| free.len().checked_sub(1)) {
            Some(i) => free.swap_remove(i),
            None => Memory::Lines(Vec::new()),
        }
    })
}

#[cfg(not(feature = "std"))]
fn taken(_wanted: usize) -> Memory {
    Memory::Lines(Vec::new())
}

impl<T> Drop for Scratch<T> {
    fn drop(&mut self) {
        #[cfg(feature = "std")]
        {
            let memory = core::mem::replace(&mut self.memory, Memory::Lines(Vec::new()));
            if memory.bytes() <= KEPT {
                // At the end of a thread its list may be gone; the memory is then freed.
                let _ = FREE.try_with(|free| free.borrow_mut().push(memory));
            }
        }
    }
}
