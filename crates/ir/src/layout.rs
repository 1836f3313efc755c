//! Strided layouts: the positions of a tensor's elements in its buffer.

use crate::{Axes, MAX_RANK, Shape, SliceAxis};

/// Shape, strides and offset, counted in elements: element `[i, j, ..]` is at
/// `offset + i * strides[0] + j * strides[1] + ..`. Strides may be negative (a flipped axis) or 0 (a repeated one).
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The lengths of the axes.
    pub shape: Shape,
    /// The stride of each axis, in elements. Entries past the rank are unspecified.
    pub strides: [isize; MAX_RANK],
    /// The offset of the element at index 0 of every axis.
    pub offset: usize,
    /// Cached, since every op reads it.
    is_contiguous: bool,
}

impl Layout {
    /// Returns the row-major contiguous layout, from the start of the buffer.
    #[inline]
    pub fn contiguous(shape: Shape) -> Layout {
        let mut strides = [0; MAX_RANK];
        let mut stride = 1usize;
        for axis in (0..shape.rank()).rev() {
            strides[axis] = stride as isize;
            stride = stride.wrapping_mul(shape[axis].max(1));
        }
        Layout { shape, strides, offset: 0, is_contiguous: true }
    }

    /// Returns a layout with these strides and offset.
    pub fn strided(shape: Shape, strides: [isize; MAX_RANK], offset: usize) -> Layout {
        let is_contiguous = is_row_major(&shape, &strides);
        Layout { shape, strides, offset, is_contiguous }
    }

    /// Returns the number of axes.
    #[inline]
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// Returns the number of elements.
    #[inline]
    pub fn num_elements(&self) -> usize {
        self.shape.num_elements()
    }

    /// Returns the strides, one per axis.
    #[inline]
    pub fn strides(&self) -> &[isize] {
        &self.strides[..self.rank()]
    }

    /// Returns whether the elements are contiguous in row-major order (from any offset).
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.is_contiguous
    }

    /// Returns the layout of the same elements in another shape; `None` if that needs a copy.
    pub fn reshape(&self, shape: &Shape) -> Option<Layout> {
        if self.is_contiguous() {
            return Some(Layout { offset: self.offset, ..Layout::contiguous(*shape) });
        }
        let merged = Merged::new(&self.shape, self.strides());
        let mut strides = [0isize; MAX_RANK];
        let mut axis = shape.rank();
        for &(length, stride) in merged.axes[..merged.len].iter().rev() {
            let (mut filled, mut step) = (1usize, stride);
            while filled < length {
                axis = axis.checked_sub(1)?;
                strides[axis] = step;
                filled *= shape[axis];
                step *= shape[axis] as isize;
            }
            if filled != length {
                return None;
            }
        }
        Some(Layout::strided(*shape, strides, self.offset))
    }

    /// Permutes the axes: axis `i` of the result is axis `axes[i]`.
    pub fn permute(&self, axes: &Axes) -> Layout {
        let (mut shape, mut strides) = (self.shape, self.strides);
        for (to, from) in axes.iter().enumerate() {
            shape[to] = self.shape[from];
            strides[to] = self.strides[from];
        }
        Layout::strided(shape, strides, self.offset)
    }

    /// Broadcasts axes of length 1, and adds leading axes.
    pub fn broadcast(&self, shape: &Shape) -> Layout {
        let added = shape.rank() - self.rank();
        let mut strides = [0; MAX_RANK];
        for axis in 0..self.rank() {
            if self.shape[axis] == shape[added + axis] {
                strides[added + axis] = self.strides[axis];
            }
        }
        Layout::strided(*shape, strides, self.offset)
    }

    /// Returns a strided range of each axis.
    pub fn slice(&self, slices: &[SliceAxis]) -> Layout {
        let (mut shape, mut strides) = (self.shape, self.strides);
        let mut offset = self.offset as isize;
        for (axis, slice) in slices.iter().enumerate() {
            shape[axis] = slice.len;
            strides[axis] = self.strides[axis].wrapping_mul(slice.step);
            // Without elements, strides and starts may be anything.
            offset = offset.wrapping_add(self.strides[axis].wrapping_mul(slice.start as isize));
        }
        // An empty slice may start past the end; it reads nothing, and must not point outside the buffer.
        let offset = if shape.num_elements() == 0 { 0 } else { offset as usize };
        Layout::strided(shape, strides, offset)
    }

    /// Returns sliding windows along an axis; see [`Op::Windows`](crate::Op::Windows).
    pub fn windows(&self, axis: usize, size: usize, step: usize, dilation: usize) -> Layout {
        let rank = self.rank();
        let count = (self.shape[axis] - dilation * (size - 1) - 1) / step + 1;
        let shape = self.shape.with(axis, count).inserted(rank, size);
        let mut strides = self.strides;
        strides[axis] = self.strides[axis].wrapping_mul(step as isize);
        strides[rank] = self.strides[axis].wrapping_mul(dilation as isize);
        Layout::strided(shape, strides, self.offset)
    }
}

/// Whether these strides are row-major and contiguous; axes of length 1 may have any stride.
fn is_row_major(shape: &Shape, strides: &[isize]) -> bool {
    let mut expected = 1isize;
    for axis in (0..shape.rank()).rev() {
        let length = shape[axis];
        if length == 0 {
            return true;
        }
        if length != 1 {
            if strides[axis] != expected {
                return false;
            }
            expected *= length as isize;
        }
    }
    true
}

/// Axes of a layout, with neighbours merged where their strides allow.
struct Merged {
    axes: [(usize, isize); MAX_RANK],
    len: usize,
}

impl Merged {
    fn new(shape: &[usize], strides: &[isize]) -> Merged {
        let mut merged = Merged { axes: [(1, 0); MAX_RANK], len: 0 };
        for (&length, &stride) in shape.iter().zip(strides) {
            if length == 1 {
                continue;
            }
            if merged.len > 0 {
                let (last, outer) = &mut merged.axes[merged.len - 1];
                if *outer == stride * length as isize {
                    (*last, *outer) = (*last * length, stride);
                    continue;
                }
            }
            merged.axes[merged.len] = (length, stride);
            merged.len += 1;
        }
        merged
    }
}
