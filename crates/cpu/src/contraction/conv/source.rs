//! The source of a convolution, with zero padding around its spatial dimensions.

use super::geometry::{Geometry, row_major};
use crate::array::Array;
use crate::contraction::scratch::Scratch;
use crate::contraction::simd::Float;
use crate::copy::Shared;
use crate::threads::Pool;
use kiln_ir::Result;

/// Elements that kernels may read past the end of a padded source, so that rows need no tails.
pub(super) const SLACK: usize = 64;

/// The minimum copied elements per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 15;

/// `[batch, channels, padded space..]`: the operand itself if it already has this layout, else a padded copy.
pub(super) struct Source<T> {
    pub(super) start: Shared<T>,
    /// The image stride.
    pub(super) image: usize,
    /// The channel stride.
    pub(super) plane: usize,
    /// Keeps a padded copy alive.
    _copy: Option<Scratch<T>>,
}

impl<T: Float> Source<T> {
    /// The array with zero padding. With `slack`, [`SLACK`] elements after it may be read too.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub(super) fn new(pool: &Pool, geometry: &Geometry, array: &Array, slack: bool) -> Result<Source<T>> {
        let plane = geometry.plane();
        let strides = array.strides();
        let dense = row_major(&geometry.space).iter().zip(&strides[2..]).all(|(&a, &b)| a as isize == b);
        let ordered = strides[..2].iter().all(|&stride| stride >= 0);
        if geometry.is_bare() && dense && ordered && strides[1] == plane as isize && !slack {
            let start = Shared::new(array.as_mut_ptr::<T>());
            return Ok(Source { start, image: strides[0] as usize, plane, _copy: None });
        }
        let channels = array.shape()[1];
        let mut copy =
            Scratch::<T>::try_new((array.shape()[0] * channels).saturating_mul(plane).saturating_add(SLACK))?;
        let start = Shared::new(copy.as_mut_ptr());
        let planes = array.shape()[0] * channels;
        pool.parallel_for(planes, GRAIN.div_ceil(plane.max(1)), |range| {
            for i in range {
                let (n, c) = ((i / channels) as isize, (i % channels) as isize);
                let from = array.as_ptr::<T>().wrapping_offset(n * strides[0] + c * strides[1]);
                // SAFETY: the plane is within the copy, and each is written once; `from` is a channel of the array.
                unsafe { pad(geometry, from, &strides[2..], start.get().add(i * plane)) };
            }
        });
        // SAFETY: the slack is within the copy.
        unsafe { start.get().add(planes * plane).write_bytes(0, SLACK) };
        Ok(Source { start, image: channels * plane, plane, _copy: Some(copy) })
    }
}

/// Copies one channel between the zeros.
///
/// # Safety
/// `from` is a channel with these strides; `to` has room for a padded plane.
unsafe fn pad<T: Float>(geometry: &Geometry, from: *const T, strides: &[isize], to: *mut T) {
    let last = geometry.space.len() - 1;
    let row = geometry.space[last];
    let padded = row_major(&geometry.padded);
    let rows: usize = geometry.space[..last].iter().product();
    // SAFETY: every row of the channel has its position in the plane.
    unsafe {
        if !geometry.is_bare() {
            to.write_bytes(0, geometry.plane());
        }
        for number in 0..rows {
            let (mut rest, mut source, mut target) = (number, 0isize, geometry.low[last]);
            for axis in (0..last).rev() {
                let i = rest % geometry.space[axis];
                rest /= geometry.space[axis];
                source += i as isize * strides[axis];
                target += (i + geometry.low[axis]) * padded[axis];
            }
            let (source, target) = (from.offset(source), to.add(target));
            if strides[last] == 1 {
                target.copy_from_nonoverlapping(source, row);
            } else {
                for i in 0..row {
                    *target.add(i) = *source.offset(i as isize * strides[last]);
                }
            }
        }
    }
}
