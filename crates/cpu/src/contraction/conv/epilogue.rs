//! What happens to parts of a result while they are in cache.

use core::ops::Range;

/// A complete part of a result `[batch, channels, elements]`, to be changed in place.
///
/// Elements of one channel lie side by side, channels `stride` apart.
#[derive(Debug)]
#[cfg_attr(not(test), allow(dead_code, reason = "kernels of its own may want the memory itself"))]
pub(crate) struct Finished<T> {
    /// Which channels, counted through all groups.
    pub(crate) channels: Range<usize>,
    /// Which elements of these channels, counted row-major through the axes of space.
    pub(crate) elements: Range<usize>,
    /// The first element.
    pub(crate) start: *mut T,
    /// The distance between channels.
    pub(crate) stride: usize,
}

/// A function of finished parts, called on the threads that compute them, in any order. Every element is in one part. A
/// part may come again after all its elements were computed anew, so the function must depend on nothing but its
/// argument.
///
/// ```text
/// // y = relu(conv(x, w) + bias)
/// let finish = |part: Finished<f32>| {
///     for (i, channel) in part.channels.clone().enumerate() {
///         // SAFETY: elements of the part, which is this call's alone.
///         let y = unsafe { core::slice::from_raw_parts_mut(part.start.add(i * part.stride), part.elements.len()) };
///         y.iter_mut().for_each(|y| *y = (*y + bias[channel]).max(0.0));
///     }
/// };
/// ```
pub(crate) type Epilogue<'a, T> = &'a (dyn Fn(Finished<T>) + Sync);
